// Pages of codes of 2, 3 and 4 bits as tiles of products in whole numbers of 8 bits: codebooks are integers. The
// layout was made for these tiles; how it places bits is told with the formats.

// Codebooks as tables of bytes: four(codes) gives the values of four codes, one in each of the lower four nibbles.
template <unsigned BITS>
struct Codebook;

template <>
struct Codebook<2> {
    static constexpr float UNIT = 1.0f / 40.9f;
    // -64, -20, 20, 64.
    KV_FN unsigned four(unsigned codes) { return bytes_of(0x4014ecc0u, 0x4014ecc0u, codes); }
};

template <>
struct Codebook<3> {
    static constexpr float UNIT = 1.0f / 40.9f;
    // By hi + 4 lo, of a code 2 hi + lo: -88, -31, 10, 55; -55, -10, 31, 88.
    KV_FN unsigned four(unsigned codes) { return bytes_of(0x370ae1a8u, 0x581ff6c9u, codes); }
};

template <>
struct Codebook<4> {
    static constexpr float UNIT = 1.0f / 38.14f;
    // -104, -79, -62, -48, -36, -25, -15, -5 and their opposites. A selector's upper bit would ask for signs.
    KV_FN unsigned four(unsigned codes) {
        const unsigned index = codes & 0x7777u, upper = codes & 0x8888u;
        const unsigned positive = bytes_of(0x8000u, 0u, upper | upper >> 3);
        const unsigned low = bytes_of(0xd0c2b198u, 0xfbf1e7dcu, index);
        const unsigned high = bytes_of(0x24190f05u, 0x684f3e30u, index);
        return (low & ~positive) | (high & positive);
    }
};

// Geometry of a plane's sub-tile of P tokens: words of a block of 128 channels (the last one may have 64).
template <unsigned BITS, unsigned DIM, unsigned TOKENS>
struct CodePage {
    static constexpr unsigned P = TOKENS < 64 ? TOKENS : 64;
    static constexpr unsigned PLANE2 = P * DIM / 16;
    static constexpr unsigned FIRST_PLANE = BITS == 4 ? 2 * PLANE2 : PLANE2;
    static constexpr unsigned SUB_TILES = TOKENS / P;
    static constexpr unsigned GAMMA_AT = FIRST_PLANE * SUB_TILES;
    static constexpr unsigned PLANE1_AT = GAMMA_AT + TOKENS / 2;
    static_assert(DIM % 64 == 0 && P % 16 == 0, "blocks of 64 channels, tiles of 16 tokens");

    const unsigned *first_plane;
    const unsigned *plane1;
    unsigned gamma[P / 16];

    // The sub-tile that begins with token `first`; lanes of one g read the scales of tokens T % 8 = g.
    KV_METHOD void open(const unsigned *page, unsigned first, unsigned lane) {
        const unsigned sub_tile = first / P;
        first_plane = page + sub_tile * FIRST_PLANE;
        plane1 = page + PLANE1_AT + sub_tile * (PLANE2 / 2);
        const unsigned *own = page + GAMMA_AT + sub_tile * (P / 2) + lane / 4 * (P / 16);
        if constexpr (P == 64) {
            const uint4 x = load16(own);
            gamma[0] = x.x, gamma[1] = x.y, gamma[2] = x.z, gamma[3] = x.w;
        } else if constexpr (P == 32) {
            const uint2 x = load8(own);
            gamma[0] = x.x, gamma[1] = x.y;
        } else {
            gamma[0] = __ldg(own);
        }
    }

    KV_METHOD float2 scales(unsigned m) const {
        return make_float2(kv_f16(gamma[m] & 0xffffu), kv_f16(gamma[m] >> 16));
    }

    // I words of a unit, and what belongs to them of plane1.
    template <unsigned I>
    struct Unit {
        unsigned words[BITS == 4 ? 2 * I : I];
        unsigned low_bits[BITS == 3 ? I / 2 : 1];
    };

    // Unit j of row t of a block whose rows have J units and whose first word of plane2 is `base2`.
    template <unsigned I, unsigned J>
    KV_METHOD Unit<I> load(unsigned base2, unsigned t, unsigned j) const {
        Unit<I> unit;
        if constexpr (BITS == 4) {
#pragma unroll
            for (unsigned half = 0; half < I / 2; ++half) {
                const uint4 x = load16(first_plane + 2 * base2 + ((t * (I / 2) + half) * J + j) * 4);
                unit.words[4 * half] = x.x, unit.words[4 * half + 1] = x.y;
                unit.words[4 * half + 2] = x.z, unit.words[4 * half + 3] = x.w;
            }
        } else {
            read<I>(first_plane + base2 + (t * J + j) * I, unit.words);
        }
        if constexpr (BITS == 3) read<I / 2>(plane1 + base2 / 2 + (t / 2 * J + j) * I + t % 2 * (I / 2), unit.low_bits);
        return unit;
    }

    // The fragment of word i.
    template <unsigned I>
    KV_FN void fragment(const Unit<I> &unit, unsigned i, unsigned (&a)[4]) {
        unsigned s0, s1;
        if constexpr (BITS == 4) {
            s0 = unit.words[2 * i];
            s1 = unit.words[2 * i + 1];
        } else {
            s0 = unit.words[i] & 0x33333333u;
            s1 = unit.words[i] >> 2 & 0x33333333u;
        }
        if constexpr (BITS == 3) {
            // Bit 4n + 2(i%2) + s of plane1 comes to stand above the two of plane2.
            const unsigned bits = unit.low_bits[i / 2];
            s0 |= (i % 2 ? bits : bits << 2) & 0x44444444u;
            s1 |= (i % 2 ? bits >> 1 : bits << 1) & 0x44444444u;
        }
        a[0] = Codebook<BITS>::four(s0);
        a[1] = Codebook<BITS>::four(s0 >> 16);
        a[2] = Codebook<BITS>::four(s1);
        a[3] = Codebook<BITS>::four(s1 >> 16);
    }

private:
    template <unsigned COUNT>
    KV_FN void read(const unsigned *from, unsigned (&to)[COUNT]) {
        if constexpr (COUNT == 4) {
            const uint4 x = load16(from);
            to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
        } else if constexpr (COUNT == 2) {
            const uint2 x = load8(from);
            to[0] = x.x, to[1] = x.y;
        } else {
            to[0] = __ldg(from);
        }
    }
};

// Keys. Lane 4g + t reads channels 32i + 8t to 32i + 8t + 7 of tokens g and g + 8.
template <unsigned BITS, unsigned DIM, unsigned TOKENS>
struct CodeKeys {
    using Product = BytesProduct;
    using Page = CodePage<BITS, DIM, TOKENS>;
    static constexpr unsigned STEPS = DIM / 32;
    static constexpr unsigned J = Page::P / 2;
    Page page;
    unsigned t, g;

    KV_FN unsigned channel(unsigned step, unsigned t, unsigned j) { return 32 * step + 8 * t + j; }

    KV_METHOD void open(const unsigned *from, unsigned first, unsigned lane) {
        page.open(from, first, lane);
        t = lane % 4;
        g = lane / 4;
    }

    // Units of the full blocks, and of a last one of 64 channels.
    struct Tile {
        typename Page::template Unit<4> full[DIM / 128 + 1];
        typename Page::template Unit<2> last;
    };

    KV_METHOD Tile load(unsigned m) const {
        Tile tile;
#pragma unroll
        for (unsigned block = 0; block < DIM / 128; ++block) {
            tile.full[block] = page.template load<4, J>(block * 16 * J, t, 8 * m + g);
        }
        if constexpr (DIM % 128 != 0) tile.last = page.template load<2, J>(DIM / 128 * 16 * J, t, 8 * m + g);
        return tile;
    }

    template <class Use>
    KV_FN void each(const Tile &tile, Use use) {
        unsigned a[4];
#pragma unroll
        for (unsigned step = 0; step < STEPS; ++step) {
            if (step / 4 < DIM / 128) {
                Page::template fragment<4>(tile.full[step / 4], step % 4, a);
            } else {
                Page::template fragment<2>(tile.last, step % 2, a);
            }
            use(step, a);
        }
    }

    KV_METHOD float2 scales(unsigned m) const {
        const float2 x = page.scales(m);
        return make_float2(x.x * Codebook<BITS>::UNIT, x.y * Codebook<BITS>::UNIT);
    }
};

// Values. Lane 4g + t reads four channels of tokens 2t, 2t + 1, 2t + 8 and 2t + 9 of each 16; weights have the scales.
template <unsigned BITS, unsigned DIM, unsigned TOKENS>
struct CodeValues {
    using Page = CodePage<BITS, DIM, TOKENS>;
    static constexpr bool BYTES = true;
    static constexpr unsigned GROUPS = DIM / 32;
    static constexpr unsigned BLOCKS = 2;
    static_assert(Page::P >= 32, "a product is over 32 tokens");
    template <unsigned TILES, unsigned NT>
    using Weights = BytesWeights<TILES, NT>;
    Page page;
    unsigned t, g;

    // In blocks of 128 channels a unit's number is 8((C/4)%4) + (C/16)%8, in a last one of 64 it is 4((C/4)%4) +
    // (C/16)%4.
    KV_FN unsigned channel(unsigned group, unsigned block, unsigned odd, unsigned g) {
        const unsigned rest = 2 * block + odd, unit = group % 4 * 8 + g;
        if (group / 4 < DIM / 128) return group / 4 * 128 + unit % 8 * 16 + unit / 8 * 4 + rest;
        return DIM / 128 * 128 + unit % 4 * 16 + unit / 4 * 4 + rest;
    }

    KV_METHOD void open(const unsigned *from, unsigned first, unsigned lane) {
        page.open(from, first, lane);
        t = lane % 4;
        g = lane / 4;
    }

    KV_METHOD float scale() const { return Codebook<BITS>::UNIT; }
    KV_METHOD float2 scales(unsigned m) const { return page.scales(m); }

    template <unsigned TILES>
    using Group = typename Page::template Unit<TILES>;

    template <unsigned TILES>
    KV_METHOD Group<TILES> load(unsigned group) const {
        static_assert(TILES == Page::P / 16, "a step is a sub-tile");
        const unsigned base2 = group / 4 * 128 * TILES, j = group % 4 * 8 + g;
        if (group / 4 < DIM / 128) return page.template load<TILES, 32>(base2, t, j);
        return page.template load<TILES, 16>(base2, t, j);
    }

    template <bool MASKED, unsigned TILES, unsigned NT>
    KV_FN void add(const Group<TILES> &loaded, const Weights<TILES, NT> &weights, const Seen<TILES> &,
                   int (&sums)[BLOCKS][NT][4]) {
        // Words of channels 0 and 1, then 2 and 3; of each those of 32 tokens after one another.
#pragma unroll
        for (unsigned i = 0; i < TILES; ++i) {
            unsigned a[4];
            Page::template fragment<TILES>(loaded, i, a);
#pragma unroll
            for (unsigned n = 0; n < NT; ++n) weights.multiply(sums[i / (TILES / 2)][n], a, i % (TILES / 2), n);
        }
    }
};
