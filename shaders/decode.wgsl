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

#include "decode/vectors.wgsl"

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

#include "decode/logits.wgsl"

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

#include "decode/values.wgsl"
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
