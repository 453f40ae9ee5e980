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
        const uint2 first = *(const uint2 *)(block + 8 * t), second = *(const uint2 *)(block + 32 + 8 * t);
        to.a[0] = first.x, to.a[1] = first.y, to.a[2] = second.x, to.a[3] = second.y;
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

constexpr unsigned BLOCKS = (COLUMNS + 31) / 32;
constexpr unsigned ROW_BYTES = COLUMNS / 8 * (Weight::BYTES / 2) / 2;
static_assert(COLUMNS / 8 * Weight::BYTES % 4 == 0, "rows are whole bytes");
// Whether every stretch that a stage brings begins at a line of 16 bytes, and at a whole word.
constexpr bool LINED = ROW_BYTES % 16 == 0 && STAGE * Weight::BYTES % 16 == 0 && (SPLIT == 1 || RANGE * Weight::BYTES % 16 == 0);
constexpr bool WORDED = ROW_BYTES % 4 == 0 && STAGE * Weight::BYTES % 4 == 0 && (SPLIT == 1 || RANGE * Weight::BYTES % 4 == 0);
constexpr unsigned LINES = (STAGE * Weight::BYTES + (LINED ? 0 : 14) + 15) / 16;
// An odd number of lines: eight rows then meet all banks.
constexpr unsigned PITCH = 16 * (LINES | 1);
// Whether every stage is whole.
constexpr bool WHOLE = LINED && COLUMNS % 32 == 0 && RANGE % STAGE == 0 && BLOCKS % RANGE == 0;

// Where in its first line a stretch of a row begins.
KV_FN unsigned shift_of(unsigned out, unsigned block) {
    return LINED ? 0u : (out * (ROW_BYTES % 16) + block * (Weight::BYTES % 16)) % 16;
}

KV_FN void copy_line(void *to, const unsigned char *from, unsigned count) {
    unsigned at;
    asm("{.reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a;}" : "=r"(at) : "l"(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(count) : "memory");
}
KV_FN void copies_asked() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <unsigned LEFT> KV_FN void copies_came() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }

// What a thread asks for of each stage: a line of 16 bytes in every round.
template <unsigned ROWS, unsigned THREADS> struct Lines {
    static constexpr unsigned ALL = ROWS * LINES, ROUNDS = (ALL + THREADS - 1) / THREADS;
    // From a stage's first byte on, where every stage is whole.
    unsigned from[WHOLE ? ROUNDS : 1];

    __device__ __forceinline__ void prepare(unsigned thread) {
        if constexpr (WHOLE) {
#pragma unroll
            for (unsigned i = 0; i < ROUNDS; ++i) {
                const unsigned at = thread + i * THREADS;
                from[i] = at / LINES * ROW_BYTES + at % LINES * 16;
            }
        }
    }

    // Asks for blocks `block` to `block + STAGE` of ROWS rows from `out` on, as far as rows go; what is past a row's end
    // becomes zeros. Rows past the last one repeat it.
    __device__ __forceinline__ void ask(unsigned char *stage, const unsigned char *w, unsigned out, unsigned outs,
                                        unsigned block, unsigned thread) const {
        if (WHOLE && out + ROWS <= outs) {
            const unsigned char *start = w + (size_t)out * ROW_BYTES + block * Weight::BYTES;
#pragma unroll
            for (unsigned i = 0; i < ROUNDS; ++i) {
                const unsigned at = thread + i * THREADS;
                // Rows stand a line further apart than they are long where that is even.
                const unsigned to = LINES % 2 ? at : at + at / LINES;
                if (ALL % THREADS == 0 || at < ALL) copy_line(stage + 16 * to, start + from[i], 16);
            }
            return;
        }
#pragma unroll 1
        for (unsigned i = thread; i < ALL; i += THREADS) {
            const unsigned row = i / LINES, line = i % LINES, own = min(out + row, outs - 1);
            const unsigned shift = shift_of(own, block);
            const unsigned length = min(STAGE * Weight::BYTES, ROW_BYTES - min(ROW_BYTES, block * Weight::BYTES));
            const unsigned end = length > 0 ? shift + length : 0u;
            const unsigned count = end > 16 * line ? min(16u, end - 16 * line) : 0u;
            const unsigned char *start = w + (size_t)own * ROW_BYTES + block * Weight::BYTES - shift;
            copy_line(stage + row * PITCH + 16 * line, count > 0 ? start + 16 * line : w, count);
        }
    }
};

// The products of a block's fragments of 16 outputs (rows g and g + 8 of a lane) with a fragment of activations. Two sums
// where halves have scales of their own.
KV_FN void multiply(float (&c)[2][4], const WeightLane &low, const WeightLane &high, uint4 b, bool begins) {
    if (begins) {
        Product::begin(c[0], low.a[0], high.a[0], low.a[1], high.a[1], b.x, b.y);
        if constexpr (Weight::SCALES == 2) Product::begin(c[1], low.a[2], high.a[2], low.a[3], high.a[3], b.z, b.w);
    } else {
        Product::add(c[0], low.a[0], high.a[0], low.a[1], high.a[1], b.x, b.y);
        if constexpr (Weight::SCALES == 2) Product::add(c[1], low.a[2], high.a[2], low.a[3], high.a[3], b.z, b.w);
    }
    if constexpr (Weight::SCALES < 2) Product::add(c[0], low.a[2], high.a[2], low.a[3], high.a[3], b.z, b.w);
    if constexpr (Weight::PARTS == 2) {
        Product::add(c[0], low.a[4], high.a[4], low.a[5], high.a[5], b.x, b.y);
        Product::add(c[0], low.a[6], high.a[6], low.a[7], high.a[7], b.z, b.w);
    }
}

// A sum of products with what belongs to its block.
KV_FN float scaled(float sum, float first, float second, const WeightLane &lane) {
    if constexpr (Weight::SCALES == 0) return sum + first;
    sum = fmaf(lane.scale[0], first, sum);
    if constexpr (Weight::SCALES == 2) sum = fmaf(lane.scale[1], second, sum);
    return sum;
}

// Fragments of a lane's eight activations of a block: rounded, and the rest.
KV_FN void fragments(const float (&x)[8], uint4 &whole, uint4 &rest) {
    constexpr unsigned SECOND = Weight::APART ? 2 : 1, THIRD = Weight::APART ? 1 : 2;
    Product::parts(x[0], x[SECOND], whole.x, rest.x);
    Product::parts(x[THIRD], x[3], whole.y, rest.y);
    Product::parts(x[4], x[4 + SECOND], whole.z, rest.z);
    Product::parts(x[4 + THIRD], x[7], whole.w, rest.w);
}

// A lane's eight activations of a block, made smaller; zeros past the end.
KV_FN void activations(const float4 *x, unsigned block, unsigned t, float (&to)[8]) {
    float4 first = make_float4(0.0f, 0.0f, 0.0f, 0.0f), second = first;
    if (COLUMNS % 32 == 0 || 32 * block + 4 * t < COLUMNS) first = x[8 * block + t];
    if (COLUMNS % 32 == 0 || 32 * block + 16 + 4 * t < COLUMNS) second = x[8 * block + 4 + t];
    constexpr float S = Product::SHRINK;
    to[0] = S * first.x, to[1] = S * first.y, to[2] = S * first.z, to[3] = S * first.w;
    to[4] = S * second.x, to[5] = S * second.y, to[6] = S * second.z, to[7] = S * second.w;
}

// Their sum over a block, in all four lanes of a row.
KV_FN float block_sum(const float (&x)[8]) {
    float sum = ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    return sum + __shfl_xor_sync(0xffffffffu, sum, 2);
}

// The first four-column vector of a row of activations.
KV_FN const float4 *row_of(const float4 *x, const Params &params, unsigned row) {
    return x + (params.x_offset + (size_t)min(row, params.rows - 1) * params.x_stride) / 4;
}
