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

    // The fragment of row group `group` for this lane, or for a lane that stands at `place` of those there are.
    __device__ __forceinline__ uint4 convert(unsigned row, unsigned group, unsigned block, unsigned place, float &sum) const {
        const unsigned column = place / 4;
        float own[8];
        activations(row_of(x, params, row + 4 * group + column / 2), block, place % 4, own);
        if constexpr (Weight::OFFSET) sum = block_sum(own);
        uint4 whole, rest;
        fragments(own, whole, rest);
        return column % 2 ? rest : whole;
    }

    // All rows' fragments to shared memory, once for all tiles.
    __device__ __forceinline__ void share(unsigned row) {
        constexpr unsigned ALL = BLOCKS * ROW_GROUPS * X_LANES;
        for (unsigned base = 32 * warp; base < ALL; base += WORKGROUP) {
            const unsigned i = base + lane, in = min(i, ALL - 1), place = in % X_LANES;
            const unsigned group = in / X_LANES % ROW_GROUPS, block = in / X_LANES / ROW_GROUPS;
            float sum;
            const uint4 fragment = convert(row, group, block, place, sum);
            if (i < ALL) fragments_at[i] = fragment;
            if constexpr (Weight::OFFSET) {
                if (i < ALL && place % 8 == 0) sums_at[(block * ROW_GROUPS + group) * 4 + place / 8] = sum;
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
                    b = convert(row, group, block, lane, total);
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
            // Weights never change: what is asked for here may come before the kernels ahead have ended. Activations and
            // outputs may not, and the wait for those kernels belongs behind this loop.
#pragma unroll
            for (unsigned n = 0; n < DEPTH; ++n) ask_stage(n, all);
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
