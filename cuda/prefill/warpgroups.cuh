// Products of warpgroups by wgmma, on Hopper alone. A warpgroup has 64 vectors, whose queries it keeps in registers;
// panels are read from shared memory as they are: cores of 8 x 16 bytes, without swizzle.

static_assert(MATRICES == 1 && MULTIPLIERS % 128 == 0, "a warpgroup has 64 vectors");

KV_FN void order_registers() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
KV_FN void close_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// All products but the last COUNT closed groups are done.
template <unsigned COUNT>
KV_FN void await_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(COUNT) : "memory");
}

// What this thread wrote to shared memory is seen by products that begin behind a barrier.
KV_FN void show_panels() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A matrix in shared memory is described by where it is and how far apart its cores of 8 x 16 bytes are, in units of 16
// bytes: `leading` in the lower word, `stride` in the upper one, which is a constant, so that no product waits for it.
KV_FN unsigned matrix_at(const uint4 *at, unsigned leading) { return shared_address(at) >> 4 | leading << 16; }

#define KV_FOUR(x) "+f"((x)[0]), "+f"((x)[1]), "+f"((x)[2]), "+f"((x)[3])

// s (64 x N) += a (64 x 16) b; with ADD false, s = a b. TRANSPOSED where b's units hold its columns.
#define KV_MULTIPLY64(NAME, TYPE, TRANSPOSED)                                                       \
    template <bool ADD, unsigned STRIDE>                                                            \
    KV_FN void NAME(float (*s)[4], const unsigned (&a)[4], unsigned b) {                            \
        asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 b;\n\t"                                       \
                     "setp.ne.b32 p, %37, 0;\n\tmov.b64 b, {%36, %38};\n\t"                         \
                     "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE " {"               \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "  \
                     "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, " \
                     "{%32, %33, %34, %35}, b, p, 1, 1, " TRANSPOSED ";\n\t}"                       \
                     : KV_FOUR(s[0]), KV_FOUR(s[1]), KV_FOUR(s[2]), KV_FOUR(s[3]),                  \
                       KV_FOUR(s[4]), KV_FOUR(s[5]), KV_FOUR(s[6]), KV_FOUR(s[7])                   \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(ADD), "n"(STRIDE));  \
    }

#define KV_MULTIPLY128(NAME, TYPE, TRANSPOSED)                                                     \
    template <bool ADD, unsigned STRIDE>                                                           \
    KV_FN void NAME(float (*s)[4], const unsigned (&a)[4], unsigned b) {                           \
        asm volatile("{\n\t.reg .pred p;\n\t.reg .b64 b;\n\t"                                      \
                     "setp.ne.b32 p, %69, 0;\n\tmov.b64 b, {%68, %70};\n\t"                        \
                     "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE " {"             \
                     "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, " \
                     "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
                     "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
                     "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, " \
                     "%62, %63}, "                                                                 \
                     "{%64, %65, %66, %67}, b, p, 1, 1, " TRANSPOSED ";\n\t}"                      \
                     : KV_FOUR(s[0]), KV_FOUR(s[1]), KV_FOUR(s[2]), KV_FOUR(s[3]),                 \
                       KV_FOUR(s[4]), KV_FOUR(s[5]), KV_FOUR(s[6]), KV_FOUR(s[7]),                 \
                       KV_FOUR(s[8]), KV_FOUR(s[9]), KV_FOUR(s[10]), KV_FOUR(s[11]),               \
                       KV_FOUR(s[12]), KV_FOUR(s[13]), KV_FOUR(s[14]), KV_FOUR(s[15])              \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(ADD), "n"(STRIDE)); \
    }

KV_MULTIPLY64(multiply64_f16, "f16", "0")
KV_MULTIPLY64(multiply64_bf16, "bf16", "0")
KV_MULTIPLY64(multiply64_transposed_f16, "f16", "1")
KV_MULTIPLY64(multiply64_transposed_bf16, "bf16", "1")
KV_MULTIPLY128(multiply128_f16, "f16", "0")
KV_MULTIPLY128(multiply128_bf16, "bf16", "0")
KV_MULTIPLY128(multiply128_transposed_f16, "f16", "1")
KV_MULTIPLY128(multiply128_transposed_bf16, "bf16", "1")

// The same by a product's numbers, for N of 64 or 128.
template <class Product, bool TRANSPOSED, unsigned N, bool ADD, unsigned STRIDE>
KV_FN void multiply(float (*s)[4], const unsigned (&a)[4], unsigned b) {
    constexpr bool F16 = Product::EXPONENT == F16Product::EXPONENT;
    static_assert(N == 64 || N == 128, "products that are written out");
    if constexpr (N == 64 && F16 && !TRANSPOSED) multiply64_f16<ADD, STRIDE>(s, a, b);
    if constexpr (N == 64 && F16 && TRANSPOSED) multiply64_transposed_f16<ADD, STRIDE>(s, a, b);
    if constexpr (N == 64 && !F16 && !TRANSPOSED) multiply64_bf16<ADD, STRIDE>(s, a, b);
    if constexpr (N == 64 && !F16 && TRANSPOSED) multiply64_transposed_bf16<ADD, STRIDE>(s, a, b);
    if constexpr (N == 128 && F16 && !TRANSPOSED) multiply128_f16<ADD, STRIDE>(s, a, b);
    if constexpr (N == 128 && F16 && TRANSPOSED) multiply128_transposed_f16<ADD, STRIDE>(s, a, b);
    if constexpr (N == 128 && !F16 && !TRANSPOSED) multiply128_bf16<ADD, STRIDE>(s, a, b);
    if constexpr (N == 128 && !F16 && TRANSPOSED) multiply128_transposed_bf16<ADD, STRIDE>(s, a, b);
}

using Queries = unsigned[K_DIM / 16][4];
using Weights = unsigned[STEP / 16][4];

// The warp's queries: rows g and g + 8, then the next eight channels of them.
KV_FN void load_fragments(const Shared &shared, Queries &queries) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned row = (threadIdx.x - FIRST_THREAD) / 32 * 16 + lane % 16;
    const unsigned from = shared_address(shared.queries + lane / 16 * VECTORS + row);
#pragma unroll
    for (unsigned step = 0; step < K_DIM / 16; ++step) {
        unsigned(&x)[4] = queries[step];
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                     : "r"(from + step * 2 * VECTORS * 16));
    }
}

// Begins a step's products with keys.
KV_FN void multiply_keys(const uint4 *panel, const Queries &queries, Scores &s) {
    order_registers();
    const unsigned keys = matrix_at(panel, PITCH);
#pragma unroll
    for (unsigned step = 0; step < K_DIM / 16; ++step) {
        const unsigned b = keys + step * 2 * PITCH;
        if (step == 0) {
            multiply<KeyProduct, false, STEP, false, 8>(s[0], queries[step], b);
        } else {
            multiply<KeyProduct, false, STEP, true, 8>(s[0], queries[step], b);
        }
    }
    close_products();
}

// Begins to add a step's values.
KV_FN void multiply_values(const uint4 *panel, const Weights &a, Rows &rows) {
    constexpr unsigned N = V_DIM % 128 == 0 ? 128 : 64;
    order_registers();
    const unsigned values = matrix_at(panel, 8);
#pragma unroll
    for (unsigned k = 0; k < STEP / 16; ++k) {
#pragma unroll
        for (unsigned j = 0; j < V_BLOCKS; j += N / 8) {
            multiply<ValueProduct, true, N, true, PITCH>(rows.o[0] + j, a[k], values + j * PITCH + 16 * k);
        }
    }
    close_products();
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
