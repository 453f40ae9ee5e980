// Attention of many query vectors over a list of pages: small matrix products in workgroup memory.
//
// One workgroup takes one item: a tile of rows, one KV head, a list of pages. Query vectors (rows x query
// heads of the group) are worked on CHUNK at a time against blocks of BLOCK tokens. Logits: slices of 32
// channels of queries and keys are brought to workgroup memory, keys decoded once for the chunk; a thread
// owns 4 vectors x TOKENS tokens. Values: a thread owns 4 channels of 4 * SETS vectors in registers,
// decodes each value once for all of them and takes the probabilities from workgroup memory.

const_assert ((WORKGROUP & (WORKGROUP - 1u)) == 0u);
const_assert (WORKGROUP >= 64u && WORKGROUP <= 256u);
const_assert (V_DIM / 4u <= WORKGROUP);
const_assert (K_DIM % 4u == 0u && V_DIM % 4u == 0u);

const K4: u32 = K_DIM / 4u;
const V4: u32 = V_DIM / 4u;
const VECTORS: u32 = ROWS * GROUP;
const BLOCK: u32 = 32u;
const RUN: u32 = min(BLOCK, PAGE_TOKENS);
const PAGES: u32 = BLOCK / RUN;
// Channel quads of a slice.
const DEPTH: u32 = 8u;
// Vectors of a chunk, a power of two: what the item has, at most 64, and at most 64 registers of output a
// thread; at least what gives each thread a logit.
const WANTED: u32 = 16u << (min(1u, VECTORS / 17u) + min(1u, VECTORS / 33u));
const ROOM: u32 = 16u * WORKGROUP / V4;
const MOST: u32 = 16u << (min(1u, ROOM / 32u) + min(1u, ROOM / 64u));
const CHUNK: u32 = max(WORKGROUP / 8u, min(WANTED, MOST));
const QUADS: u32 = CHUNK / 4u;
// Threads of one quad of vectors in the logits' phase, and tokens of each.
const TEAM: u32 = WORKGROUP / QUADS;
const TOKENS: u32 = BLOCK / TEAM;
// Groups of threads that each own all channels, in the values' phase, and quads of vectors of each.
const FIT: u32 = WORKGROUP / V4;
const SPLIT: u32 = min(QUADS, 1u << (min(1u, FIT / 2u) + min(1u, FIT / 4u) + min(1u, FIT / 8u)));
const SETS: u32 = QUADS / SPLIT;
const STRIDE4: u32 = V4 + 1u;

const_assert (TEAM * QUADS == WORKGROUP && TOKENS * TEAM == BLOCK && TOKENS >= 1u);
const_assert (SETS * SPLIT == QUADS && SPLIT * V4 <= WORKGROUP);

#unzeroed
// A slice of the queries; then probabilities times V scale, [token][quad of vectors].
var<workgroup> left: array<vec4<f32>, CHUNK * DEPTH>;
// A slice of the keys; then the teams' maxima or sums, [thread of team][quad].
var<workgroup> right: array<vec4<f32>, BLOCK * DEPTH>;
var<workgroup> shrinks: array<vec4<f32>, QUADS>;
var<workgroup> pages: array<Page, PAGES>;
var<workgroup> positions: array<u32, CHUNK>;
var<workgroup> biases: array<f32, CHUNK>;

#include "lib/visible.wgsl"

fn quad_positions(quad: u32) -> vec4<u32> {
    let at = quad * 4u;
    return vec4<u32>(positions[at], positions[at + 1u], positions[at + 2u], positions[at + 3u]);
}

// First word of vector `v`'s prepared query, in units of 4.
fn query_at(item: Item, v: u32) -> u32 {
    return ((item.row_start + v / GROUP) * Q_HEADS + item.kv_head * GROUP + v % GROUP) * (K4 + 1u);
}

// Maximum (or sum) over a quad's team, whose values stand in `right`.
fn team_max(quad: u32) -> vec4<f32> {
    var m = right[quad];
    for (var i = 1u; i < TEAM; i++) {
        m = max(m, right[i * QUADS + quad]);
    }
    return m;
}

fn team_sum(quad: u32) -> vec4<f32> {
    var sum = right[quad];
    for (var i = 1u; i < TEAM; i++) {
        sum += right[i * QUADS + quad];
    }
    return sum;
}

fn write_softmax(state: u32, live: bool, m: f32, l: f32) {
    if (live) {
        partials[state * STRIDE4] = vec4<f32>(m, l, 0.0, 0.0);
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = group_index(id, groups);
    if (group >= params.groups) {
        return;
    }
    let item = load_item(group);
    let count = item.rows * GROUP;
    let blocks = (item.ids_count * PAGE_TOKENS + BLOCK - 1u) / BLOCK;
    // Logits' phase.
    let quad = lid % QUADS;
    let member = lid / QUADS;
    // Values' phase.
    let c4 = lid % V4;
    let part = lid / V4;

    // The item's extreme positions: rows are consecutive, but nothing here relies on it.
    var newest = row_position(item.row_start);
    var oldest = newest;
    for (var r = 1u; r < item.rows; r++) {
        let position = row_position(item.row_start + r);
        newest = max(newest, position);
        oldest = min(oldest, position);
    }

    for (var chunk = 0u; chunk < count; chunk += CHUNK) {
        workgroupBarrier();
        // Vectors past the item's end get row 0's position, zeros for channels, and no result.
        for (var i = lid; i < CHUNK; i += WORKGROUP) {
            var position = row_position(item.row_start);
            var bias = 0.0;
            if (chunk + i < count) {
                position = row_position(item.row_start + (chunk + i) / GROUP);
                bias = q[query_at(item, chunk + i) + K4].x;
            }
            positions[i] = position;
            biases[i] = bias;
        }
        workgroupBarrier();
        let query = quad_positions(quad);
        let bias = vec4<f32>(biases[quad * 4u], biases[quad * 4u + 1u], biases[quad * 4u + 2u], biases[quad * 4u + 3u]);
        var m = vec4<f32>(EMPTY);
        var l = vec4<f32>(0.0);
        var output: array<vec4<f32>, SETS * 4u>;
        for (var i = 0u; i < SETS * 4u; i++) {
            output[i] = vec4<f32>(0.0);
        }

        for (var block = 0u; block < blocks; block++) {
            let start = block * BLOCK;
            let token0 = start % PAGE_TOKENS;
            workgroupBarrier();
            if (lid < PAGES) {
                pages[lid] = load_page(item, start / PAGE_TOKENS + lid);
            }

            // Logits.
            var s: array<vec4<f32>, TOKENS>;
            for (var j = 0u; j < TOKENS; j++) {
                s[j] = vec4<f32>(0.0);
            }
            for (var c = 0u; c < K4; c += DEPTH) {
                let depth = min(DEPTH, K4 - c);
                workgroupBarrier();
                for (var i = lid; i < CHUNK * depth; i += WORKGROUP) {
                    let v = i / depth;
                    var value = vec4<f32>(0.0);
                    if (chunk + v < count) {
                        value = q[query_at(item, chunk + v) + c + i % depth];
                    }
                    left[i % depth * CHUNK + v] = value;
                }
                for (var i = lid; i < BLOCK * depth; i += WORKGROUP) {
                    let t = i % BLOCK;
                    let page = pages[t / RUN];
                    let token = (start + t) % PAGE_TOKENS;
                    var key = vec4<f32>(0.0);
                    if (token < page.valid) {
#if IN_PARTS
                        k_part1 = page.k_part1;
#endif
                        key = k_load4(page.k_base, token, c + i / BLOCK);
                    }
                    right[i] = key;
                }
                workgroupBarrier();
                for (var d = 0u; d < depth; d++) {
                    let at = d * CHUNK + quad * 4u;
                    let q0 = left[at];
                    let q1 = left[at + 1u];
                    let q2 = left[at + 2u];
                    let q3 = left[at + 3u];
                    for (var j = 0u; j < TOKENS; j++) {
                        let key = right[d * BLOCK + j * TEAM + member];
                        s[j] += vec4<f32>(dot(q0, key), dot(q1, key), dot(q2, key), dot(q3, key));
                    }
                }
            }
            var most = vec4<f32>(EMPTY);
            for (var j = 0u; j < TOKENS; j++) {
                let t = j * TEAM + member;
                let page = pages[t / RUN];
                let token = (start + t) % PAGE_TOKENS;
                let seen = visible4(page.first + token, query) & vec4<bool>(token < page.valid);
                s[j] = select(vec4<f32>(EMPTY), cap4(s[j] * k_scale(page.k_base, token) + bias), seen);
                most = max(most, s[j]);
            }

            // The block's maxima, then probabilities and weights of V.
            workgroupBarrier();
            right[member * QUADS + quad] = most;
            workgroupBarrier();
            let next = max(m, team_max(quad));
            let shrink = exp(m - next);
            m = next;
            l *= shrink;
            if (member == 0u) {
                shrinks[quad] = shrink;
            }
            for (var j = 0u; j < TOKENS; j++) {
                let t = j * TEAM + member;
                let page = pages[t / RUN];
                let token = (start + t) % PAGE_TOKENS;
                let seen = visible4(page.first + token, query) & vec4<bool>(token < page.valid);
                let p = select(vec4<f32>(0.0), exp(s[j] - m), seen);
                l += p;
                left[t * QUADS + quad] = select(vec4<f32>(0.0), p * v_scale(page.v_base, token), seen);
            }
            workgroupBarrier();

            // Values.
            if (part < SPLIT) {
                for (var i = 0u; i < SETS; i++) {
                    let factor = shrinks[i * SPLIT + part];
                    output[i * 4u] *= factor.x;
                    output[i * 4u + 1u] *= factor.y;
                    output[i * 4u + 2u] *= factor.z;
                    output[i * 4u + 3u] *= factor.w;
                }
                for (var p = 0u; p < PAGES; p++) {
                    let page = pages[p];
#if IN_PARTS
                    v_part1 = page.v_part1;
#endif
                    let here = min(max(page.valid, token0) - token0, RUN);
                    let low = page.first + token0;
#if WINDOW
                    let all_seen = here > 0u && low + here - 1u <= oldest && newest - low < params.window;
#else
                    let all_seen = here > 0u && low + here - 1u <= oldest;
#endif
                    if (all_seen) {
                        for (var t = 0u; t < here; t++) {
                            let value = v_load4(page.v_base, token0 + t, c4);
                            for (var i = 0u; i < SETS; i++) {
                                let w = left[(p * RUN + t) * QUADS + i * SPLIT + part];
                                output[i * 4u] += w.x * value;
                                output[i * 4u + 1u] += w.y * value;
                                output[i * 4u + 2u] += w.z * value;
                                output[i * 4u + 3u] += w.w * value;
                            }
                        }
                    } else {
                        // Some vector does not see some token: its value is dropped, not multiplied by 0.
                        for (var t = 0u; t < here; t++) {
                            let value = v_load4(page.v_base, token0 + t, c4);
                            let zero = vec4<f32>(0.0);
                            for (var i = 0u; i < SETS; i++) {
                                let w = left[(p * RUN + t) * QUADS + i * SPLIT + part];
                                let seen = visible4(low + t, quad_positions(i * SPLIT + part));
                                output[i * 4u] += w.x * select(zero, value, seen.x);
                                output[i * 4u + 1u] += w.y * select(zero, value, seen.y);
                                output[i * 4u + 2u] += w.z * select(zero, value, seen.z);
                                output[i * 4u + 3u] += w.w * select(zero, value, seen.w);
                            }
                        }
                    }
                }
            }
        }

        workgroupBarrier();
        right[member * QUADS + quad] = l;
        workgroupBarrier();
        if (member == 0u) {
            let sum = team_sum(quad);
            let v = chunk + quad * 4u;
            let state = item.partial_start + v;
            write_softmax(state, v < count, m.x, sum.x);
            write_softmax(state + 1u, v + 1u < count, m.y, sum.y);
            write_softmax(state + 2u, v + 2u < count, m.z, sum.z);
            write_softmax(state + 3u, v + 3u < count, m.w, sum.w);
        }
        if (part < SPLIT) {
            for (var i = 0u; i < SETS * 4u; i++) {
                let v = chunk + (i / 4u * SPLIT + part) * 4u + i % 4u;
                if (v < count) {
                    partials[(item.partial_start + v) * STRIDE4 + 1u + c4] = output[i];
                }
            }
        }
    }
}
