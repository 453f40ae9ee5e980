// Attention of a few query vectors over a list of pages: token per thread, then channel per thread.
//
// One workgroup takes one item: the rows of one entry, one KV head, a list of pages. Its query vectors
// (rows x query heads of the group) share every load of K and V, in chunks of at most 8 vectors. A block
// of BLOCK tokens is worked on in two phases. Logits: a thread owns TPT tokens and walks their channels by
// units. Values: a thread owns V_QUADS times 4 channels and walks the units of its slice, sums in registers.
// Between the two stands an online softmax whose maximum all threads agree on.
//
// What failed to help here, on an H200: see src/kernel/decode.rs.

// Products with K are made in `number`; tables of V's values are kept in `stored`, which holds them exactly. Where
// V_HALF, products with V are made in f16 too: weights are relative to the block's greatest scale and below 32, values
// are below 4, and what a thread has summed of a block's tokens is added in f32.
#if NATIVE
#enable f16
alias stored = f16;
#else
alias stored = f32;
#endif
#if HALF
alias number = f16;
#else
alias number = f32;
#endif
alias pair = vec2<number>;

// Four channels, each of two tokens.
struct Twins {
    c0: vec2<stored>,
    c1: vec2<stored>,
    c2: vec2<stored>,
    c3: vec2<stored>,
}

#if V_HALF
// Four channels of one token: 0 and 2, 1 and 3.
struct Halves {
    even: vec2<f16>,
    odd: vec2<f16>,
}
#endif

const_assert ((WORKGROUP & (WORKGROUP - 1u)) == 0u);
const_assert (WORKGROUP >= 32u && WORKGROUP <= 256u);
const_assert (V_COLUMNS <= WORKGROUP);
const_assert (K_UNITS % K_FLIGHT == 0u);
const_assert (TPT % K_UNIT_TOKENS == 0u);
#if V_HALF
const_assert (BLOCK / SLICES * 32u * 4u <= 65504u);
#endif
// Units of several tokens of V are spread over up to 64 tokens of a page.
const_assert (V_UNIT_TOKENS == 1u || BLOCK >= min(PAGE_TOKENS, 64u));

// Elements of a query within a unit.
const K_STEPS: u32 = K_QUADS * 2u / K_STEP_PAIRS;
const V4: u32 = V_DIM / 4u;
const BLOCK: u32 = WORKGROUP * TPT;
// Tokens of one page within a block, and pages of a block.
const RUN: u32 = min(BLOCK, PAGE_TOKENS);
const PAGES: u32 = BLOCK / RUN;
// Pages that are looked up at a time: two dependent loads whose latency a block alone would not hide.
const LOOKED_UP: u32 = max(PAGES, 32u);
const RUN_UNITS: u32 = RUN / V_UNIT_TOKENS;
// Threads of a row of values, and tokens' units that are under way side by side.
const V_COLUMNS: u32 = V4 / V_QUADS;
const SLICES: u32 = WORKGROUP / V_COLUMNS;
const STRIDE4: u32 = V4 + 1u;
// Weights of BLOCK tokens, and scratch of maxima and sums; of the latter alone where weights are halves.
#if V_HALF
const WEIGHTS: u32 = WORKGROUP * QUADS;
#else
const WEIGHTS: u32 = BLOCK * QUADS;
#endif

#include "lib/visible.wgsl"
#codec_units k
#codec_units v

#unzeroed
// Two pairs of channels an element, four pairs of f16 where products are made in it.
#if HALF
var<workgroup> queries: array<vec4<u32>, K_UNITS * K_QUADS / 2u * CHUNK>;
#else
var<workgroup> queries: array<vec4<f32>, K_UNITS * K_QUADS * CHUNK>;
#endif
var<workgroup> weights: array<vec4<f32>, WEIGHTS>;
#if V_HALF
// Four vectors of a token; of tokens that V has as twins, two vectors of both.
var<workgroup> halves: array<vec4<f16>, BLOCK * QUADS>;
#endif
var<workgroup> pages: array<Page, LOOKED_UP>;
// For each vector of the chunk: position, bias, and what its products are multiplied by.
var<workgroup> positions: array<u32, 8>;
var<workgroup> biases: array<f32, 8>;
var<workgroup> scales: array<f32, 8>;

#include "lib/reduce.wgsl"

// Two channels of a query vector, in the order of K's units, padding as 0.
fn query_pair(at: u32, unit: u32, which: u32, down: f32) -> vec2<f32> {
    let c = k_channels(unit, which);
    let x = vec2<f32>(q[at + min(c.x, K_DIM - 1u)], q[at + min(c.y, K_DIM - 1u)]);
    return select(vec2<f32>(0.0), x * down, c < vec2<u32>(K_DIM));
}

// Query vectors, positions and biases of a chunk; those past the item's end get row 0's and no result.
fn load_queries(item: Item, chunk: u32, count: u32, lid: u32) {
    for (var i = lid; i < K_UNITS * K_STEPS * CHUNK; i += WORKGROUP) {
        let v = chunk + i % CHUNK;
        let step = i / CHUNK;
        let unit = step / K_STEPS;
#if HALF
        let first = step % K_STEPS * 4u;
        var value = vec4<u32>(0u);
#else
        let first = step % K_STEPS * 2u;
        var value = vec4<f32>(0.0);
#endif
        if (v < count) {
            let head = item.kv_head * GROUP + v % GROUP;
            let at = ((item.row_start + v / GROUP) * Q_HEADS + head) * (K_DIM + 4u);
#if HALF
            let down = q[at + K_DIM + 1u];
#for i < 4
            value[#{i}] = pack2x16float(query_pair(at, unit, first + #{i}u, down));
#endfor
#else
            value = vec4<f32>(query_pair(at, unit, first, 1.0), query_pair(at, unit, first + 1u, 1.0));
#endif
        }
        queries[i] = value;
    }
    if (lid < 8u) {
        let v = chunk + lid;
        var position = row_position(item.row_start);
        var bias = 0.0;
        var scale = 1.0;
        if (lid < CHUNK && v < count) {
            let row = item.row_start + v / GROUP;
            position = row_position(row);
            let at = (row * Q_HEADS + item.kv_head * GROUP + v % GROUP) * (K_DIM + 4u) + K_DIM;
            bias = q[at];
#if HALF
            scale = q[at + 2u];
#endif
        }
        positions[lid] = position;
        biases[lid] = bias;
        scales[lid] = scale;
    }
}

// The block's token number `t` of this thread; the two of a unit of K are neighbours in `t`.
fn own_token(lid: u32, t: u32) -> u32 {
#if K_UNIT_TOKENS == 2
    let i = t / 2u * WORKGROUP + lid;
    return i / 8u * 16u + i % 8u + t % 2u * 8u;
#else
    return t * WORKGROUP + lid;
#endif
}

#if V_HALF
#if TWINS > 0
// Where the weights of the block's token `t` begin, those of its twin beside them; which of both it is.
fn half_at(t: u32) -> u32 {
    return ((t & (TWINS - 1u)) | ((t >> 1u) & ~(TWINS - 1u))) * QUADS * 2u;
}

fn set_half(t: u32, v: u32, weight: f32) {
    halves[half_at(t) + v / 2u][v % 2u * 2u + t / TWINS % 2u] = f16(weight);
}

fn half_of(t: u32, v: u32) -> f32 {
    return f32(halves[half_at(t) + v / 2u][v % 2u * 2u + t / TWINS % 2u]);
}
#else
fn half_of(t: u32, v: u32) -> f32 {
    return f32(halves[t * QUADS + v / 4u][v % 4u]);
}
#endif
#endif

// Finished logits of one token for 4 vectors: scaled, biased, capped; EMPTY where not visible.
fn finish(sum: vec4<f32>, scale: vec4<f32>, bias: vec4<f32>, seen: vec4<bool>) -> vec4<f32> {
    return select(vec4<f32>(EMPTY), cap4(sum * scale + bias), seen);
}

// Adds the slices' outputs of one vector and writes them. All threads call it, in uniform control flow.
fn write_output(state: u32, quad: u32, value: vec4<f32>, lid: u32) {
    workgroupBarrier();
    weights[lid] = value;
    workgroupBarrier();
    if (lid < V_COLUMNS) {
        var sum = weights[lid];
        for (var i = 1u; i < SLICES; i++) {
            sum += weights[i * V_COLUMNS + lid];
        }
        partials[state * STRIDE4 + 1u + lid * V_QUADS + quad] = sum;
    }
}

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
#if SUBGROUP == 1
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
#endif
) {
    let group = group_index(id, groups);
    if (group >= params.groups) {
        return;
    }
#if SUBGROUP == 1
    let team = Team(lid, lane, subgroup, subgroups);
#else
    let team = team_of(lid);
#endif
    let item = load_item(group);
    let count = item.rows * GROUP;
    let blocks = (item.ids_count * PAGE_TOKENS + BLOCK - 1u) / BLOCK;
    let column = lid % V_COLUMNS;
    let slice = lid / V_COLUMNS;
    k_prepare(lid);
    v_prepare(lid);

    for (var chunk = 0u; chunk < count; chunk += CHUNK) {
        workgroupBarrier();
        load_queries(item, chunk, count, lid);
        workgroupBarrier();
        var last_query = 0u;
        var first_query = 0xffffffffu;
        // The softmax so far: maxima are the same in all threads, sums are of the thread's tokens.
#for w < QUADS
        let query_#{w} = vec4<u32>(positions[#{4*w}], positions[#{4*w+1}], positions[#{4*w+2}], positions[#{4*w+3}]);
        let bias_#{w} = vec4<f32>(biases[#{4*w}], biases[#{4*w+1}], biases[#{4*w+2}], biases[#{4*w+3}]);
        let scale_#{w} = k_factor * vec4<f32>(scales[#{4*w}], scales[#{4*w+1}], scales[#{4*w+2}], scales[#{4*w+3}]);
        last_query = max(last_query, max(max(query_#{w}.x, query_#{w}.y), max(query_#{w}.z, query_#{w}.w)));
        first_query = min(first_query, min(min(query_#{w}.x, query_#{w}.y), min(query_#{w}.z, query_#{w}.w)));
        var m_#{w} = vec4<f32>(EMPTY);
        var l_#{w} = vec4<f32>(0.0);
#endfor
#for v < CHUNK
#for h < V_QUADS
        var o_#{v}_#{h} = vec4<f32>(0.0);
#endfor
#endfor

        for (var block = 0u; block < blocks; block++) {
            let start = block * BLOCK;
            let first_page = start / PAGE_TOKENS % LOOKED_UP;
            if (start % (LOOKED_UP * PAGE_TOKENS) == 0u) {
                workgroupBarrier();
                for (var i = lid; i < LOOKED_UP; i += WORKGROUP) {
                    pages[i] = load_page(item, start / PAGE_TOKENS + i);
                }
                workgroupBarrier();
            }
#if SUBGROUP != 1
            // Maxima go through the memory of the weights.
            workgroupBarrier();
#endif

            // Logits of this thread's tokens.
            var live = false;
#for t < TPT
            let index_#{t} = own_token(lid, #{t}u);
            let page_#{t} = pages[first_page + index_#{t} / RUN];
            let token_#{t} = (start + index_#{t}) % PAGE_TOKENS;
            let live_#{t} = token_#{t} < page_#{t}.valid;
            live = live || live_#{t};
#if t%K_UNIT_TOKENS == 0
#if IN_PARTS
            k_part1 = page_#{t}.k_part1;
#endif
            let at_#{t} = k_at(page_#{t}.k_base, token_#{t});
#endif
            // Asked for early: their latency passes with that of the codes.
            let k_scale_#{t} = k_scale(page_#{t}.k_base, token_#{t});
#if V_HALF
            let v_scale_#{t} = v_scale(page_#{t}.v_base, token_#{t});
#else
            let v_scale_#{t} = v_factor * v_scale(page_#{t}.v_base, token_#{t});
#endif
#for w < QUADS
            let seen_#{t}_#{w} = visible4(page_#{t}.first + token_#{t}, query_#{w}) & vec4<bool>(live_#{t});
            var s_#{t}_#{w} = vec4<f32>(EMPTY);
#endfor
#endfor
#if V_HALF
            // The greatest scale of V: weights relative to it stay within f16. A NaN is its own token's matter. No branch:
            // what comes before a subgroup's operation must not part its threads.
            var most = 0.0;
#for t < TPT
            {
                let finite = (bitcast<u32>(v_scale_#{t}) & 0x7fffffffu) < 0x7f800000u;
                var some = seen_#{t}_0;
#for w < QUADS
                some |= seen_#{t}_#{w};
#endfor
                most = max(most, select(0.0, abs(v_scale_#{t}), any(some) & finite));
            }
#endfor
#endif
            if (live) {
#for t < TPT
#for v < CHUNK
#if SUMS_IN_F32
                var sum_#{t}_#{v} = 0.0;
#else
                var sum_#{t}_#{v} = pair(0.0);
#endif
#endfor
#endfor
                for (var unit = 0u; unit < K_UNITS; unit += K_FLIGHT) {
                    // Several loads are under way at a time: one after another, their latency would be all there is.
#for f < K_FLIGHT
#for s < K_FETCHES
                    let k_#{f}_#{s} = k_fetch(at_#{s*K_UNIT_TOKENS}, unit + #{f}u);
#endfor
#endfor
#if K_LONG
#for t < TPT
#for v < CHUNK
                    var part_#{t}_#{v} = pair(0.0);
#endfor
#endfor
#endif
#for f < K_FLIGHT
#for part < K_PARTS
                    {
#if SUMS_IN_F32
#if !K_LONG
#for t < TPT
#for v < CHUNK
                    var part_#{t}_#{v} = pair(0.0);
#endfor
#endfor
#endif
#endif
#for p < K_PART_STEPS
                    {
#for v < CHUNK
                        let query_#{v} = queries[((unit + #{f}u) * K_STEPS + #{part*K_PART_STEPS+p}u) * CHUNK + #{v}u];
#if HALF
#for i < 4
                        let query_#{v}_#{i} = pair(unpack2x16float(query_#{v}[#{i}]));
#endfor
#else
                        let query_#{v}_0 = query_#{v}.xy;
                        let query_#{v}_1 = query_#{v}.zw;
#endif
#endfor
#for t < TPT
#for i < K_STEP_PAIRS
                        {
                            let x = k_pair(k_#{f}_#{t/K_UNIT_TOKENS}, #{t%K_UNIT_TOKENS}u, #{part*K_PART_STEPS*K_STEP_PAIRS+p*K_STEP_PAIRS+i}u);
#for v < CHUNK
#if SUMS_IN_F32
                            part_#{t}_#{v} = fma(query_#{v}_#{i}, x, part_#{t}_#{v});
#else
                            sum_#{t}_#{v} = fma(query_#{v}_#{i}, x, sum_#{t}_#{v});
#endif
#endfor
                        }
#endfor
#endfor
                    }
#endfor
#if SUMS_IN_F32
#if !K_LONG
#for t < TPT
#if K_SCALED
                    let unit_scale_#{t} = k_unit_scale(k_#{f}_#{t/K_UNIT_TOKENS});
#endif
#for v < CHUNK
#if K_SCALED
                    sum_#{t}_#{v} += unit_scale_#{t} * (f32(part_#{t}_#{v}.x) + f32(part_#{t}_#{v}.y));
#else
                    sum_#{t}_#{v} += f32(part_#{t}_#{v}.x) + f32(part_#{t}_#{v}.y);
#endif
#endfor
#endfor
#endif
#endif
                    }
#endfor
#endfor
#if K_LONG
#for t < TPT
#for v < CHUNK
                    sum_#{t}_#{v} += f32(part_#{t}_#{v}.x) + f32(part_#{t}_#{v}.y);
#endfor
#endfor
#endif
                }
#for t < TPT
#for v < CHUNK
#if SUMS_IN_F32
                s_#{t}_#{v/4}[#{v%4}] = sum_#{t}_#{v};
#else
                s_#{t}_#{v/4}[#{v%4}] = sum_#{t}_#{v}.x + sum_#{t}_#{v}.y;
#endif
#endfor
#for w < QUADS
                s_#{t}_#{w} = finish(s_#{t}_#{w}, k_scale_#{t} * scale_#{w}, bias_#{w}, seen_#{t}_#{w});
#endfor
#endfor
            }

            // The block's maxima.
#for w < QUADS
            var top_#{w} = s_0_#{w};
#for t < TPT
            top_#{w} = max(top_#{w}, s_#{t}_#{w});
#endfor
            set_maximum(team, #{w}u, top_#{w});
#endfor
#if V_HALF
            set_most(team, most);
#endif
            workgroupBarrier();
            gather_maxima(team);
#for w < QUADS
            let next_#{w} = max(m_#{w}, maximum(team, #{w}u));
            let shrink_#{w} = exp(m_#{w} - next_#{w});
            m_#{w} = next_#{w};
            l_#{w} *= shrink_#{w};
#endfor
#for v < CHUNK
#for h < V_QUADS
            o_#{v}_#{h} *= shrink_#{v/4}[#{v%4}];
#endfor
#endfor

#if V_HALF
            // Powers of two that bring the scales below 32, and back.
            let exponent = clamp(bitcast<u32>(most_of(team)) >> 23u, 8u, 247u);
            let down = bitcast<f32>((258u - exponent) << 23u);
            let up = bitcast<f32>((exponent - 4u) << 23u);
#endif

            // Probabilities, and weights of V: nothing of an unseen token enters.
#for t < TPT
            {
#for w < QUADS
                let p_#{w} = select(vec4<f32>(0.0), exp(s_#{t}_#{w} - m_#{w}), seen_#{t}_#{w});
                l_#{w} += p_#{w};
#if V_HALF
                let weight_#{w} = select(vec4<f32>(0.0), p_#{w} * (v_scale_#{t} * down), seen_#{t}_#{w});
#if TWINS == 0
                halves[index_#{t} * QUADS + #{w}u] = vec4<f16>(weight_#{w});
#endif
#else
                weights[index_#{t} * QUADS + #{w}u] = select(vec4<f32>(0.0), p_#{w} * v_scale_#{t}, seen_#{t}_#{w});
#endif
#endfor
#if TWINS > 0
#if V_HALF
#for v < CHUNK
                set_half(index_#{t}, #{v}u, weight_#{v/4}[#{v%4}]);
#endfor
#endif
#endif
            }
#endfor
            workgroupBarrier();

#if V_HALF
#for v < CHUNK
#for i < V_HALVES
            var half_#{v}_#{i} = vec2<f16>(0.0h);
#endfor
#endfor
#endif
            // Values of this thread's channels and slice, page by page.
            if (slice < SLICES) {
                let c4 = column * V_QUADS;
                let token0 = start % PAGE_TOKENS;
                for (var p = 0u; p < PAGES; p++) {
                    let page = pages[first_page + p];
#if IN_PARTS
                    v_part1 = page.v_part1;
#endif
                    let here = min(max(page.valid, token0) - token0, RUN);
                    let low = page.first + token0;
#if V_UNIT_TOKENS == 1
                    let whole = here > 0u;
                    let units = here;
#else
                    let whole = here == RUN;
                    let units = RUN_UNITS;
#endif
#if WINDOW
                    let all_seen = whole && low + here - 1u <= first_query && low + params.window > last_query;
#else
                    let all_seen = whole && low + here - 1u <= first_query;
#endif
                    if (all_seen) {
                        let unit0 = token0 / V_UNIT_TOKENS;
                        let column_at = v_at(page.v_base, c4);
                        var unit = slice;
                        // First V_FLIGHT units at a time, then one.
#for turn < V_TURNS
                        for (; unit + #{V_FLIGHT-turn*V_FLIGHT+turn-1}u * SLICES < units; unit += #{V_FLIGHT-turn*V_FLIGHT+turn}u * SLICES) {
#for f < V_FLIGHT-turn*V_FLIGHT+turn
                            let v_#{f} = v_fetch(column_at, unit0 + unit + #{f}u * SLICES);
#endfor
#for f < V_FLIGHT-turn*V_FLIGHT+turn
                            {
#if V_HALF
#if TWINS > 0
                                let first = half_at(p * RUN + v_token(unit0 + unit + #{f}u * SLICES, 0u) - token0);
#for k < V_UNIT_TOKENS/2
                                {
                                    let twins = v_twins(v_#{f}, #{k}u);
                                    let at = first + half_at(v_token(0u, #{2*k}u) - v_token(0u, 0u));
#for v < CHUNK
#if v%2 == 0
                                    let weight_#{v/2} = halves[at + #{v/2}u];
#endif
#for i < 4
#if v%2 == 0
                                    half_#{v}_#{i} = fma(weight_#{v/2}.xy, twins.c#{i}, half_#{v}_#{i});
#else
                                    half_#{v}_#{i} = fma(weight_#{v/2}.zw, twins.c#{i}, half_#{v}_#{i});
#endif
#endfor
#endfor
                                }
#endfor
#else
                                let first = (p * RUN + v_token(unit0 + unit + #{f}u * SLICES, 0u) - token0) * QUADS;
#for k < V_UNIT_TOKENS
                                {
                                    let at = first + (v_token(0u, #{k}u) - v_token(0u, 0u)) * QUADS;
#for w < QUADS
                                    let weight_#{w} = halves[at + #{w}u];
#endfor
#for h < V_QUADS
                                    {
                                        let value = v_halves(v_#{f}, #{k}u, #{h}u);
#for v < CHUNK
                                        half_#{v}_#{2*h} = fma(vec2<f16>(weight_#{v/4}[#{v%4}]), value.even, half_#{v}_#{2*h});
                                        half_#{v}_#{2*h+1} = fma(vec2<f16>(weight_#{v/4}[#{v%4}]), value.odd, half_#{v}_#{2*h+1});
#endfor
                                    }
#endfor
                                }
#endfor
#endif
#else
                                let first = (p * RUN + v_token(unit0 + unit + #{f}u * SLICES, 0u) - token0) * QUADS;
#for k < V_UNIT_TOKENS/V_STEP
                                {
#if V_STEP == 2
                                let twins = v_twins(v_#{f}, #{k}u);
                                let value_0_0 = vec4<f32>(vec4<stored>(twins.c0.x, twins.c1.x, twins.c2.x, twins.c3.x));
                                let value_1_0 = vec4<f32>(vec4<stored>(twins.c0.y, twins.c1.y, twins.c2.y, twins.c3.y));
#else
#for h < V_QUADS
                                let value_0_#{h} = v_quad(v_#{f}, #{k}u, #{h}u);
#endfor
#endif
#for j < V_STEP
                                let at_#{j} = first + (v_token(0u, #{k*V_STEP+j}u) - v_token(0u, 0u)) * QUADS;
#for w < QUADS
                                let weight_#{j}_#{w} = weights[at_#{j} + #{w}u];
#endfor
#for h < V_QUADS
#for v < CHUNK
                                o_#{v}_#{h} = fma(vec4<f32>(weight_#{j}_#{v/4}[#{v%4}]), value_#{j}_#{h}, o_#{v}_#{h});
#endfor
#endfor
#endfor
                                }
#endfor
#endif
                            }
#endfor
                        }
#endfor
                    } else {
                        // Some vector does not see some token: its value is dropped, not multiplied by 0.
                        for (var t = slice; t < here; t += SLICES) {
#if !V_HALF
                            let at = (p * RUN + t) * QUADS;
#endif
#for w < QUADS
                            let seen_#{w} = visible4(low + t, query_#{w});
#if V_HALF
                            var weight_#{w} = vec4<f32>(0.0);
#else
                            let weight_#{w} = weights[at + #{w}u] / v_factor;
#endif
#endfor
#if V_HALF
#for v < CHUNK
                            weight_#{v/4}[#{v%4}] = half_of(p * RUN + t, #{v}u) * up;
#endfor
#endif
#for h < V_QUADS
                            let value_#{h} = v_load4(page.v_base, token0 + t, c4 + #{h}u);
#for v < CHUNK
                            o_#{v}_#{h} += weight_#{v/4}[#{v%4}] * select(vec4<f32>(0.0), value_#{h}, seen_#{v/4}[#{v%4}]);
#endfor
#endfor
                        }
                    }
                }
            }
#if V_HALF
            let own = v_factor * up;
#for v < CHUNK
#if TWINS > 0
            o_#{v}_0 = fma(vec4<f32>(own), vec4<f32>(vec4<f16>(half_#{v}_0.x, half_#{v}_1.x, half_#{v}_2.x, half_#{v}_3.x))
                + vec4<f32>(vec4<f16>(half_#{v}_0.y, half_#{v}_1.y, half_#{v}_2.y, half_#{v}_3.y)), o_#{v}_0);
#else
#for h < V_QUADS
            o_#{v}_#{h} = fma(vec4<f32>(own), vec4<f32>(vec4<f16>(half_#{v}_#{2*h}.x, half_#{v}_#{2*h+1}.x,
                half_#{v}_#{2*h}.y, half_#{v}_#{2*h+1}.y)), o_#{v}_#{h});
#endfor
#endif
#endfor
#endif
        }

        let state = item.partial_start + chunk;
        let alive = count - chunk;
#for w < QUADS
        let total_#{w} = team_sum(team, l_#{w});
#endfor
        if (lid == 0u) {
#for v < CHUNK
            if (alive > #{v}u) {
                partials[(state + #{v}u) * STRIDE4] = vec4<f32>(m_#{v/4}[#{v%4}], total_#{v/4}[#{v%4}], 0.0, 0.0);
            }
#endfor
        }
        var outputs: array<vec4<f32>, CHUNK * V_QUADS>;
#for v < CHUNK
#for h < V_QUADS
        outputs[#{v*V_QUADS+h}u] = o_#{v}_#{h};
#endfor
#endfor
        for (var i = 0u; i < min(CHUNK, alive) * V_QUADS; i++) {
            write_output(state + i / V_QUADS, i % V_QUADS, outputs[i], lid);
        }
    }
}
