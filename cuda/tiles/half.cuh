// Pages of f16 and bf16 as tiles of tensor-core products; and what tiles define, whatever the format. A lane is 4g + t.
//
// Keys, 16 tokens of a page side by side:
// - Product: how numbers are multiplied (decode/products.cuh); STEPS: products along the channels;
// - channel(step, t, j): which channel is element j of lane column t in the queries' fragment of a product;
// - open(page, first, lane): the step that begins with the page's token `first`;
// - Tile, load(m): what a lane reads of tile m, and nothing but that; each(tile, use): use(step, fragment) of each
//   product;
// - scales(m): what the logits of tokens g and g + 8 of tile m are multiplied by.
//
// Values, 16 channels side by side, in GROUPS of BLOCKS such blocks:
// - channel(group, block, odd, g): the channel of row g (`odd`: of row g + 8) of a block;
// - Weights<TILES, NT>: how weights are multiplied (decode/weights.cuh); BYTES: whether in bytes, with scales(m) in
//   them;
// - open, Group<TILES>, load(group): as for keys; add<MASKED>: a group's products, added to sums;
// - scale(): what all sums are multiplied by.

// Keys: byte ((C/8)*P + T)*16 + 2(C%8). Lane 4g + t reads eight channels of tokens g and g + 8: two products.
template <class PRODUCT, unsigned DIM, unsigned TOKENS>
struct HalfKeys {
    using Product = PRODUCT;
    static constexpr unsigned STEPS = DIM / 16;
    const unsigned *at;

    KV_FN unsigned channel(unsigned step, unsigned t, unsigned j) {
        return step / 2 * 32 + 8 * t + step % 2 * 4 + j;
    }

    KV_METHOD void open(const unsigned *page, unsigned first, unsigned lane) {
        at = page + (lane % 4 * TOKENS + first + lane / 4) * 4;
    }

    struct Tile {
        uint4 low[DIM / 32], high[DIM / 32];
    };

    KV_METHOD Tile load(unsigned m) const {
        Tile tile;
#pragma unroll
        for (unsigned i = 0; i < DIM / 32; ++i) {
            tile.low[i] = load16(at + (4 * i * TOKENS + 16 * m) * 4);
            tile.high[i] = load16(at + (4 * i * TOKENS + 16 * m + 8) * 4);
        }
        return tile;
    }

    template <class Use>
    KV_FN void each(const Tile &tile, Use use) {
#pragma unroll
        for (unsigned i = 0; i < DIM / 32; ++i) {
            use(2 * i, {tile.low[i].x, tile.high[i].x, tile.low[i].y, tile.high[i].y});
            use(2 * i + 1, {tile.low[i].z, tile.high[i].z, tile.low[i].w, tile.high[i].w});
        }
    }

    KV_METHOD float2 scales(unsigned) const { return make_float2(1.0f, 1.0f); }

    using Halves = PRODUCT;
    static constexpr bool SCALED = false, EXACT = false;
    template <unsigned>
    static constexpr unsigned RAW_OF = 0;

    template <unsigned RUN, unsigned PITCH>
    KV_FN void bring(unsigned to, const unsigned *page, unsigned first, unsigned valid) {
        share<DIM / 8 * RUN, BRINGERS>(threadIdx.x % BRINGERS, [&](unsigned i) {
            const unsigned token = i % RUN, chunk = i / RUN;
            copy16(to + (chunk * PITCH + token) * 16, page + (chunk * TOKENS + first + token) * 4, token < valid);
        });
    }
};

// Values: byte 2(T*D + C). Lane 4g + t reads eight channels of tokens 2t, 2t + 1, 2t + 8 and 2t + 9.
template <class PRODUCT, unsigned DIM, unsigned TOKENS, unsigned PARTS>
struct HalfValues {
    static constexpr bool BYTES = false;
    static constexpr unsigned GROUPS = DIM / 64;
    static constexpr unsigned BLOCKS = 4;
    template <unsigned TILES, unsigned NT>
    using Weights = HalfWeights<PRODUCT, TILES, NT, PARTS>;
    const unsigned *at;

    KV_FN unsigned channel(unsigned group, unsigned block, unsigned odd, unsigned g) {
        return group * 64 + 8 * g + 2 * block + odd;
    }

    KV_METHOD void open(const unsigned *page, unsigned first, unsigned lane) {
        at = page + (first + lane % 4 * 2) * (DIM / 2) + lane / 4 * 4;
    }

    KV_METHOD float scale() const { return 1.0f; }
    KV_METHOD float2 scales(unsigned) const { return make_float2(1.0f, 1.0f); }

    template <unsigned TILES>
    struct Group {
        uint4 rows[TILES][4];
    };

    template <unsigned TILES>
    KV_METHOD Group<TILES> load(unsigned group) const {
        Group<TILES> loaded;
#pragma unroll
        for (unsigned i = 0; i < 4 * TILES; ++i) {
            loaded.rows[i / 4][i % 4] = load16(at + (i / 4 * 16 + i / 2 % 2 * 8 + i % 2) * (DIM / 2) + group * 32);
        }
        return loaded;
    }

    template <bool MASKED, unsigned TILES, unsigned NT>
    KV_FN void add(const Group<TILES> &loaded, const Weights<TILES, NT> &weights, const Seen<TILES> &seen,
                   float (&sums)[BLOCKS][NT][4]) {
#pragma unroll
        for (unsigned m = 0; m < TILES; ++m) {
            unsigned words[4][4];
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                const uint4 x = loaded.rows[m][i];
                words[i][0] = x.x, words[i][1] = x.y, words[i][2] = x.z, words[i][3] = x.w;
            }
#pragma unroll
            for (unsigned block = 0; block < BLOCKS; ++block) {
                unsigned a[4] = {
                    bytes_of(words[0][block], words[1][block], 0x5410u),
                    bytes_of(words[0][block], words[1][block], 0x7632u),
                    bytes_of(words[2][block], words[3][block], 0x5410u),
                    bytes_of(words[2][block], words[3][block], 0x7632u)};
                if constexpr (MASKED) {
#pragma unroll
                    for (unsigned i = 0; i < 4; ++i) a[i] &= seen.pairs[m][i / 2];
                }
#pragma unroll
                for (unsigned n = 0; n < NT; ++n) weights.multiply(sums[block][n], a, m, n);
            }
        }
    }

    using Halves = PRODUCT;
    static constexpr bool SCALED = false, EXACT = false;
    template <unsigned>
    static constexpr unsigned RAW_OF = 0;

    // Eight lanes take as many units of a token: memory is asked by 128 bytes, and PITCH puts the units in other banks.
    template <unsigned RUN, unsigned PITCH>
    KV_FN void bring(unsigned to, const unsigned *page, unsigned first, unsigned valid) {
        share<DIM / 8 * RUN, BRINGERS>(threadIdx.x % BRINGERS, [&](unsigned i) {
            const unsigned chunk = i % (DIM / 8), token = i / (DIM / 8);
            copy16(to + (chunk * PITCH + token) * 16, page + (first + token) * (DIM / 2) + chunk * 4, token < valid);
        });
    }
};
