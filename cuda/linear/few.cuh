// Few rows: weights stream past once. A block's warps share a tile of outputs: SPLIT of them take a stretch of RANGE blocks
// of the columns each, in stages of STAGE blocks that are asked for DEPTH ahead; their sums meet in shared memory. Blocks
// stay for several tiles. A column of B is one part of a row: even ones what 16 bits hold of it, odd ones the rest.

constexpr unsigned WARPS = WORKGROUP / 32;
// Outputs of a warp, and of a block.
constexpr unsigned OWN = 16 * WARP_TILES;
constexpr unsigned OUTS = WARPS / SPLIT * OWN;
constexpr unsigned ROW_GROUPS = (ROW_TILE + 3) / 4;
constexpr unsigned X_LANES = ROW_TILE == 1 ? 8 : 32;
constexpr unsigned STAGES = (RANGE + STAGE - 1) / STAGE;

constexpr unsigned X_WORDS = X_SHARED ? BLOCKS * ROW_GROUPS * X_LANES * 4 : 0;
constexpr unsigned SUM_WORDS = X_SHARED && Weight::OFFSET ? (BLOCKS * ROW_GROUPS * 4 + 3) / 4 * 4 : 0;
constexpr unsigned PARTIALS = WARPS * ROW_TILE * OWN;
constexpr unsigned STAGE_BYTES = OWN * PITCH;
// One row's blocks by twos: sums of the first of two are lane t = 0's of a quad, those of the other t = 3's, which have the
// scales out of words that they load anyway. Loads from shared memory are what bounds codes of 4 bits.
constexpr bool PAIRED = ROW_TILE == 1 && X_SHARED && WORDED && (WEIGHT == 2 || WEIGHT == 8) && STAGE % 2 == 0 && RANGE % 2 == 0
                        && BLOCKS % 2 == 0;
static_assert(WARPS % SPLIT == 0 && SPLIT * RANGE >= BLOCKS, "stretches cover the columns");
static_assert(4 * (X_WORDS + SUM_WORDS + 2 * PARTIALS) + WARPS * DEPTH * STAGE_BYTES <= SHARED_BYTES, "it fits");

struct Few {
    const float4 *x;
    const unsigned char *w;
    float *y;
    const Params &params;
    unsigned lane, warp, g, t, first;
    uint4 *fragments_at;
    float *sums_at, *partials;
    unsigned char *stages;
    Lines<OWN, 32> lines;
    float sum[WARP_TILES][ROW_GROUPS][2];

    __device__ __forceinline__ unsigned out_of(unsigned nth) const {
        return (blockIdx.x + nth * gridDim.x) * OUTS + warp / SPLIT * OWN;
    }

    // The fragment of row group `group` for this lane, and the sum of its row's activations.
    __device__ __forceinline__ uint4 convert(unsigned row, unsigned group, unsigned block, float &total) const {
        float own[8];
        activations(row_of(x, params, row + 4 * group + g / 2), block, t, own);
        if constexpr (Weight::OFFSET) total = block_sum(own);
        uint4 whole, rest;
        fragments(own, whole, rest);
        return g % 2 ? rest : whole;
    }

    // All rows' fragments to shared memory, once for all tiles. A thread makes both parts of four lanes' activations at a
    // time, and asks for all of them first.
    __device__ __forceinline__ void share(unsigned row) {
        constexpr unsigned ROWS = X_LANES / 8, ALL = BLOCKS * ROW_GROUPS * ROWS * 4, AT_ONCE = 4;
        for (unsigned base = 32 * warp; base < ALL; base += AT_ONCE * WORKGROUP) {
            float own[AT_ONCE][8];
#pragma unroll
            for (unsigned j = 0; j < AT_ONCE; ++j) {
                const unsigned i = min(base + j * WORKGROUP + lane, ALL - 1), group = i / (4 * ROWS) % ROW_GROUPS;
                const unsigned own_row = row + 4 * group + i / 4 % ROWS;
                activations(row_of(x, params, own_row), i / (4 * ROWS) / ROW_GROUPS, i % 4, own[j]);
            }
#pragma unroll
            for (unsigned j = 0; j < AT_ONCE; ++j) {
                const unsigned i = base + j * WORKGROUP + lane;
                float total = 0.0f;
                if constexpr (Weight::OFFSET) total = block_sum(own[j]);
                if (i >= ALL) continue;
                uint4 whole, rest;
                fragments(own[j], whole, rest);
                uint4 *to = fragments_at + i / (4 * ROWS) * X_LANES + i / 4 % ROWS * 8 + i % 4;
                to[0] = whole;
                to[4] = rest;
                if constexpr (Weight::OFFSET) {
                    if (i % 4 == 0) sums_at[i / (4 * ROWS) * 4 + i / 4 % ROWS] = total;
                }
            }
        }
        __syncthreads();
    }

    __device__ __forceinline__ void ask_stage(unsigned n, unsigned all) const {
        if (n < all) {
            const unsigned nth = n / STAGES, block = first + n % STAGES * STAGE;
            lines.ask(stages + n % DEPTH * STAGE_BYTES, w, out_of(nth), params.outs, block, lane);
        }
        copies_asked();
    }

    // A template for what only some types have.
    template <class W>
    __device__ __forceinline__ void consume_pairs(const unsigned char *const (&at)[WARP_TILES][2], unsigned begin) {
        const unsigned pairs = min(min(STAGE, first + RANGE - begin), BLOCKS - min(BLOCKS, begin)) / 2;
#pragma unroll
        for (unsigned i = 0; i < STAGE / 2; ++i) {
            if (!WHOLE && i >= pairs) break;
            uint4 even = make_uint4(0, 0, 0, 0), odd = even;
            const uint4 *own = fragments_at + (begin + 2 * i) * X_LANES;
            if (lane < 8) even = own[lane];
            if (lane >= 24) odd = own[lane - 16];
#pragma unroll
            for (unsigned tile = 0; tile < WARP_TILES; ++tile) {
                WeightLane lanes[2][2];
#pragma unroll
                for (unsigned half = 0; half < 2; ++half) {
                    W::read_pair(at[tile][half] + 2 * i * W::BYTES, t, lanes[0][half], lanes[1][half]);
                }
#pragma unroll
                for (unsigned which = 0; which < 2; ++which) {
                    float c[2][4];
                    multiply(c, lanes[which][0], lanes[which][1], which ? odd : even, true);
                    float(&to)[2] = sum[tile][0];
                    to[0] = fmaf(lanes[which][0].scale[0], c[0][0] + c[0][1], to[0]);
                    to[1] = fmaf(lanes[which][1].scale[0], c[0][2] + c[0][3], to[1]);
                }
            }
        }
    }

    __device__ __forceinline__ void consume(unsigned n, unsigned row) {
        const unsigned char *stage = stages + n % DEPTH * STAGE_BYTES;
        const unsigned begin = first + n % STAGES * STAGE, out = out_of(n / STAGES);
        const unsigned char *at[WARP_TILES][2];
#pragma unroll
        for (unsigned tile = 0; tile < WARP_TILES; ++tile) {
#pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                const unsigned own = 16 * tile + 8 * half + g;
                at[tile][half] = stage + own * PITCH + shift_of(min(out + own, params.outs - 1), begin);
            }
        }
        if constexpr (PAIRED) {
            consume_pairs<Weight>(at, begin);
            return;
        }
        const unsigned end = min(min(STAGE, first + RANGE - begin), BLOCKS - min(BLOCKS, begin));
#pragma unroll
        for (unsigned i = 0; i < STAGE; ++i) {
            if (!WHOLE && i >= end) break;
            const unsigned block = begin + i;
            WeightLane lanes[WARP_TILES][2];
#pragma unroll
            for (unsigned tile = 0; tile < WARP_TILES; ++tile) {
#pragma unroll
                for (unsigned half = 0; half < 2; ++half) {
                    Weight::read(at[tile][half] + i * Weight::BYTES, t, WORDED, i % 2 == 0, lanes[tile][half]);
                }
            }
#pragma unroll
            for (unsigned group = 0; group < ROW_GROUPS; ++group) {
                uint4 b = make_uint4(0, 0, 0, 0);
                float total = 0.0f;
                if constexpr (X_SHARED) {
                    const unsigned place = block * ROW_GROUPS + group;
                    if (X_LANES == 32 || lane < X_LANES) b = fragments_at[place * X_LANES + lane];
                    if constexpr (Weight::OFFSET) total = sums_at[place * 4 + (ROW_TILE == 1 ? 0 : t)];
                } else {
                    b = convert(row, group, block, total);
                    if constexpr (Weight::OFFSET) total = __shfl_sync(0xffffffffu, total, 8 * t);
                }
#pragma unroll
                for (unsigned tile = 0; tile < WARP_TILES; ++tile) {
                    float c[2][4];
                    multiply(c, lanes[tile][0], lanes[tile][1], b, true);
#pragma unroll
                    for (unsigned half = 0; half < 2; ++half) {
                        float &to = sum[tile][group][half];
                        const WeightLane &own = lanes[tile][half];
                        to = scaled(to, c[0][2 * half] + c[0][2 * half + 1], c[1][2 * half] + c[1][2 * half + 1], own);
                        if constexpr (Weight::OFFSET) to = fmaf(own.offset, total, to);
                    }
                }
            }
        }
    }

    // The warps' sums of a tile become outputs.
    __device__ __forceinline__ void finish(unsigned nth, unsigned row) {
        float *here = partials + nth % 2 * PARTIALS;
#pragma unroll
        for (unsigned tile = 0; tile < WARP_TILES; ++tile) {
#pragma unroll
            for (unsigned group = 0; group < ROW_GROUPS; ++group) {
#pragma unroll
                for (unsigned half = 0; half < 2; ++half) {
                    float &own = sum[tile][group][half];
                    if constexpr (PAIRED) own += __shfl_xor_sync(0xffffffffu, own, 3);
                    const unsigned own_row = 4 * group + t, out = 16 * tile + 8 * half + g;
                    if (own_row < ROW_TILE) here[(warp * ROW_TILE + own_row) * OWN + out] = own;
                    own = 0.0f;
                }
            }
        }
        __syncthreads();
        for (unsigned i = threadIdx.x; i < OUTS * ROW_TILE; i += WORKGROUP) {
            const unsigned own_row = i / OUTS, out = i % OUTS;
            const float *from = here + (out / OWN * SPLIT * ROW_TILE + own_row) * OWN + out % OWN;
            float total = 0.0f;
#pragma unroll
            for (unsigned split = 0; split < SPLIT; ++split) total += from[split * ROW_TILE * OWN];
            const unsigned to_row = row + own_row, to_out = (blockIdx.x + nth * gridDim.x) * OUTS + out;
            if (to_row < params.rows && to_out < params.outs) {
                float &to = y[params.y_offset + (size_t)to_row * params.y_stride + to_out];
                to = ACCUMULATE ? fmaf(total, Product::GROW, to) : total * Product::GROW;
            }
        }
    }

    __device__ __forceinline__ void run() {
        const unsigned tiles = (params.outs + OUTS - 1) / OUTS;
        const unsigned mine = tiles > blockIdx.x ? (tiles - blockIdx.x + gridDim.x - 1) / gridDim.x : 0u;
        const unsigned all = mine * STAGES;
        for (unsigned row = 0; row < params.rows; row += ROW_TILE) {
            // Weights never change: what is asked for here may come before the kernel ahead has ended. Activations and
            // outputs may not.
#pragma unroll
            for (unsigned n = 0; n < DEPTH; ++n) ask_stage(n, all);
            if (row == 0) {
                const unsigned start = kv_wait_for_others();
                kv_let_others_begin();
                x += start, y += start;
            }
            if constexpr (X_SHARED) {
                if (row > 0) __syncthreads();
                share(row);
            }
            for (unsigned n = 0; n < all; ++n) {
                copies_came<DEPTH - 1>();
                __syncwarp();
                consume(n, row);
                __syncwarp();
                ask_stage(n + DEPTH, all);
                if ((n + 1) % STAGES == 0) finish(n / STAGES, row);
            }
            // Sums of the next rows may not overtake what is read of these.
            if (row + ROW_TILE < params.rows) __syncthreads();
        }
    }
};

KV_FN void linear_rows(const float4 *x, const unsigned char *w, float *y, const Params &params, uint4 *room) {
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float *floats = (float *)room;
    Few few = {x, w, y, params, lane, warp, lane / 4, lane % 4, warp % SPLIT * RANGE,
               room, floats + X_WORDS, floats + X_WORDS + SUM_WORDS,
               (unsigned char *)(floats + X_WORDS + SUM_WORDS + 2 * PARTIALS) + warp * DEPTH * STAGE_BYTES, {}, {}};
    few.lines.prepare(lane);
    few.run();
}
