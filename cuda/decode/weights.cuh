// Weights of a step's tokens as the columns of products with values. Lane 4g + t brings those of tokens 16m + g and
// 16m + g + 8 for vector 4n + t, as products with keys leave them.

// In 16-bit floats. Of a vector's two columns one takes the first eight tokens of a tile, the other the last eight:
// that is what a transposition of the lanes' pairs gives.
template <class Product, unsigned TILES, unsigned NT, unsigned PARTS>
struct HalfWeights {
    using Sum = float;
    unsigned columns[PARTS][TILES][NT][2];

    KV_METHOD void set(const float (&p)[TILES][NT][2], const float (&)[NT], unsigned lane) {
        const bool odd = lane / 4 % 2;
#pragma unroll
        for (unsigned m = 0; m < TILES; ++m) {
#pragma unroll
            for (unsigned n = 0; n < NT; ++n) {
                float x = p[m][n][0], y = p[m][n][1];
#pragma unroll
                for (unsigned part = 0; part < PARTS; ++part) {
                    const unsigned both = transposed(Product::pack(x, y));
                    columns[part][m][n][0] = odd ? 0u : both;
                    columns[part][m][n][1] = odd ? both : 0u;
                    x = Product::rest(x);
                    y = Product::rest(y);
                }
            }
        }
    }

    KV_METHOD void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned m, unsigned n) const {
#pragma unroll
        for (unsigned part = 0; part < PARTS; ++part) {
            Product::multiply(sum, a, columns[part][m][n][0], columns[part][m][n][1]);
        }
    }

    KV_FN float total(float even, float odd) { return even + odd; }
    KV_METHOD float factor(unsigned) const { return 1.0f; }
};

// From numbers of two bytes to columns of bytes: of a vector's columns the even one takes the upper bytes, the odd one
// the lower ones, by a lane's selector. It brings those of tokens g and g + 8, and gets 2t, 2t + 1, 2t + 8 and 2t + 9.
KV_FN unsigned byte_columns(unsigned both, unsigned selector) {
    const unsigned own = transposed(both), other = __shfl_xor_sync(0xffffffffu, own, 4);
    return bytes_of(own, other, selector);
}

KV_FN unsigned selector_of(unsigned lane) { return lane / 4 % 2 ? 0x2064u : 0x7531u; }

// In e4m3 relative to the greatest weight of the step, in PARTS parts: 1 or 2.
template <unsigned TILES, unsigned NT, unsigned PARTS>
struct E4m3Weights {
    using Sum = float;
    using Product = E4m3Product<PARTS>;
    unsigned columns[TILES][NT];
    float units[NT];

    // `greatest`: of each vector.
    KV_METHOD void set(const float (&p)[TILES][NT][2], const float (&greatest)[NT], unsigned lane) {
        const unsigned selector = selector_of(lane);
#pragma unroll
        for (unsigned n = 0; n < NT; ++n) {
            const float bound = fmaxf(greatest[n], 1e-30f), down = __fdividef(256.0f, bound);
            units[n] = bound * (1.0f / 256.0f);
#pragma unroll
            for (unsigned m = 0; m < TILES; ++m) {
                float x = p[m][n][0] * down, y = p[m][n][1] * down;
                const unsigned upper = Product::codes(x, y);
                unsigned lower = 0u;
                if constexpr (PARTS > 1) {
                    Product::take(upper, x, y);
                    lower = Product::codes(x, y);
                }
                columns[m][n] = byte_columns(bytes_of(lower, upper, 0x5140u), selector);
            }
        }
    }

    // Tiles 2k and 2k + 1, of which the last may not be there.
    KV_METHOD void multiply(float (&sum)[4], const unsigned (&a)[4], unsigned k, unsigned n) const {
        Product::multiply(sum, a, columns[2 * k][n], 2 * k + 1 < TILES ? columns[2 * k + 1 < TILES ? 2 * k + 1 : 0][n] : 0u);
    }

    KV_FN float total(float even, float odd) { return even + odd; }
    KV_METHOD float factor(unsigned n) const { return units[n]; }
};

// As whole numbers of 16 bits relative to the greatest weight of the step, in bytes.
template <unsigned TILES, unsigned NT>
struct BytesWeights {
    using Sum = int;
    unsigned columns[TILES][NT];
    float units[NT];

    // `greatest`: a bound of the weights of each vector, NaN where one of them is.
    KV_METHOD void set(const float (&p)[TILES][NT][2], const float (&greatest)[NT], unsigned lane) {
        const unsigned selector = selector_of(lane);
#pragma unroll
        for (unsigned n = 0; n < NT; ++n) {
            const float bound = max_or_nan(greatest[n], 1e-30f);
            const float down = __fdividef(65535.0f, bound);
            units[n] = bound * (1.0f / 65535.0f);
#pragma unroll
            for (unsigned m = 0; m < TILES; ++m) {
                // 2^23 more, and the number stands in the lowest bits.
                const unsigned x = __float_as_uint(fmaf(p[m][n][0], down, 8388608.0f));
                const unsigned y = __float_as_uint(fmaf(p[m][n][1], down, 8388608.0f));
                columns[m][n] = byte_columns(bytes_of(x, y, 0x5410u), selector);
            }
        }
    }

    // Tiles 2k and 2k + 1.
    KV_METHOD void multiply(int (&sum)[4], const unsigned (&a)[4], unsigned k, unsigned n) const {
        BytesProduct::multiply_unsigned(sum, a, columns[2 * k][n], columns[2 * k + 1][n]);
    }

    KV_FN float total(int even, int odd) { return BytesProduct::total(even, odd); }
    KV_METHOD float factor(unsigned n) const { return units[n]; }
};

// Which tokens of a step a row sees, as masks of the pairs of tokens that a lane holds of values.
template <unsigned TILES>
struct Seen {
    unsigned pairs[TILES][2];
};
