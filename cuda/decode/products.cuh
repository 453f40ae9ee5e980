// Tensor-core products of decode attention. Rows are tokens (keys) or channels (values); the eight columns are four
// query vectors, each in two columns that are added up at the end.

#define KV_METHOD __device__ __forceinline__

KV_FN unsigned bytes_of(unsigned low, unsigned high, unsigned selector) {
    unsigned x;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(x) : "r"(low), "r"(high), "r"(selector));
    return x;
}

struct F16Product {
    using Sum = float;
    static constexpr bool BYTES = false;
    // Elements of a query that a lane holds for one product.
    static constexpr unsigned ELEMENTS = 4;
    // What queries within 1 are multiplied by.
    static constexpr float QUERY_SCALE = 1.0f;
    // Products over the same keys, each with two further parts of the queries.
    static constexpr unsigned PASSES = 1;
    // Whether a query's infinities and NaN would be lost.
    static constexpr bool FINITE = false;
    // The exponent, all of whose bits infinities and NaN have.
    static constexpr unsigned EXPONENT = 0x7c00u;

    KV_FN float wide(unsigned bits) { return kv_f16(bits); }

    KV_FN unsigned pack(float low, float high) {
        unsigned x;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
        return x;
    }

    // What rounding to 16 bits leaves of a number.
    KV_FN float rest(float x) {
        unsigned short h;
        float y;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
        asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(h));
        return x - y;
    }

    KV_FN void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }

    // A part of a query's fragment: in even columns (0) what its numbers are in 16 bits, in odd ones (1) what that
    // leaves of them.
    KV_FN uint2 fragment(const float (&x)[ELEMENTS], unsigned part) {
        if (part == 1) return make_uint2(pack(rest(x[0]), rest(x[1])), pack(rest(x[2]), rest(x[3])));
        return make_uint2(pack(x[0], x[1]), pack(x[2], x[3]));
    }

    KV_FN float total(float even, float odd) { return even + odd; }
};

struct Bf16Product : F16Product {
    static constexpr unsigned EXPONENT = 0x7f80u;

    KV_FN float wide(unsigned bits) { return __uint_as_float(bits << 16); }

    KV_FN unsigned pack(float low, float high) {
        unsigned x;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
        return x;
    }

    KV_FN float rest(float x) { return x - __uint_as_float(pack(0.0f, x) & 0xffff0000u); }

    KV_FN void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }

    KV_FN uint2 fragment(const float (&x)[ELEMENTS], unsigned part) {
        if (part == 1) return make_uint2(pack(rest(x[0]), rest(x[1])), pack(rest(x[2]), rest(x[3])));
        return make_uint2(pack(x[0], x[1]), pack(x[2], x[3]));
    }
};

// Whole numbers of 16 bits as two bytes: the upper one in an even column, the lower one in an odd one.
struct BytesProduct {
    using Sum = int;
    static constexpr bool BYTES = true;
    static constexpr unsigned ELEMENTS = 8;
    // 127 upper bytes: both bytes of a query are signed.
    static constexpr float QUERY_SCALE = 32512.0f;
    static constexpr unsigned PASSES = 1;
    static constexpr bool FINITE = true;

    KV_FN void multiply(int (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }

    // The same with unsigned bytes on the columns' side.
    KV_FN void multiply_unsigned(int (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }

    KV_FN uint2 fragment(const float (&x)[ELEMENTS], unsigned part) {
        unsigned words[2] = {0u, 0u};
#pragma unroll
        for (unsigned i = 0; i < ELEMENTS; ++i) {
            int whole = __float2int_rn(x[i] * QUERY_SCALE);
            int upper = (whole + 128) >> 8;
            unsigned byte = (unsigned)(part == 1 ? whole - 256 * upper : upper) & 0xffu;
            words[i / 4] |= byte << (8 * (i % 4));
        }
        return make_uint2(words[0], words[1]);
    }

    KV_FN float total(int even, int odd) { return (float)(256 * even + odd); }
};

// Numbers of e4m3, which is native from compute capability 8.9 on but for 9.0 and 10.x: there assemblers widen them to
// 16 bits. A number is the sum of PARTS codes, each what the ones before it leave: 4 bits more, or 2^-18 of the greatest.
template <unsigned PARTS>
struct E4m3Product {
    using Sum = float;
    static constexpr bool BYTES = false;
    static constexpr unsigned ELEMENTS = 8;
    static constexpr float QUERY_SCALE = 256.0f;
    static constexpr unsigned PASSES = (PARTS + 1) / 2;
    static constexpr bool FINITE = true;

    // Two codes, the first number's in the lower byte.
    KV_FN unsigned codes(float low, float high) {
        unsigned short x;
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(x) : "f"(high), "f"(low));
        return x;
    }

    // What two codes leave of their numbers.
    KV_FN void take(unsigned codes, float &low, float &high) {
        unsigned halves;
        float x, y;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)codes));
        asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %2;\n\t"
            "cvt.f32.f16 %0, low;\n\tcvt.f32.f16 %1, high;\n\t}"
            : "=f"(x), "=f"(y)
            : "r"(halves));
        low -= x;
        high -= y;
    }

    KV_FN void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }

    KV_FN uint2 fragment(const float (&x)[ELEMENTS], unsigned part) {
        unsigned pairs[ELEMENTS / 2];
#pragma unroll
        for (unsigned i = 0; i < ELEMENTS / 2; ++i) {
            float low = x[2 * i] * QUERY_SCALE, high = x[2 * i + 1] * QUERY_SCALE;
#pragma unroll
            for (unsigned before = 0; before + 1 < 2 * PASSES; ++before) {
                if (before < part) take(codes(low, high), low, high);
            }
            pairs[i] = part < PARTS ? codes(low, high) : 0u;
        }
        return make_uint2(bytes_of(pairs[0], pairs[1], 0x5410u), bytes_of(pairs[2], pairs[3], 0x5410u));
    }

    KV_FN float total(float even, float odd) { return even + odd; }
};

// Transposes 8 x 8 numbers of 16 bits: lane 4g + t gives row g, columns 2t and 2t + 1, and gets column g.
KV_FN unsigned transposed(unsigned x) {
    unsigned y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

KV_FN float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The greater of two, NaN if one of them is.
KV_FN float max_or_nan(float a, float b) {
    float x;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(a), "f"(b));
    return x;
}

KV_FN uint4 load16(const unsigned *words) { return __ldg((const uint4 *)words); }
KV_FN uint2 load8(const unsigned *words) { return __ldg((const uint2 *)words); }
