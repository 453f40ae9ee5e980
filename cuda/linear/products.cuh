// Tensor-core products of the linear layer. Rows of A are outputs, columns of B are rows of activations; sums are f32.
// Weights enter as they are (codes, or 16-bit values), activations as two numbers of 16 bits: what rounding gives, and what
// it leaves.

// Activations are made smaller ahead of the products and sums larger behind them, by powers of two: f16 ends at 65,504.
struct F16Product {
    static constexpr float SHRINK = 0.125f, GROW = 8.0f;

    // Two numbers in 16 bits each, and what that leaves of them.
    KV_FN void parts(float low, float high, unsigned &whole, unsigned &rest) {
        float l, h;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(whole) : "f"(high), "f"(low));
        asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}" : "=f"(l), "=f"(h) : "r"(whole));
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(rest) : "f"(high - h), "f"(low - l));
    }

    KV_FN void begin(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
            : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
    }

    KV_FN void add(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
};

struct Bf16Product {
    static constexpr float SHRINK = 1.0f, GROW = 1.0f;

    KV_FN unsigned pack(float low, float high) {
        unsigned x;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
        return x;
    }

    KV_FN void parts(float low, float high, unsigned &whole, unsigned &rest) {
        whole = pack(low, high);
        rest = pack(low - __uint_as_float(whole << 16), high - __uint_as_float(whole & 0xffff0000u));
    }

    KV_FN void begin(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
            : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(0.0f));
    }

    KV_FN void add(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
};
