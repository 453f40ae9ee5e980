// Many rows: a block makes OUT_TILE outputs of ROW_TILE rows. Weights come as they are stored, STAGE blocks of columns at a
// time; a warp reads fragments out of them for its own outputs. Activations are rounded once a block, 32 columns ahead.

constexpr unsigned WARPS = WORKGROUP / 32;
constexpr unsigned WARPS_OUT = WARPS / WARPS_ROWS;
constexpr unsigned OUT_TILES = OUT_TILE / 16 / WARPS_OUT, ROW_TILES = ROW_TILE / 8 / WARPS_ROWS;
// Fragments of activations that a thread makes of a block.
constexpr unsigned SLOTS = ROW_TILE * 4 / WORKGROUP;
constexpr unsigned X_FRAGMENTS = ROW_TILE / 8 * X_PARTS * 32;
constexpr unsigned STAGE_BYTES = OUT_TILE * PITCH;
static_assert(ROW_TILES % AT_ONCE == 0 && Weight::PARTS == 1, "whole turns, weights of one part");
static_assert(SLOTS * WORKGROUP == ROW_TILE * 4 && STAGE % 2 == 0 && SPLIT == 1, "whole shares");
static_assert(32 * X_FRAGMENTS + 8 * ROW_TILE + DEPTH * STAGE_BYTES <= SHARED_BYTES, "it fits");

struct Many {
    const float4 *rows[SLOTS];
    uint4 *fragments_at;
    float *sums_at;
    float own[SLOTS][8];
    float sum[OUT_TILES][ROW_TILES][4];

    __device__ __forceinline__ void load(unsigned block) {
#pragma unroll
        for (unsigned i = 0; i < SLOTS; ++i) activations(rows[i], block, threadIdx.x % 4, own[i]);
    }

    __device__ __forceinline__ void share(unsigned buffer) {
#pragma unroll
        for (unsigned i = 0; i < SLOTS; ++i) {
            const unsigned slot = threadIdx.x + i * WORKGROUP, group = slot / 32;
            uint4 whole, rest;
            fragments(own[i], whole, rest);
            uint4 *to = fragments_at + buffer * X_FRAGMENTS + group * X_PARTS * 32 + slot % 32;
            to[0] = whole;
            if constexpr (X_PARTS == 2) to[32] = rest;
            if constexpr (Weight::OFFSET) {
                const float total = block_sum(own[i]);
                if (slot % 4 == 0) sums_at[buffer * ROW_TILE + slot / 4] = total;
            }
        }
    }

    __device__ __forceinline__ void multiply_block(const unsigned char *stage, unsigned out, unsigned outs, unsigned begin,
                                                   unsigned i, bool even, unsigned buffer, unsigned warp) {
        const unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        const unsigned out_at = warp / WARPS_ROWS * OUT_TILES * 16, row_at = warp % WARPS_ROWS * ROW_TILES;
        WeightLane lanes[OUT_TILES][2];
#pragma unroll
        for (unsigned tile = 0; tile < OUT_TILES; ++tile) {
#pragma unroll
            for (unsigned half = 0; half < 2; ++half) {
                const unsigned own_out = out_at + 16 * tile + 8 * half + g;
                const unsigned shift = shift_of(min(out + own_out, outs - 1), begin);
                Weight::read(stage + own_out * PITCH + shift + i * Weight::BYTES, t, WORDED, even, lanes[tile][half]);
            }
        }
        const uint4 *x = fragments_at + buffer * X_FRAGMENTS + row_at * X_PARTS * 32 + lane;
        // A product waits for the one before it in its sum: sums of AT_ONCE row groups and all output tiles take turns.
#pragma unroll
        for (unsigned base = 0; base < ROW_TILES; base += AT_ONCE) {
            uint4 b[X_PARTS][AT_ONCE];
#pragma unroll
            for (unsigned i = 0; i < AT_ONCE * X_PARTS; ++i) b[i % X_PARTS][i / X_PARTS] = x[(base * X_PARTS + i) * 32];
            float c[2][AT_ONCE][OUT_TILES][4];
#pragma unroll
            for (unsigned step = 0; step < 2 * X_PARTS; ++step) {
                const unsigned k = step / X_PARTS, part = step % X_PARTS;
#pragma unroll
                for (unsigned group = 0; group < AT_ONCE; ++group) {
                    const uint4 own = b[part][group];
                    const unsigned b0 = k ? own.z : own.x, b1 = k ? own.w : own.y;
#pragma unroll
                    for (unsigned tile = 0; tile < OUT_TILES; ++tile) {
                        const unsigned(&low)[4] = lanes[tile][0].a, (&high)[4] = lanes[tile][1].a;
                        float(&to)[4] = c[Weight::SCALES == 2 ? k : 0][group][tile];
                        const bool begins = Weight::SCALES == 2 ? part == 0 : step == 0;
                        if (begins) {
                            Product::begin(to, low[2 * k], high[2 * k], low[2 * k + 1], high[2 * k + 1], b0, b1);
                        } else {
                            Product::add(to, low[2 * k], high[2 * k], low[2 * k + 1], high[2 * k + 1], b0, b1);
                        }
                    }
                }
            }
#pragma unroll
            for (unsigned group = 0; group < AT_ONCE; ++group) {
                float2 total = make_float2(0.0f, 0.0f);
                if constexpr (Weight::OFFSET) {
                    total = *(const float2 *)(sums_at + buffer * ROW_TILE + 8 * (row_at + base + group) + 2 * t);
                }
#pragma unroll
                for (unsigned tile = 0; tile < OUT_TILES; ++tile) {
#pragma unroll
                    for (unsigned j = 0; j < 4; ++j) {
                        float &to = sum[tile][base + group][j];
                        const float second = Weight::SCALES == 2 ? c[1][group][tile][j] : 0.0f;
                        to = scaled(to, c[0][group][tile][j], second, lanes[tile][j / 2]);
                        if constexpr (Weight::OFFSET) to = fmaf(lanes[tile][j / 2].offset, j % 2 ? total.y : total.x, to);
                    }
                }
            }
        }
    }
};

KV_FN void linear_rows(const float4 *x, const unsigned char *w, float *y, const Params &params, uint4 *room) {
    const unsigned row_tiles = (params.rows + ROW_TILE - 1) / ROW_TILE, warp = threadIdx.x / 32;
    // Tiles of the same weights run side by side.
    const unsigned row = blockIdx.x % row_tiles * ROW_TILE, out = blockIdx.x / row_tiles * OUT_TILE;
    unsigned char *stages = (unsigned char *)(room + 2 * X_FRAGMENTS);
    Many many = {};
    many.fragments_at = room;
    many.sums_at = (float *)(stages + DEPTH * STAGE_BYTES);
    Lines<OUT_TILE, WORKGROUP> lines;
    lines.prepare(threadIdx.x);
    const auto ask = [&](unsigned nth) {
        const unsigned block = nth * STAGE;
        if (block < BLOCKS) lines.ask(stages + nth % DEPTH * STAGE_BYTES, w, out, params.outs, block, threadIdx.x);
        copies_asked();
    };
    // Weights never change: these may come before the kernel ahead has ended.
#pragma unroll
    for (unsigned nth = 0; nth < DEPTH; ++nth) ask(nth);
    const unsigned start = kv_wait_for_others();
    kv_let_others_begin();
    y += start;
#pragma unroll
    for (unsigned i = 0; i < SLOTS; ++i) many.rows[i] = row_of(x + start, params, row + (threadIdx.x + i * WORKGROUP) / 4);
    many.load(0);
    many.share(0);
    copies_came<DEPTH - 1>();
    __syncthreads();
    for (unsigned nth = 0; nth * STAGE < BLOCKS; ++nth) {
        const unsigned char *stage = stages + nth % DEPTH * STAGE_BYTES;
#pragma unroll 1
        for (unsigned pair = 0; pair < STAGE; pair += 2) {
#pragma unroll
            for (unsigned odd = 0; odd < 2; ++odd) {
                const unsigned block = nth * STAGE + pair + odd;
                if (block >= BLOCKS) break;
                const bool more = block + 1 < BLOCKS, last = pair + 2 >= STAGE && odd == 1;
                if (more) many.load(block + 1);
                many.multiply_block(stage, out, params.outs, nth * STAGE, pair + odd, odd == 0, odd, warp);
                if (more) many.share(1 - odd);
                if (last) copies_came<DEPTH - 2>();
                __syncthreads();
            }
        }
        ask(nth + DEPTH);
    }

    const unsigned lane = threadIdx.x % 32;
    const unsigned first_out = out + warp / WARPS_ROWS * OUT_TILES * 16 + lane / 4;
    const unsigned first_row = row + warp % WARPS_ROWS * ROW_TILES * 8 + lane % 4 * 2;
#pragma unroll
    for (unsigned tile = 0; tile < OUT_TILES; ++tile) {
#pragma unroll
        for (unsigned group = 0; group < ROW_TILES; ++group) {
#pragma unroll
            for (unsigned j = 0; j < 4; ++j) {
                const unsigned to_out = first_out + 16 * tile + j / 2 * 8, to_row = first_row + 8 * group + j % 2;
                if (to_out < params.outs && to_row < params.rows) {
                    float &to = y[params.y_offset + (size_t)to_row * params.y_stride + to_out];
                    const float total = many.sum[tile][group][j] * Product::GROW;
                    to = ACCUMULATE ? to + total : total;
                }
            }
        }
    }
    copies_came<0>();
}
