// Attention of a few query vectors over a list of pages, on tensor cores.
//
// A block takes an item. Each of its warps takes steps of STEP tokens by itself: products with keys, softmax, products
// with values, all in registers; tiles of pages go from memory straight to registers, as the formats lay them out.
// Nothing is shared but the queries, until the warps' states are added up at the end. Query vectors go four to a
// product; CHUNK of them share every load.
//
// The formats give KeyTiles and ValueTiles; tiles/half.cuh tells what these define.

// Adds the warps' states of four vectors and writes them.
KV_FN void write_states(Shared &shared, const Warp &warp, float4 *partials, unsigned n, unsigned first,
                        unsigned alive) {
    const unsigned lane = warp.lane, own = threadIdx.x / 32;
    float l = warp.l[n];
#pragma unroll
    for (unsigned other = 4; other < 32; other *= 2) l += __shfl_xor_sync(ALL, l, other);
    __syncthreads();
    if (lane < 4) shared.states[own][lane] = make_float2(warp.m[n], l);
#pragma unroll
    for (unsigned b = 0; b < 2 * V_BLOCKS; ++b) {
        shared.outputs[(own * V_BLOCKS * 2 + b) * 32 + lane] = warp.o[b / 2][b % 2][n];
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < V_DIM * 4; i += WORKGROUP) {
        const unsigned vector = i % 4, block = i / 64;
        if (vector >= alive) continue;
        float most = EMPTY, keys = 0.0f, sum = 0.0f;
#pragma unroll
        for (unsigned w = 0; w < WARPS; ++w) most = fmaxf(most, shared.states[w][vector].x);
#pragma unroll
        for (unsigned w = 0; w < WARPS; ++w) {
            const float2 state = shared.states[w][vector];
            const float weight = exp2_of(state.x - most);
            keys = fmaf(weight, state.y, keys);
            sum = fmaf(weight, shared.outputs[w * V_DIM * 4 + i], sum);
        }
        float *to = (float *)partials + (unsigned long long)(first + vector) * STRIDE;
        const unsigned group = block / ValueTiles::BLOCKS, in_group = block % ValueTiles::BLOCKS;
        to[4 + ValueTiles::channel(group, in_group, i / 32 % 2, i % 32 / 4)] = sum;
        if (i < 4) *(float4 *)to = make_float4(most == EMPTY ? EMPTY : most * LN_2, keys, 0.0f, 0.0f);
    }
}

extern "C" __global__ void __launch_bounds__(WORKGROUP, BLOCKS_AN_SM)
kvarto_kernel(const uint4 *__restrict__ k_slab, const uint4 *__restrict__ v_slab, const unsigned *__restrict__ descs,
              const unsigned *__restrict__ tables, const float *q, float4 *__restrict__ partials,
              const Params params) {
    __shared__ Shared shared;
    const unsigned lane = threadIdx.x % 32, own = threadIdx.x / 32;
    const unsigned *record = tables + params.items_at + 8 * blockIdx.x;
    const Item item = {__ldg(record), __ldg(record + 1), __ldg(record + 2),
                       __ldg(record + 3), __ldg(record + 4), __ldg(record + 5)};
    const unsigned count = item.rows * GROUP, units = item.ids_count * SUBS;

#pragma unroll 1
    for (unsigned chunk = 0; chunk < count; chunk += 4 * NT) {
        const unsigned own_page = page_of(tables, item, own + lane * WARPS);
        Step looked_up = look_up(descs, own_page, own + lane * WARPS);
        // Queries are what the kernel ahead writes; tables and pages are older.
        if (chunk == 0) {
            if (!params.beside) q += kv_wait_for_others();
            kv_let_others_begin();
        }
        Queries queries;
        queries.load(tables, q, params, item, chunk);
        queries.store(shared);
        Warp warp = {params, shared, lane};
        warp.begin();
        unsigned first_query = ALL, last_query = 0u;
#pragma unroll
        for (unsigned v = 0; v < 4 * NT; ++v) {
            first_query = min(first_query, shared.positions[v]);
            last_query = max(last_query, shared.positions[v]);
        }

#pragma unroll 1
        for (unsigned unit = own; unit < units; unit += 32 * WARPS) {
            if (unit != own) {
                const unsigned mine = unit + lane * WARPS;
                looked_up = look_up(descs, page_of(tables, item, mine), mine);
            }
            // Steps that all vectors see whole, and others of which something is seen: one a bit.
            const unsigned last_key = looked_up.first + min(looked_up.valid, STEP) - 1u;
            bool some = looked_up.valid > 0 && looked_up.first <= last_query;
            bool whole = looked_up.valid >= STEP && last_key <= first_query;
            if constexpr (WINDOW) {
                some = some && (last_key >= first_query || first_query - last_key < params.window);
                whole = whole && last_query - looked_up.first < params.window;
            }
            const unsigned masked_steps = __ballot_sync(ALL, some && !whole);
            unsigned steps = __ballot_sync(ALL, whole);

            KeyTiles keys;
            KeyTiles::Tile ahead[K_AHEAD + 1];
            Step step;
            const auto ask = [&]() {
                const bool more = steps != 0u;
                if (!ALWAYS_LOOK && !more) return;
                step = of_lane(looked_up, more ? __ffs(steps) - 1 : 0);
                steps &= steps - 1;
                // Or the keys of a page that is there are asked for in vain.
                if (!ALWAYS_ASK && !more) return;
                open(keys, k_slab, step.k_slot, K_WORDS, step.token, lane);
#pragma unroll
                for (unsigned i = 0; i < K_AHEAD; ++i) ahead[i] = keys.load(i);
            };
            unsigned left = __popc(steps);
            ask();
#pragma unroll 1
            for (; left > 0; --left) {
                ValueTiles values;
                open(values, v_slab, step.v_slot, V_WORDS, step.token, lane);
                Group groups[V_AHEAD + 1];
#pragma unroll
                for (unsigned i = 0; i < V_AHEAD; ++i) groups[i] = values.template load<TILES>(i);
                float s[TILES][NT][2], shrink[NT], top[NT];
                const unsigned all[NT] = {};
                warp.logits<K_AHEAD>(keys, ahead, s);
                warp.soften<false>(s, all, shrink, top);
                // The next step's keys come while this one's values are multiplied.
                ask();
                Weights weights;
                warp.weigh<false>(values, s, all, top, weights);
#pragma unroll
                for (unsigned i = 0; i < ValueTiles::GROUPS; ++i) {
                    const Group loaded = i < V_AHEAD ? groups[i < V_AHEAD ? i : 0] : values.template load<TILES>(i);
                    warp.add<false>(i, loaded, values, weights, Seen<TILES>{}, shrink, 0u, 0u);
                }
            }
            // Apart from the others, whose registers they would take.
#pragma unroll 1
            for (unsigned rest = masked_steps; rest != 0u; rest &= rest - 1) {
                const Step masked = of_lane(looked_up, __ffs(rest) - 1);
                ValueTiles values;
                open(keys, k_slab, masked.k_slot, K_WORDS, masked.token, lane);
                open(values, v_slab, masked.v_slot, V_WORDS, masked.token, lane);
                warp.take_masked(keys, values, masked, chunk, count);
            }
        }
#pragma unroll
        for (unsigned n = 0; n < NT; ++n) {
            const unsigned done = chunk + 4 * n;
            if (done < count) write_states(shared, warp, partials, n, item.partial_start + done, min(4u, count - done));
        }
        __syncthreads();
    }
    if (params.beside) kv_wait_for_others();
}
