// Attention of a few query vectors over a list of pages: token per thread, then channel per thread.
//
// One workgroup takes one item: the rows of one entry, one KV head, a list of pages. Its query vectors
// (rows x query heads of the group) share every load of K and V, in chunks of at most 8 vectors. A block
// of BLOCK tokens is worked on in two phases. Logits: a thread owns TPT tokens and walks their channels.
// Values: a thread owns 4 channels and walks the tokens of its slice, accumulators in registers.
// Between the two stands an online softmax whose maximum all threads agree on.

const_assert ((WORKGROUP & (WORKGROUP - 1u)) == 0u);
const_assert (WORKGROUP >= 32u && WORKGROUP <= 256u);
const_assert (V_DIM / 4u <= WORKGROUP);
const_assert (K_DIM % 4u == 0u && V_DIM % 4u == 0u);
const_assert (K_DIM <= 512u);

const K4: u32 = K_DIM / 4u;
// Head sizes are multiples of 8.
const K_STEP: u32 = select(2u, 4u, K4 % 4u == 0u);
const V4: u32 = V_DIM / 4u;
const VECTORS: u32 = ROWS * GROUP;
// Query vectors of a chunk: 8, fewer where 8 KiB would not hold them.
const CHUNK: u32 = min(VECTORS, min(8u, 2048u / K_DIM));
const QUADS: u32 = (CHUNK + 3u) / 4u;
// Tokens a thread owns: 2 where 12 KiB hold queries and probabilities.
const TPT: u32 = max(1u, min(2u, (12288u - K_DIM * CHUNK * 4u) / (WORKGROUP * QUADS * 16u)));
const BLOCK: u32 = WORKGROUP * TPT;
// Tokens of one page within a block, and pages of a block.
const RUN: u32 = min(BLOCK, PAGE_TOKENS);
const PAGES: u32 = BLOCK / RUN;
const SEGMENTS: u32 = 16u;
const SLICES: u32 = WORKGROUP / V4;
const STRIDE4: u32 = V4 + 1u;

#unzeroed
var<workgroup> queries: array<vec4<f32>, K4 * CHUNK>;
// Logits, then probabilities times V scale, of BLOCK tokens: 4 vectors an element. Also scratch.
var<workgroup> weights: array<vec4<f32>, BLOCK * QUADS>;
var<workgroup> segments: array<vec4<f32>, SEGMENTS * QUADS>;
var<workgroup> pages: array<Page, PAGES>;
// For each vector of the chunk: position and bias.
var<workgroup> positions: array<u32, 8>;
var<workgroup> biases: array<f32, 8>;

#include "lib/visible.wgsl"

// Logits of up to 4 vectors (of the chunk, from `first` on) gain 4 channels of one key.
fn accumulate(sum: vec4<f32>, key: vec4<f32>, c4: u32, first: u32) -> vec4<f32> {
    let at = c4 * CHUNK + first;
    var s = sum;
    s.x += dot(key, queries[at]);
    if (CHUNK > first + 1u) { s.y += dot(key, queries[at + 1u]); }
    if (CHUNK > first + 2u) { s.z += dot(key, queries[at + 2u]); }
    if (CHUNK > first + 3u) { s.w += dot(key, queries[at + 3u]); }
    return s;
}

// Query positions and biases of chunk vectors; those past the item's end get row 0's and no result.
fn load_queries(item: Item, chunk: u32, count: u32, lid: u32) {
    for (var i = lid; i < K4 * CHUNK; i += WORKGROUP) {
        let v = chunk + i / K4;
        let c4 = i % K4;
        var value = vec4<f32>(0.0);
        if (v < count) {
            let head = item.kv_head * GROUP + v % GROUP;
            value = q[((item.row_start + v / GROUP) * Q_HEADS + head) * (K4 + 1u) + c4];
        }
        queries[c4 * CHUNK + i / K4] = value;
    }
    if (lid < 8u) {
        let v = chunk + lid;
        var position = row_position(item.row_start);
        var bias = 0.0;
        if (lid < CHUNK && v < count) {
            let row = item.row_start + v / GROUP;
            position = row_position(row);
            bias = q[(row * Q_HEADS + item.kv_head * GROUP + v % GROUP) * (K4 + 1u) + K4].x;
        }
        positions[lid] = position;
        biases[lid] = bias;
    }
}

// Finished logits of one token for 4 vectors: scaled, biased, capped; EMPTY where not visible.
fn finish(sum: vec4<f32>, scale: f32, bias: vec4<f32>, seen: vec4<bool>) -> vec4<f32> {
    return select(vec4<f32>(EMPTY), cap4(sum * scale + bias), seen);
}

// Maximum over the block of each of 4 vectors. Needs the segments' maxima in place.
fn block_max(quad: u32) -> vec4<f32> {
    var m = segments[quad];
    for (var i = 1u; i < SEGMENTS; i++) {
        m = max(m, segments[i * QUADS + quad]);
    }
    return m;
}

// Sums of each of 4 vectors over the workgroup. All threads call it, in uniform control flow.
fn group_sum(value: vec4<f32>, lid: u32) -> vec4<f32> {
    workgroupBarrier();
    weights[lid] = value;
    workgroupBarrier();
    if (lid < SEGMENTS) {
        var sum = vec4<f32>(0.0);
        for (var i = lid; i < WORKGROUP; i += SEGMENTS) {
            sum += weights[i];
        }
        segments[lid] = sum;
    }
    workgroupBarrier();
    var sum = segments[0];
    for (var i = 1u; i < SEGMENTS; i++) {
        sum += segments[i];
    }
    return sum;
}

// Adds the slices' outputs of one vector and writes them. All threads call it, in uniform control flow.
fn write_output(state: u32, live: bool, value: vec4<f32>, lid: u32) {
    workgroupBarrier();
    weights[lid] = value;
    workgroupBarrier();
    if (live && lid < V4) {
        var sum = weights[lid];
        for (var i = 1u; i < SLICES; i++) {
            sum += weights[i * V4 + lid];
        }
        partials[state * STRIDE4 + 1u + lid] = sum;
    }
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
    let c4 = lid % V4;
    let slice = lid / V4;

    for (var chunk = 0u; chunk < count; chunk += CHUNK) {
        workgroupBarrier();
        load_queries(item, chunk, count, lid);
        workgroupBarrier();
        let query0 = vec4<u32>(positions[0], positions[1], positions[2], positions[3]);
        let query1 = vec4<u32>(positions[4], positions[5], positions[6], positions[7]);
        let bias0 = vec4<f32>(biases[0], biases[1], biases[2], biases[3]);
        let bias1 = vec4<f32>(biases[4], biases[5], biases[6], biases[7]);
        var newest = query0;
        var oldest = query0;
        if (CHUNK > 4u) {
            newest = max(newest, query1);
            oldest = min(oldest, query1);
        }
        let last_query = max(max(newest.x, newest.y), max(newest.z, newest.w));
        let first_query = min(min(oldest.x, oldest.y), min(oldest.z, oldest.w));

        // The softmax so far: maxima are the same in all threads, sums are of the thread's tokens.
        var m0 = vec4<f32>(EMPTY);
        var m1 = vec4<f32>(EMPTY);
        var l0 = vec4<f32>(0.0);
        var l1 = vec4<f32>(0.0);
        var o0 = vec4<f32>(0.0);
        var o1 = vec4<f32>(0.0);
        var o2 = vec4<f32>(0.0);
        var o3 = vec4<f32>(0.0);
        var o4 = vec4<f32>(0.0);
        var o5 = vec4<f32>(0.0);
        var o6 = vec4<f32>(0.0);
        var o7 = vec4<f32>(0.0);

        for (var block = 0u; block < blocks; block++) {
            let start = block * BLOCK;
            workgroupBarrier();
            if (lid < PAGES) {
                pages[lid] = load_page(item, start / PAGE_TOKENS + lid);
            }
            workgroupBarrier();

            // Logits of this thread's tokens.
            let page_a = pages[lid / RUN];
            let token_a = (start + lid) % PAGE_TOKENS;
            let live_a = token_a < page_a.valid;
            let seen_a0 = visible4(page_a.first + token_a, query0) & vec4<bool>(live_a);
            let seen_a1 = visible4(page_a.first + token_a, query1) & vec4<bool>(live_a);
            var sa0 = vec4<f32>(0.0);
            var sa1 = vec4<f32>(0.0);
            // The second token, where there is one: RUN divides WORKGROUP or is the block.
            let index_b = (TPT - 1u) * WORKGROUP + lid;
            let page_b = pages[index_b / RUN];
            let token_b = (start + index_b) % PAGE_TOKENS;
            let live_b = TPT > 1u && token_b < page_b.valid;
            let seen_b0 = visible4(page_b.first + token_b, query0) & vec4<bool>(live_b);
            let seen_b1 = visible4(page_b.first + token_b, query1) & vec4<bool>(live_b);
            var sb0 = vec4<f32>(0.0);
            var sb1 = vec4<f32>(0.0);
            if (live_a || live_b) {
                // Several loads are under way at a time: one after another, their latency would be all there is.
                for (var c = 0u; c < K4; c += K_STEP) {
                    let a0 = k_load4(page_a.k_base, token_a, c);
                    let a1 = k_load4(page_a.k_base, token_a, c + 1u);
                    var a2 = vec4<f32>(0.0);
                    var a3 = vec4<f32>(0.0);
                    if (K_STEP > 2u) {
                        a2 = k_load4(page_a.k_base, token_a, c + 2u);
                        a3 = k_load4(page_a.k_base, token_a, c + 3u);
                    }
                    var b0 = vec4<f32>(0.0);
                    var b1 = vec4<f32>(0.0);
                    var b2 = vec4<f32>(0.0);
                    var b3 = vec4<f32>(0.0);
                    if (TPT > 1u) {
                        b0 = k_load4(page_b.k_base, token_b, c);
                        b1 = k_load4(page_b.k_base, token_b, c + 1u);
                        if (K_STEP > 2u) {
                            b2 = k_load4(page_b.k_base, token_b, c + 2u);
                            b3 = k_load4(page_b.k_base, token_b, c + 3u);
                        }
                    }
                    sa0 = accumulate(accumulate(sa0, a0, c, 0u), a1, c + 1u, 0u);
                    if (K_STEP > 2u) { sa0 = accumulate(accumulate(sa0, a2, c + 2u, 0u), a3, c + 3u, 0u); }
                    if (CHUNK > 4u) {
                        sa1 = accumulate(accumulate(sa1, a0, c, 4u), a1, c + 1u, 4u);
                        if (K_STEP > 2u) { sa1 = accumulate(accumulate(sa1, a2, c + 2u, 4u), a3, c + 3u, 4u); }
                    }
                    if (TPT > 1u) {
                        sb0 = accumulate(accumulate(sb0, b0, c, 0u), b1, c + 1u, 0u);
                        if (K_STEP > 2u) { sb0 = accumulate(accumulate(sb0, b2, c + 2u, 0u), b3, c + 3u, 0u); }
                        if (CHUNK > 4u) {
                            sb1 = accumulate(accumulate(sb1, b0, c, 4u), b1, c + 1u, 4u);
                            if (K_STEP > 2u) { sb1 = accumulate(accumulate(sb1, b2, c + 2u, 4u), b3, c + 3u, 4u); }
                        }
                    }
                }
                let scale_a = k_scale(page_a.k_base, token_a);
                sa0 = finish(sa0, scale_a, bias0, seen_a0);
                if (CHUNK > 4u) { sa1 = finish(sa1, scale_a, bias1, seen_a1); }
                if (TPT > 1u) {
                    let scale_b = k_scale(page_b.k_base, token_b);
                    sb0 = finish(sb0, scale_b, bias0, seen_b0);
                    if (CHUNK > 4u) { sb1 = finish(sb1, scale_b, bias1, seen_b1); }
                }
            } else {
                sa0 = vec4<f32>(EMPTY);
                sa1 = vec4<f32>(EMPTY);
                sb0 = vec4<f32>(EMPTY);
                sb1 = vec4<f32>(EMPTY);
            }
            weights[lid * QUADS] = sa0;
            if (CHUNK > 4u) { weights[lid * QUADS + 1u] = sa1; }
            if (TPT > 1u) {
                weights[index_b * QUADS] = sb0;
                if (CHUNK > 4u) { weights[index_b * QUADS + 1u] = sb1; }
            }
            workgroupBarrier();

            // The block's maxima: first of segments of tokens, then over segments.
            for (var i = lid; i < SEGMENTS * QUADS; i += WORKGROUP) {
                var m = weights[i];
                for (var j = i + SEGMENTS * QUADS; j < BLOCK * QUADS; j += SEGMENTS * QUADS) {
                    m = max(m, weights[j]);
                }
                segments[i] = m;
            }
            workgroupBarrier();
            let next0 = max(m0, block_max(0u));
            let shrink0 = exp(m0 - next0);
            m0 = next0;
            l0 *= shrink0;
            o0 *= shrink0.x;
            if (CHUNK > 1u) { o1 *= shrink0.y; }
            if (CHUNK > 2u) { o2 *= shrink0.z; }
            if (CHUNK > 3u) { o3 *= shrink0.w; }
            if (CHUNK > 4u) {
                let next1 = max(m1, block_max(1u));
                let shrink1 = exp(m1 - next1);
                m1 = next1;
                l1 *= shrink1;
                o4 *= shrink1.x;
                if (CHUNK > 5u) { o5 *= shrink1.y; }
                if (CHUNK > 6u) { o6 *= shrink1.z; }
                if (CHUNK > 7u) { o7 *= shrink1.w; }
            }

            // Probabilities, and weights of V: nothing of an unseen token enters.
            {
                let zero = vec4<f32>(0.0);
                let scale_a = v_scale(page_a.v_base, token_a);
                let pa0 = select(zero, exp(sa0 - m0), seen_a0);
                l0 += pa0;
                weights[lid * QUADS] = select(zero, pa0 * scale_a, seen_a0);
                if (CHUNK > 4u) {
                    let pa1 = select(zero, exp(sa1 - m1), seen_a1);
                    l1 += pa1;
                    weights[lid * QUADS + 1u] = select(zero, pa1 * scale_a, seen_a1);
                }
                if (TPT > 1u) {
                    let scale_b = v_scale(page_b.v_base, token_b);
                    let pb0 = select(zero, exp(sb0 - m0), seen_b0);
                    l0 += pb0;
                    weights[index_b * QUADS] = select(zero, pb0 * scale_b, seen_b0);
                    if (CHUNK > 4u) {
                        let pb1 = select(zero, exp(sb1 - m1), seen_b1);
                        l1 += pb1;
                        weights[index_b * QUADS + 1u] = select(zero, pb1 * scale_b, seen_b1);
                    }
                }
            }
            workgroupBarrier();

            // Values of this thread's channels and slice, page by page.
            if (slice < SLICES) {
                for (var p = 0u; p < PAGES; p++) {
                    let page = pages[p];
                    let token0 = start % PAGE_TOKENS;
                    let here = min(max(page.valid, token0) - token0, RUN);
                    let low = page.first + token0;
#if WINDOW
                    let all_seen = here > 0u && low + here - 1u <= first_query && low + params.window > last_query;
#else
                    let all_seen = here > 0u && low + here - 1u <= first_query;
#endif
                    if (all_seen) {
                        var t = slice;
                        for (; t + 3u * SLICES < here; t += 4u * SLICES) {
                            let value0 = v_load4(page.v_base, token0 + t, c4);
                            let value1 = v_load4(page.v_base, token0 + t + SLICES, c4);
                            let value2 = v_load4(page.v_base, token0 + t + 2u * SLICES, c4);
                            let value3 = v_load4(page.v_base, token0 + t + 3u * SLICES, c4);
                            {
                                let value = value0;
                                let at = (p * RUN + t) * QUADS;
                                let w0 = weights[at];
                                o0 += w0.x * value;
                                if (CHUNK > 1u) { o1 += w0.y * value; }
                                if (CHUNK > 2u) { o2 += w0.z * value; }
                                if (CHUNK > 3u) { o3 += w0.w * value; }
                                if (CHUNK > 4u) {
                                    let w1 = weights[at + 1u];
                                    o4 += w1.x * value;
                                    if (CHUNK > 5u) { o5 += w1.y * value; }
                                    if (CHUNK > 6u) { o6 += w1.z * value; }
                                    if (CHUNK > 7u) { o7 += w1.w * value; }
                                }
                            }
                            {
                                let value = value1;
                                let at = (p * RUN + t + SLICES) * QUADS;
                                let w0 = weights[at];
                                o0 += w0.x * value;
                                if (CHUNK > 1u) { o1 += w0.y * value; }
                                if (CHUNK > 2u) { o2 += w0.z * value; }
                                if (CHUNK > 3u) { o3 += w0.w * value; }
                                if (CHUNK > 4u) {
                                    let w1 = weights[at + 1u];
                                    o4 += w1.x * value;
                                    if (CHUNK > 5u) { o5 += w1.y * value; }
                                    if (CHUNK > 6u) { o6 += w1.z * value; }
                                    if (CHUNK > 7u) { o7 += w1.w * value; }
                                }
                            }
                            {
                                let value = value2;
                                let at = (p * RUN + t + 2u * SLICES) * QUADS;
                                let w0 = weights[at];
                                o0 += w0.x * value;
                                if (CHUNK > 1u) { o1 += w0.y * value; }
                                if (CHUNK > 2u) { o2 += w0.z * value; }
                                if (CHUNK > 3u) { o3 += w0.w * value; }
                                if (CHUNK > 4u) {
                                    let w1 = weights[at + 1u];
                                    o4 += w1.x * value;
                                    if (CHUNK > 5u) { o5 += w1.y * value; }
                                    if (CHUNK > 6u) { o6 += w1.z * value; }
                                    if (CHUNK > 7u) { o7 += w1.w * value; }
                                }
                            }
                            {
                                let value = value3;
                                let at = (p * RUN + t + 3u * SLICES) * QUADS;
                                let w0 = weights[at];
                                o0 += w0.x * value;
                                if (CHUNK > 1u) { o1 += w0.y * value; }
                                if (CHUNK > 2u) { o2 += w0.z * value; }
                                if (CHUNK > 3u) { o3 += w0.w * value; }
                                if (CHUNK > 4u) {
                                    let w1 = weights[at + 1u];
                                    o4 += w1.x * value;
                                    if (CHUNK > 5u) { o5 += w1.y * value; }
                                    if (CHUNK > 6u) { o6 += w1.z * value; }
                                    if (CHUNK > 7u) { o7 += w1.w * value; }
                                }
                            }
                        }
                        for (; t < here; t += SLICES) {
                            let value0 = v_load4(page.v_base, token0 + t, c4);
                            {
                                let value = value0;
                                let at = (p * RUN + t) * QUADS;
                                let w0 = weights[at];
                                o0 += w0.x * value;
                                if (CHUNK > 1u) { o1 += w0.y * value; }
                                if (CHUNK > 2u) { o2 += w0.z * value; }
                                if (CHUNK > 3u) { o3 += w0.w * value; }
                                if (CHUNK > 4u) {
                                    let w1 = weights[at + 1u];
                                    o4 += w1.x * value;
                                    if (CHUNK > 5u) { o5 += w1.y * value; }
                                    if (CHUNK > 6u) { o6 += w1.z * value; }
                                    if (CHUNK > 7u) { o7 += w1.w * value; }
                                }
                            }
                        }
                    } else {
                        // Some vector does not see some token: its value is dropped, not multiplied by 0.
                        for (var t = slice; t < here; t += SLICES) {
                            let value = v_load4(page.v_base, token0 + t, c4);
                            let zero = vec4<f32>(0.0);
                            let seen0 = visible4(low + t, query0);
                            let w0 = weights[(p * RUN + t) * QUADS];
                            o0 += w0.x * select(zero, value, seen0.x);
                            if (CHUNK > 1u) { o1 += w0.y * select(zero, value, seen0.y); }
                            if (CHUNK > 2u) { o2 += w0.z * select(zero, value, seen0.z); }
                            if (CHUNK > 3u) { o3 += w0.w * select(zero, value, seen0.w); }
                            if (CHUNK > 4u) {
                                let seen1 = visible4(low + t, query1);
                                let w1 = weights[(p * RUN + t) * QUADS + 1u];
                                o4 += w1.x * select(zero, value, seen1.x);
                                if (CHUNK > 5u) { o5 += w1.y * select(zero, value, seen1.y); }
                                if (CHUNK > 6u) { o6 += w1.z * select(zero, value, seen1.z); }
                                if (CHUNK > 7u) { o7 += w1.w * select(zero, value, seen1.w); }
                            }
                        }
                    }
                }
            }
        }

        let state = item.partial_start + chunk;
        let live = count - chunk;
        let sum0 = group_sum(l0, lid);
        var sum1 = vec4<f32>(0.0);
        if (CHUNK > 4u) { sum1 = group_sum(l1, lid); }
        if (lid == 0u) {
            write_softmax(state, true, m0.x, sum0.x);
            if (CHUNK > 1u) { write_softmax(state + 1u, live > 1u, m0.y, sum0.y); }
            if (CHUNK > 2u) { write_softmax(state + 2u, live > 2u, m0.z, sum0.z); }
            if (CHUNK > 3u) { write_softmax(state + 3u, live > 3u, m0.w, sum0.w); }
            if (CHUNK > 4u) { write_softmax(state + 4u, live > 4u, m1.x, sum1.x); }
            if (CHUNK > 5u) { write_softmax(state + 5u, live > 5u, m1.y, sum1.y); }
            if (CHUNK > 6u) { write_softmax(state + 6u, live > 6u, m1.z, sum1.z); }
            if (CHUNK > 7u) { write_softmax(state + 7u, live > 7u, m1.w, sum1.w); }
        }
        write_output(state, true, o0, lid);
        if (CHUNK > 1u) { write_output(state + 1u, live > 1u, o1, lid); }
        if (CHUNK > 2u) { write_output(state + 2u, live > 2u, o2, lid); }
        if (CHUNK > 3u) { write_output(state + 3u, live > 3u, o3, lid); }
        if (CHUNK > 4u) { write_output(state + 4u, live > 4u, o4, lid); }
        if (CHUNK > 5u) { write_output(state + 5u, live > 5u, o5, lid); }
        if (CHUNK > 6u) { write_output(state + 6u, live > 6u, o6, lid); }
        if (CHUNK > 7u) { write_output(state + 7u, live > 7u, o7, lid); }
    }
}
