// Pages of e4m3 codes as tiles of tensor-core products in f16, which holds every code exactly. tiles/e4m3.cuh has those
// of products that take the codes as they are.

// Four codes as f16: the lower two and the upper two.
KV_FN uint2 f16_of_e4m3(unsigned codes) {
    uint2 x;
#if __CUDA_ARCH__ >= 890
    asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %2;\n\t"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n\tcvt.rn.f16x2.e4m3x2 %1, high;\n\t}"
        : "=r"(x.x), "=r"(x.y)
        : "r"(codes));
#else
    // A code's bits as those of an f16 are 2^-8 of its value, also where it is subnormal.
    const unsigned low = bytes_of(codes, 0u, 0x1404u), high = bytes_of(codes, 0u, 0x3424u);
    const unsigned a = (low & 0x80008000u) | (low & 0x7f007f00u) >> 1, b = (high & 0x80008000u) | (high & 0x7f007f00u) >> 1;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(x.x) : "r"(a), "r"(0x5c005c00u));
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(x.y) : "r"(b), "r"(0x5c005c00u));
#endif
    return x;
}

// Sixteen channels of a token to a panel.
template <unsigned PITCH>
KV_FN void spread_codes(uint4 codes, uint4 *to, bool there) {
    const uint2 x = f16_of_e4m3(codes.x), y = f16_of_e4m3(codes.y);
    const uint2 z = f16_of_e4m3(codes.z), w = f16_of_e4m3(codes.w);
    to[0] = there ? make_uint4(x.x, x.y, y.x, y.y) : make_uint4(0u, 0u, 0u, 0u);
    to[PITCH] = there ? make_uint4(z.x, z.y, w.x, w.y) : make_uint4(0u, 0u, 0u, 0u);
}

// A page's scale as its tokens' factors.
template <unsigned RUN>
KV_FN void spread_scale(const uint4 *from, float *scales, unsigned valid) {
    const unsigned token = threadIdx.x % BRINGERS;
    if (token < RUN) scales[token] = token < valid ? *(const float *)from : 0.0f;
}

// Keys: byte ((C/16)*P + T)*16 + C%16. Lane 4g + t reads sixteen channels of tokens g and g + 8: four products.
template <unsigned DIM, unsigned TOKENS>
struct Fp8KeysInHalves {
    using Product = F16Product;
    static constexpr unsigned STEPS = DIM / 16;
    const unsigned *at;
    float page_scale;

    KV_FN unsigned channel(unsigned step, unsigned t, unsigned j) {
        return step / 4 * 64 + 16 * t + step % 4 * 4 + j;
    }

    KV_METHOD void open(const unsigned *page, unsigned first, unsigned lane) {
        at = page + (lane % 4 * TOKENS + first + lane / 4) * 4;
        page_scale = __uint_as_float(__ldg(page + DIM / 4 * TOKENS));
    }

    struct Tile {
        uint4 low[DIM / 64], high[DIM / 64];
    };

    KV_METHOD Tile load(unsigned m) const {
        Tile tile;
#pragma unroll
        for (unsigned i = 0; i < DIM / 64; ++i) {
            tile.low[i] = load16(at + (4 * i * TOKENS + 16 * m) * 4);
            tile.high[i] = load16(at + (4 * i * TOKENS + 16 * m + 8) * 4);
        }
        return tile;
    }

    template <class Use>
    KV_FN void each(const Tile &tile, Use use) {
#pragma unroll
        for (unsigned i = 0; i < DIM / 64; ++i) {
            const unsigned x[4] = {tile.low[i].x, tile.low[i].y, tile.low[i].z, tile.low[i].w};
            const unsigned y[4] = {tile.high[i].x, tile.high[i].y, tile.high[i].z, tile.high[i].w};
#pragma unroll
            for (unsigned word = 0; word < 4; ++word) {
                const uint2 a = f16_of_e4m3(x[word]), b = f16_of_e4m3(y[word]);
                use(4 * i + word, {a.x, b.x, a.y, b.y});
            }
        }
    }

    KV_METHOD float2 scales(unsigned) const { return make_float2(page_scale, page_scale); }

    using Halves = F16Product;
    static constexpr bool SCALED = true, EXACT = false;
    template <unsigned RUN>
    static constexpr unsigned CODES = DIM / 16 * RUN;
    template <unsigned RUN>
    static constexpr unsigned RAW_OF = CODES<RUN> + 1;

    template <unsigned RUN, unsigned PITCH>
    KV_FN void bring(unsigned to, const unsigned *page, unsigned first, unsigned) {
        share<CODES<RUN>, BRINGERS>(threadIdx.x % BRINGERS, [&](unsigned i) {
            copy16(to + i * 16, page + (i / RUN * TOKENS + first + i % RUN) * 4, true);
        });
        if (threadIdx.x % BRINGERS == 0) copy4(to + CODES<RUN> * 16, page + DIM / 4 * TOKENS);
    }

    template <unsigned RUN, unsigned PITCH>
    KV_FN void spread(const uint4 *raw, uint4 *panel, float *scales, unsigned, unsigned valid) {
        share<CODES<RUN>, BRINGERS>(threadIdx.x % BRINGERS, [&](unsigned i) {
            const unsigned token = i % RUN;
            spread_codes<PITCH>(raw[i], panel + i / RUN * 2 * PITCH + token, token < valid);
        });
        spread_scale<RUN>(raw + CODES<RUN>, scales, valid);
    }
};

// Values: byte T*D + C. Lane 4g + t reads 4 * WORDS channels of tokens 2t, 2t + 1, 2t + 8 and 2t + 9.
template <unsigned DIM, unsigned TOKENS, unsigned WORDS>
struct Fp8ValuesInHalves {
    static constexpr bool BYTES = false;
    static constexpr unsigned GROUPS = DIM / (32 * WORDS);
    static constexpr unsigned BLOCKS = 2 * WORDS;
    static_assert(DIM % (32 * WORDS) == 0 && (WORDS == 2 || WORDS == 4), "groups of whole rows");
    template <unsigned TILES, unsigned NT>
    using Weights = HalfWeights<F16Product, TILES, NT, 1>;
    const unsigned *at;
    float page_scale;

    KV_FN unsigned channel(unsigned group, unsigned block, unsigned odd, unsigned g) {
        return (group * 8 + g) * 4 * WORDS + 2 * block + odd;
    }

    KV_METHOD void open(const unsigned *page, unsigned first, unsigned lane) {
        at = page + (first + lane % 4 * 2) * (DIM / 4) + lane / 4 * WORDS;
        page_scale = __uint_as_float(__ldg(page + DIM / 4 * TOKENS));
    }

    KV_METHOD float scale() const { return page_scale; }
    KV_METHOD float2 scales(unsigned) const { return make_float2(1.0f, 1.0f); }

    template <unsigned TILES>
    struct Group {
        unsigned rows[TILES][4][WORDS];
    };

    template <unsigned TILES>
    KV_METHOD Group<TILES> load(unsigned group) const {
        Group<TILES> loaded;
#pragma unroll
        for (unsigned i = 0; i < 4 * TILES; ++i) {
            const unsigned *from = at + (i / 4 * 16 + i / 2 % 2 * 8 + i % 2) * (DIM / 4) + group * 8 * WORDS;
            unsigned(&to)[WORDS] = loaded.rows[i / 4][i % 4];
            if constexpr (WORDS == 4) {
                const uint4 x = load16(from);
                to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
            } else {
                const uint2 x = load8(from);
                to[0] = x.x, to[1] = x.y;
            }
        }
        return loaded;
    }

    template <bool MASKED, unsigned TILES, unsigned NT>
    KV_FN void add(const Group<TILES> &loaded, const Weights<TILES, NT> &weights, const Seen<TILES> &seen,
                   float (&sums)[BLOCKS][NT][4]) {
#pragma unroll
        for (unsigned m = 0; m < TILES; ++m) {
            const unsigned(&rows)[4][WORDS] = loaded.rows[m];
#pragma unroll
            for (unsigned block = 0; block < BLOCKS; ++block) {
                const unsigned selector = block % 2 ? 0x7362u : 0x5140u, word = block / 2;
                const uint2 x = f16_of_e4m3(bytes_of(rows[0][word], rows[1][word], selector));
                const uint2 y = f16_of_e4m3(bytes_of(rows[2][word], rows[3][word], selector));
                unsigned a[4] = {x.x, x.y, y.x, y.y};
                if constexpr (MASKED) {
#pragma unroll
                    for (unsigned i = 0; i < 4; ++i) a[i] &= seen.pairs[m][i / 2];
                }
#pragma unroll
                for (unsigned n = 0; n < NT; ++n) weights.multiply(sums[block][n], a, m, n);
            }
        }
    }

    using Halves = F16Product;
    static constexpr bool SCALED = true, EXACT = false;
    // Raw tokens stand a unit further apart than they are long, in other banks.
    static constexpr unsigned ROW = DIM / 16 + 1;
    template <unsigned RUN>
    static constexpr unsigned RAW_OF = ROW * RUN + 1;

    template <unsigned RUN, unsigned PITCH>
    KV_FN void bring(unsigned to, const unsigned *page, unsigned first, unsigned) {
        share<DIM / 16 * RUN, BRINGERS>(threadIdx.x % BRINGERS, [&](unsigned i) {
            copy16(to + (i / (DIM / 16) * ROW + i % (DIM / 16)) * 16, page + first * (DIM / 4) + i * 4, true);
        });
        if (threadIdx.x % BRINGERS == 0) copy4(to + ROW * RUN * 16, page + DIM / 4 * TOKENS);
    }

    template <unsigned RUN, unsigned PITCH>
    KV_FN void spread(const uint4 *raw, uint4 *panel, float *scales, unsigned, unsigned valid) {
        share<DIM / 16 * RUN, BRINGERS>(threadIdx.x % BRINGERS, [&](unsigned i) {
            const unsigned token = i % RUN, chunk = i / RUN;
            spread_codes<PITCH>(raw[token * ROW + chunk], panel + chunk * 2 * PITCH + token, token < valid);
        });
        spread_scale<RUN>(raw + ROW * RUN, scales, valid);
    }
};
