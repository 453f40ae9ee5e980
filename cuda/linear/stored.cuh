// Blocks of 32 stored weights as fragments of products: lane 4g + t of a warp gets, of a row, columns 4t to 4t + 3 for the
// first product (k = 16) and 16 + 4t to 19 + 4t for the second. Columns may stand in any order that activations follow.
//
// A type has: BYTES of a block; SCALES (none, one, or one for each half) and OFFSET, which meet the products' sums; APART,
// whether pairs are of columns two apart; PARTS, fragments that a value is the sum of.

KV_FN unsigned half_pair_sub(unsigned a, unsigned b) {
    unsigned x;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(x) : "r"(a), "r"(b));
    return x;
}

KV_FN unsigned half_pair_fma(unsigned a, unsigned b, unsigned c) {
    unsigned x;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(x) : "r"(a), "r"(b), "r"(c));
    return x;
}

KV_FN unsigned two_bytes(const unsigned char *at) { return *(const unsigned short *)at; }
KV_FN unsigned four_bytes(const unsigned char *at, bool aligned) {
    return aligned ? *(const unsigned *)at : two_bytes(at) | two_bytes(at + 2) << 16;
}

// word & mask | bits in one instruction: of the expression the compiler makes two, for two constants.
KV_FN unsigned masked(unsigned word, unsigned mask, unsigned bits) {
    unsigned x;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(x) : "r"(word), "r"(mask), "r"(bits));
    return x;
}

// Nibbles of a word, `ZERO` less: low ones of bytes 0 and 2, and 1 and 3, then high ones. 0x6400 | q is 1024 + q in f16.
template <unsigned ZERO> KV_FN void nibbles(unsigned word, unsigned (&a)[4]) {
    constexpr unsigned MAGIC = 0x64006400u, LOW = 0x000f000fu, HIGH = 0x00f000f0u;
    // 1024 + ZERO; 1/16; -(64 + ZERO), exact all three.
    constexpr unsigned BASE = ZERO == 8 ? 0x64086408u : 0x64006400u;
    constexpr unsigned SIXTEENTH = 0x2c002c00u, HIGH_BASE = ZERO == 8 ? 0xd480d480u : 0xd400d400u;
    const unsigned next = word >> 8;
    a[0] = half_pair_sub(masked(word, LOW, MAGIC), BASE);
    a[1] = half_pair_sub(masked(next, LOW, MAGIC), BASE);
    a[2] = half_pair_fma(masked(word, HIGH, MAGIC), SIXTEENTH, HIGH_BASE);
    a[3] = half_pair_fma(masked(next, HIGH, MAGIC), SIXTEENTH, HIGH_BASE);
}

// Four signed bytes: with the sign turned they are 128 more, and 0x6400 makes that 1152 more.
KV_FN void bytes(unsigned word, unsigned &first, unsigned &second) {
    const unsigned turned = word ^ 0x80808080u;
    first = half_pair_sub(__byte_perm(turned, 0x64646464u, 0x4140), 0x64806480u);
    second = half_pair_sub(__byte_perm(turned, 0x64646464u, 0x4342), 0x64806480u);
}

// What a lane has of a row's block: fragments, scales of both halves, an offset.
template <unsigned PARTS> struct Lane {
    unsigned a[4 * PARTS];
    float scale[2], offset;
};

template <unsigned TYPE> struct Stored;

// f16 d, 16 bytes of nibbles: (q - 8) d.
template <> struct Stored<2> {
    using Product = F16Product;
    static constexpr unsigned BYTES = 18, SCALES = 1, PARTS = 1;
    static constexpr bool OFFSET = false, APART = true, PLAIN = false;
    // `even`: the block begins at a whole word; `known`: whether that is known at all.
    KV_FN void read(const unsigned char *block, unsigned t, bool known, bool even, Lane<1> &to) {
        nibbles<8>(four_bytes(block + 2 + 4 * t, known && !even), to.a);
        to.scale[0] = kv_f16(two_bytes(block));
    }
    // Two blocks from a whole word on, 9 words. The first one's scale is known to lane t = 0, the other's to t = 3; other
    // lanes have 0.
    KV_FN void read_pair(const unsigned char *pair, unsigned t, Lane<1> &first, Lane<1> &second) {
        const unsigned *words = (const unsigned *)pair + t;
        const unsigned low = words[0], high = words[1];
        nibbles<8>(__byte_perm(low, high, 0x5432), first.a);
        nibbles<8>(words[5], second.a);
        first.scale[0] = kv_f16(t == 0 ? low & 0xffffu : 0u);
        second.scale[0] = kv_f16(t == 3 ? high >> 16 : 0u);
    }
};

// f16 d, f16 m, 16 bytes of nibbles: q d + m.
template <> struct Stored<3> {
    using Product = F16Product;
    static constexpr unsigned BYTES = 20, SCALES = 1, PARTS = 1;
    static constexpr bool OFFSET = true, APART = true, PLAIN = false;
    KV_FN void read(const unsigned char *block, unsigned t, bool, bool, Lane<1> &to) {
        nibbles<0>(four_bytes(block + 4 + 4 * t, true), to.a);
        const unsigned scales = four_bytes(block, true);
        to.scale[0] = kv_f16(scales & 0xffffu);
        to.offset = kv_f16(scales >> 16);
    }
};

// f16 d, 32 signed bytes.
template <> struct Stored<8> {
    using Product = F16Product;
    static constexpr unsigned BYTES = 34, SCALES = 1, PARTS = 1;
    static constexpr bool OFFSET = false, APART = false, PLAIN = false;
    KV_FN void read(const unsigned char *block, unsigned t, bool known, bool even, Lane<1> &to) {
        bytes(four_bytes(block + 2 + 4 * t, known && !even), to.a[0], to.a[1]);
        bytes(four_bytes(block + 18 + 4 * t, known && !even), to.a[2], to.a[3]);
        to.scale[0] = kv_f16(two_bytes(block));
    }
    // As Q4_0's, of 17 words.
    KV_FN void read_pair(const unsigned char *pair, unsigned t, Lane<1> &first, Lane<1> &second) {
        const unsigned *words = (const unsigned *)pair + t;
        const unsigned low = words[0], next = words[1], high = words[4], last = words[5];
        bytes(__byte_perm(low, next, 0x5432), first.a[0], first.a[1]);
        bytes(__byte_perm(high, last, 0x5432), first.a[2], first.a[3]);
        bytes(words[9], second.a[0], second.a[1]);
        bytes(words[13], second.a[2], second.a[3]);
        first.scale[0] = kv_f16(t == 0 ? low & 0xffffu : 0u);
        second.scale[0] = kv_f16(t == 3 ? last >> 16 : 0u);
    }
};

// Ours: f32 scales of both halves, f32 offset, 32 signed bytes.
template <> struct Stored<1000> {
    using Product = F16Product;
    static constexpr unsigned BYTES = 44, SCALES = 2, PARTS = 1;
    static constexpr bool OFFSET = true, APART = false, PLAIN = false;
    KV_FN void read(const unsigned char *block, unsigned t, bool, bool, Lane<1> &to) {
        bytes(four_bytes(block + 12 + 4 * t, true), to.a[0], to.a[1]);
        bytes(four_bytes(block + 28 + 4 * t, true), to.a[2], to.a[3]);
        to.scale[0] = __uint_as_float(four_bytes(block, true));
        to.scale[1] = __uint_as_float(four_bytes(block + 4, true));
        to.offset = __uint_as_float(four_bytes(block + 8, true));
    }
};

// f16, and bf16.
template <class PRODUCT> struct Halves {
    using Product = PRODUCT;
    static constexpr unsigned BYTES = 64, SCALES = 0, PARTS = 1;
    static constexpr bool OFFSET = false, APART = false, PLAIN = true;
    KV_FN void read(const unsigned char *block, unsigned t, bool, bool, Lane<1> &to) {
        if constexpr (ROW_TILE < 32) {
            const uint2 first = *(const uint2 *)(block + 8 * t), second = *(const uint2 *)(block + 32 + 8 * t);
            to.a[0] = first.x, to.a[1] = first.y, to.a[2] = second.x, to.a[3] = second.y;
        } else {
            // Words by themselves: a fragment's registers are two rows' in turn, and pairs would be moved for each product.
            const volatile unsigned *words = (const volatile unsigned *)block + 2 * t;
            to.a[0] = words[0], to.a[1] = words[1], to.a[2] = words[8], to.a[3] = words[9];
        }
    }
};
template <> struct Stored<1> : Halves<F16Product> {};
template <> struct Stored<30> : Halves<Bf16Product> {};

// f32: as two bf16.
template <> struct Stored<0> {
    using Product = Bf16Product;
    static constexpr unsigned BYTES = 128, SCALES = 0, PARTS = 2;
    static constexpr bool OFFSET = false, APART = false, PLAIN = true;
    KV_FN void read(const unsigned char *block, unsigned t, bool, bool, Lane<2> &to) {
#pragma unroll
        for (unsigned half = 0; half < 2; ++half) {
            const float4 x = *(const float4 *)(block + 64 * half + 16 * t);
            Bf16Product::parts(x.x, x.y, to.a[2 * half], to.a[4 + 2 * half]);
            Bf16Product::parts(x.z, x.w, to.a[2 * half + 1], to.a[4 + 2 * half + 1]);
        }
    }
};

using Weight = Stored<WEIGHT>;
using Product = Weight::Product;
using WeightLane = Lane<Weight::PARTS>;
