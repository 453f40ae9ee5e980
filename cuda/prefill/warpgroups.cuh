// Products of warpgroups by wgmma, on Hopper alone: a warpgroup has 64 vectors, whose queries it keeps in registers, and
// reads panels from shared memory as they are: matrices of 8 x 16 bytes without swizzle. The next step's logits are made
// and softened while this one's values are added.

static_assert(MATRICES == 1 && WARPS % 4 == 0, "a warpgroup has 64 vectors");
static_assert(K_STAGES == 2 && V_STAGES == 2, "panels in use and on their way");

KV_FN void order_registers() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
KV_FN void close_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// All products but the last COUNT closed groups are done.
template <unsigned COUNT>
KV_FN void await_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(COUNT) : "memory");
}

// What this thread wrote to shared memory is seen by products that begin behind a barrier.
KV_FN void show_panels() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A matrix in shared memory; distances of its cores of 8 x 16 bytes in units of 16 bytes.
KV_FN unsigned long long matrix_at(const uint4 *at, unsigned leading, unsigned stride) {
    return (shared_address(at) >> 4 & 0x3fffu) | (unsigned long long)leading << 16 | (unsigned long long)stride << 32;
}

#define KV_FOUR(x) "+f"((x)[0]), "+f"((x)[1]), "+f"((x)[2]), "+f"((x)[3])

// s (64 x 64) += a (64 x 16) b; with ADD false, s = a b. TRANSPOSED where b's rows are not what its units hold.
#define KV_MULTIPLY64(NAME, TYPE, TRANSPOSED)                                                                             \
    template <bool ADD>                                                                                                   \
    KV_FN void NAME(float (*s)[4], const unsigned (&a)[4], unsigned long long b) {                                        \
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %37, 0;\n\t"                                                   \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                                          \
                     " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "  \
                     "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, p, 1, 1, "       \
                     TRANSPOSED ";\n\t}"                                                                                  \
                     : KV_FOUR(s[0]), KV_FOUR(s[1]), KV_FOUR(s[2]), KV_FOUR(s[3]), KV_FOUR(s[4]), KV_FOUR(s[5]),          \
                       KV_FOUR(s[6]), KV_FOUR(s[7])                                                                       \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(ADD));                                     \
    }

KV_MULTIPLY64(multiply_keys_f16, "f16", "0")
KV_MULTIPLY64(multiply_keys_bf16, "bf16", "0")
KV_MULTIPLY64(multiply_values_f16, "f16", "1")
KV_MULTIPLY64(multiply_values_bf16, "bf16", "1")

using Queries = unsigned[K_DIM / 16][4];
using Weights = unsigned[STEP / 16][4];
// Raw values come a step earlier: their factors are wanted with the weights.
constexpr unsigned V_AHEAD = V_RAW > 0 ? 1 : 0;

// The warp's queries: rows g and g + 8, then the next eight channels of them.
KV_FN void load_fragments(const Shared &shared, Queries &queries) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned from = shared_address(shared.queries + lane / 16 * VECTORS + threadIdx.x / 32 * 16 + lane % 16);
#pragma unroll
    for (unsigned step = 0; step < K_DIM / 16; ++step) {
        unsigned(&x)[4] = queries[step];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(from + step * 2 * VECTORS * 16));
    }
}

// Begins a step's products with keys.
KV_FN void multiply_keys(const Shared &shared, unsigned stage, const Queries &queries, Scores &s) {
    static_assert(STEP == 64, "a product is of 64 tokens");
    order_registers();
    const unsigned long long keys = matrix_at(shared.keys[stage], PITCH, 8);
#pragma unroll
    for (unsigned step = 0; step < K_DIM / 16; ++step) {
        const unsigned long long b = keys + step * 2 * PITCH;
        if constexpr (KeyProduct::EXPONENT == F16Product::EXPONENT) {
            step == 0 ? multiply_keys_f16<false>(s[0], queries[step], b) : multiply_keys_f16<true>(s[0], queries[step], b);
        } else {
            step == 0 ? multiply_keys_bf16<false>(s[0], queries[step], b) : multiply_keys_bf16<true>(s[0], queries[step], b);
        }
    }
    close_products();
}

// Begins to add a step's values.
KV_FN void multiply_values(const Shared &shared, unsigned stage, const Weights &a, Rows &rows) {
    order_registers();
    const unsigned long long values = matrix_at(shared.values[stage], LEADING_V, STRIDE_V);
#pragma unroll
    for (unsigned k = 0; k < STEP / 16; ++k) {
#pragma unroll
        for (unsigned j = 0; j < V_BLOCKS; j += 8) {
            const unsigned long long b = values + j * PITCH + 16 * k;
            if constexpr (ValueProduct::EXPONENT == F16Product::EXPONENT) {
                multiply_values_f16<true>(rows.o[0] + j, a[k], b);
            } else {
                multiply_values_bf16<true>(rows.o[0] + j, a[k], b);
            }
        }
    }
    close_products();
}

// From a step's products with keys to weights in 16 bits; `shrink` is what outputs so far are to be multiplied by, if that
// is anything but 1.
template <bool MASKED>
KV_FN bool soften(const Block &block, Rows &rows, unsigned i, Scores &s, Factors &shrink) {
    const Shared &shared = block.shared;
    Bits seen = {};
    if constexpr (MASKED) rows.see(shared.pieces + shared.order[i] * PIECES, seen);
    bool changed = rows.soften<MASKED>(s, seen, shrink);
    if constexpr (ValueTiles::SCALED) changed |= rows.weigh<MASKED>(s, seen, shared.value_scales[i % 2], shrink);
    return changed;
}

KV_FN bool soften(const Block &block, Rows &rows, unsigned i, Scores &s, Factors &shrink) {
    rows.finish_logits(s, block.shared.key_scales[i % 2]);
    return i < block.shared.whole ? soften<false>(block, rows, i, s, shrink) : soften<true>(block, rows, i, s, shrink);
}

KV_FN void pack(const Scores &s, Weights &a) {
#pragma unroll
    for (unsigned k = 0; k < STEP / 16; ++k) {
        unsigned fragment[1][4];
        Rows::pack(s, k, fragment);
#pragma unroll
        for (unsigned x = 0; x < 4; ++x) a[k][x] = fragment[0][x];
    }
}

// Adds the values of the `i`th of the steps looked up, whose weights are `a`, while the next one's become such.
KV_FN void take(const Block &block, Rows &rows, const Queries &queries, unsigned i, Scores &s, Weights &a) {
    Shared &shared = block.shared;
    const unsigned steps = shared.steps;
    const bool more = i + 1 < steps;
    copies_done();
    if constexpr (K_RAW > 0 || V_RAW > 0) {
        __syncthreads();
        if (more) {
            block.spread_keys(shared.order[i + 1], (i + 1) % 2);
            block.spread_values(shared.order[i + 1], (i + 1) % 2);
        }
    }
    show_panels();
    __syncthreads();
    if (i + 2 < steps) block.bring_keys(shared.order[i + 2], i % 2);
    if (i + 1 + V_AHEAD < steps) block.bring_values(shared.order[i + 1 + V_AHEAD], (i + 1) % 2);
    if constexpr (!ValueTiles::EXACT) {
        if (i >= shared.whole) {
            block.settle_unfit(rows, shared.order[i], i % 2);
            show_panels();
            __syncthreads();
        }
    }
    if (more) {
        multiply_keys(shared, (i + 1) % 2, queries, s);
        multiply_values(shared, i % 2, a, rows);
        Factors shrink;
        await_products<1>();
        const bool changed = soften(block, rows, i + 1, s, shrink);
        await_products<0>();
        if (changed) rows.shrink_outputs(shrink);
        pack(s, a);
    } else {
        multiply_values(shared, i % 2, a, rows);
        await_products<0>();
    }
}

KV_FN void walk(const Block &block, Rows &rows) {
    Shared &shared = block.shared;
    const unsigned steps = shared.steps;
    if (steps == 0) return;
    Queries queries;
    load_fragments(shared, queries);
    block.bring_keys(shared.order[0], 0);
    block.bring_values(shared.order[0], 0);
    copies_done();
    if constexpr (K_RAW > 0 || V_RAW > 0) {
        __syncthreads();
        block.spread_keys(shared.order[0], 0);
        block.spread_values(shared.order[0], 0);
    }
    show_panels();
    __syncthreads();
    if (steps > 1) block.bring_keys(shared.order[1], 1);
    if (V_AHEAD == 1 && steps > 1) block.bring_values(shared.order[1], 1);
    Scores s = {};
    Weights a;
    multiply_keys(shared, 0, queries, s);
    Factors shrink;
    await_products<0>();
    if (soften(block, rows, 0, s, shrink)) rows.shrink_outputs(shrink);
    pack(s, a);
#pragma unroll 1
    for (unsigned i = 0; i < steps; ++i) take(block, rows, queries, i, s, a);
}
