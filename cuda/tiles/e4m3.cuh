// Pages of e4m3 codes as tiles of tensor-core products that take the codes as they are (E4m3Product), from the same
// loads as tiles/fp8.cuh; and the choice between the two.

// Keys: of a lane's sixteen channels, eight to a product.
template <unsigned DIM, unsigned TOKENS, unsigned PARTS>
struct E4m3Keys : Fp8KeysInHalves<DIM, TOKENS> {
    using Product = E4m3Product<PARTS>;
    using Tile = typename Fp8KeysInHalves<DIM, TOKENS>::Tile;
    static constexpr unsigned STEPS = DIM / 32 * Product::PASSES;

    KV_FN unsigned channel(unsigned step, unsigned t, unsigned j) {
        const unsigned own = step / Product::PASSES;
        return own / 2 * 64 + 16 * t + own % 2 * 8 + j;
    }

    template <class Use>
    KV_FN void each(const Tile &tile, Use use) {
#pragma unroll
        for (unsigned i = 0; i < DIM / 64; ++i) {
#pragma unroll
            for (unsigned pass = 0; pass < Product::PASSES; ++pass) {
                use(2 * i * Product::PASSES + pass, {tile.low[i].x, tile.high[i].x, tile.low[i].y, tile.high[i].y});
            }
#pragma unroll
            for (unsigned pass = 0; pass < Product::PASSES; ++pass) {
                use((2 * i + 1) * Product::PASSES + pass, {tile.low[i].z, tile.high[i].z, tile.low[i].w, tile.high[i].w});
            }
        }
    }
};

// Four tokens' words of four channels as four channels' words of four tokens.
KV_FN void channels_of(unsigned (&x)[4]) {
    const unsigned a = bytes_of(x[0], x[1], 0x5140u), b = bytes_of(x[2], x[3], 0x5140u);
    const unsigned c = bytes_of(x[0], x[1], 0x7362u), d = bytes_of(x[2], x[3], 0x7362u);
    x[0] = bytes_of(a, b, 0x5410u), x[1] = bytes_of(a, b, 0x7632u);
    x[2] = bytes_of(c, d, 0x5410u), x[3] = bytes_of(c, d, 0x7632u);
}

// Values: a product is over two tiles of tokens, or over one and nothing.
template <unsigned DIM, unsigned TOKENS, unsigned WORDS, unsigned PARTS>
struct E4m3Values : Fp8ValuesInHalves<DIM, TOKENS, WORDS> {
    using Halves = Fp8ValuesInHalves<DIM, TOKENS, WORDS>;
    static constexpr unsigned BLOCKS = Halves::BLOCKS;
    template <unsigned TILES, unsigned NT>
    using Weights = E4m3Weights<TILES, NT, PARTS>;
    template <unsigned TILES>
    using Group = typename Halves::template Group<TILES>;

    template <bool MASKED, unsigned TILES, unsigned NT>
    KV_FN void add(const Group<TILES> &loaded, const Weights<TILES, NT> &weights, const Seen<TILES> &seen,
                   float (&sums)[BLOCKS][NT][4]) {
#pragma unroll
        for (unsigned k = 0; k < (TILES + 1) / 2; ++k) {
#pragma unroll
            for (unsigned word = 0; word < WORDS; ++word) {
                unsigned x[2][4] = {};
#pragma unroll
                for (unsigned m = 2 * k; m < 2 * k + 2 && m < TILES; ++m) {
#pragma unroll
                    for (unsigned i = 0; i < 4; ++i) x[m % 2][i] = loaded.rows[m][i][word];
                    channels_of(x[m % 2]);
                    if constexpr (MASKED) {
                        // Of four tokens, as of pairs.
                        const unsigned mask = bytes_of(seen.pairs[m][0], seen.pairs[m][1], 0x6420u);
#pragma unroll
                        for (unsigned i = 0; i < 4; ++i) x[m % 2][i] &= mask;
                    }
                }
#pragma unroll
                for (unsigned half = 0; half < 2; ++half) {
                    const unsigned a[4] = {x[0][2 * half], x[0][2 * half + 1], x[1][2 * half], x[1][2 * half + 1]};
#pragma unroll
                    for (unsigned n = 0; n < NT; ++n) weights.multiply(sums[2 * word + half][n], a, k, n);
                }
            }
        }
    }
};

template <bool FIRST, class A, class B>
struct Either {
    using Type = A;
};

template <class A, class B>
struct Either<false, A, B> {
    using Type = B;
};

template <unsigned DIM, unsigned TOKENS>
using Fp8Keys =
    typename Either<QUERY_PARTS != 0, E4m3Keys<DIM, TOKENS, QUERY_PARTS>, Fp8KeysInHalves<DIM, TOKENS>>::Type;

template <unsigned DIM, unsigned TOKENS, unsigned WORDS>
using Fp8Values = typename Either<WEIGHT_PARTS != 0, E4m3Values<DIM, TOKENS, WORDS, WEIGHT_PARTS>,
                                  Fp8ValuesInHalves<DIM, TOKENS, WORDS>>::Type;
