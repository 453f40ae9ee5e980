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
template <unsigned BITS, unsigned DIM, unsigned TOKENS, class From = FromMemory>
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
                const uint4 x = From::words4(first_plane + 2 * base2 + ((t * (I / 2) + half) * J + j) * 4);
                unit.words[4 * half] = x.x, unit.words[4 * half + 1] = x.y;
                unit.words[4 * half + 2] = x.z, unit.words[4 * half + 3] = x.w;
            }
        } else {
            read<I>(first_plane + base2 + (t * J + j) * I, unit.words);
        }
        if constexpr (BITS == 3) read<I / 2>(plane1 + base2 / 2 + (t / 2 * J + j) * I + t % 2 * (I / 2), unit.low_bits);
        return unit;
    }

    // Words 2h and 2h + 1 of a unit of I words, as a unit of two.
    template <unsigned I, unsigned J>
    KV_METHOD Unit<2> load_pair(unsigned base2, unsigned t, unsigned j, unsigned h) const {
        Unit<2> pair;
        if constexpr (BITS == 4) {
            read<4>(first_plane + 2 * base2 + ((t * (I / 2) + h) * J + j) * 4, pair.words);
        } else {
            read<2>(first_plane + base2 + (t * J + j) * I + 2 * h, pair.words);
        }
        if constexpr (BITS == 3) read<1>(plane1 + base2 / 2 + (t / 2 * J + j) * I + t % 2 * (I / 2) + h, pair.low_bits);
        return pair;
    }

    // Raw units of a sub-tile: its planes and scalars one after another.
    static constexpr unsigned LOW_BITS = BITS == 3 ? PLANE2 / 2 : 0;
    static constexpr unsigned RAW = (FIRST_PLANE + P / 2 + LOW_BITS) / 4;

    KV_FN void bring(unsigned to, const unsigned *page, unsigned first) {
        const unsigned sub_tile = first / P;
        share<RAW, BRINGERS>(threadIdx.x % BRINGERS, [&](unsigned i) {
            const unsigned word = 4 * i;
            const unsigned *from = page + word;
            if constexpr (SUB_TILES > 1) {
                if (word < FIRST_PLANE) {
                    from += sub_tile * FIRST_PLANE;
                } else if (word < FIRST_PLANE + P / 2) {
                    from += GAMMA_AT - FIRST_PLANE + sub_tile * (P / 2);
                } else {
                    from += PLANE1_AT - FIRST_PLANE - P / 2 + sub_tile * LOW_BITS;
                }
            }
            copy16(to + i * 16, from, true);
        });
    }

    // The sub-tile as its raw units have it; and the factors of RUN of its tokens from `first` on, `valid` of which
    // exist.
    template <unsigned RUN>
    KV_METHOD void open_raw(const uint4 *raw, float *scales, unsigned first, unsigned valid) {
        first_plane = (const unsigned *)raw;
        plane1 = first_plane + FIRST_PLANE + P / 2;
        const unsigned own = threadIdx.x % BRINGERS;
        if (own >= RUN) return;
        const unsigned token = first % P + own, number = P / 8 * (token % 8) + token / 16 * 2 + token / 8 % 2;
        const unsigned both = first_plane[FIRST_PLANE + number / 2];
        const float scale = kv_f16(number % 2 ? both >> 16 : both & 0xffffu) * Codebook<BITS>::UNIT;
        scales[own] = own < valid ? scale : 0.0f;
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
            const uint4 x = From::words4(from);
            to[0] = x.x, to[1] = x.y, to[2] = x.z, to[3] = x.w;
        } else if constexpr (COUNT == 2) {
            const uint2 x = From::words2(from);
            to[0] = x.x, to[1] = x.y;
        } else {
            to[0] = From::word(from);
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

    using Halves = F16Product;
    using Raw = CodePage<BITS, DIM, TOKENS, FromShared>;
    static constexpr bool SCALED = true, EXACT = true;
    template <unsigned>
    static constexpr unsigned RAW_OF = Raw::RAW;

    template <unsigned RUN, unsigned PITCH>
    KV_FN void bring(unsigned to, const unsigned *page, unsigned first, unsigned) {
        Raw::bring(to, page, first);
    }

    // A thread takes two words: of sixteen channels of two tokens each.
    template <unsigned RUN, unsigned PITCH>
    KV_FN void spread(const uint4 *raw, uint4 *panel, float *scales, unsigned first, unsigned valid) {
        constexpr unsigned ROWS_OF_UNITS = RUN / 2, FULL = DIM / 128 * 8 * ROWS_OF_UNITS;
        Raw page;
        page.template open_raw<RUN>(raw, scales, first, valid);
        share<DIM / 16 * ROWS_OF_UNITS, BRINGERS>(threadIdx.x % BRINGERS, [&](unsigned i) {
            const unsigned row = i % ROWS_OF_UNITS, rest = i / ROWS_OF_UNITS, t = rest % 4;
            const unsigned j = first % Page::P / 2 + row;
            // Every four groups of units are 32 * 2 channels.
            const unsigned h = i < FULL ? rest / 4 % 2 : 0u;
            uint4 *to = panel + (rest / 4 * 8 + t) * PITCH + row / 8 * 16 + row % 8;
            typename Raw::template Unit<2> pair;
            if (DIM % 128 == 0 || i < FULL) {
                pair = page.template load_pair<4, J>(rest / 8 * 16 * J, t, j, h);
            } else {
                pair = page.template load_pair<2, J>(DIM / 128 * 16 * J, t, j, h);
            }
#pragma unroll
            for (unsigned word = 0; word < 2; ++word) {
                unsigned a[4];
                Raw::template fragment<2>(pair, word, a);
#pragma unroll
                for (unsigned other = 0; other < 2; ++other) {
                    const unsigned low = a[other] ^ 0x80808080u, high = a[2 + other] ^ 0x80808080u;
                    to[word * 4 * PITCH + other * 8] =
                        make_uint4(f16_of_bytes(low, 0x4140u), f16_of_bytes(low, 0x4342u), f16_of_bytes(high, 0x4140u),
                                   f16_of_bytes(high, 0x4342u));
                }
            }
        });
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

    using Halves = F16Product;
    using Raw = CodePage<BITS, DIM, TOKENS, FromShared>;
    static constexpr bool SCALED = true, EXACT = true;
    template <unsigned>
    static constexpr unsigned RAW_OF = Raw::RAW;

    template <unsigned RUN, unsigned PITCH>
    KV_FN void bring(unsigned to, const unsigned *page, unsigned first, unsigned) {
        Raw::bring(to, page, first);
    }

    // A thread takes four channels of eight tokens of every 32.
    template <unsigned RUN, unsigned PITCH>
    KV_FN void spread(const uint4 *raw, uint4 *panel, float *scales, unsigned first, unsigned valid) {
        constexpr unsigned TILES = Page::P / 16, FULL = DIM / 128 * 128;
        Raw page;
        page.template open_raw<RUN>(raw, scales, first, valid);
        share<DIM, BRINGERS>(threadIdx.x % BRINGERS, [&](unsigned i) {
            typename Raw::template Unit<TILES> unit;
            unsigned t, channel;
            // Where units of neighbouring channels stand in the same banks, lanes take other tokens.
            constexpr bool SAME_BANKS = PITCH % 8 == 0;
            if (DIM % 128 == 0 || i < FULL) {
                const unsigned j = SAME_BANKS ? i / 4 % 4 * 8 + i / 16 % 8 : i % 32;
                t = SAME_BANKS ? i % 4 : i / 32 % 4;
                channel = i / 128 * 128 + j % 8 * 16 + j / 8 * 4;
                unit = page.template load<TILES, 32>(i / 128 * 128 * TILES, t, j);
            } else {
                const unsigned j = SAME_BANKS ? i / 4 % 4 * 4 + i / 16 % 4 : i % 16;
                t = SAME_BANKS ? i % 4 : (i - FULL) / 16;
                channel = FULL + j % 4 * 16 + j / 4 * 4;
                unit = page.template load<TILES, 16>(DIM / 128 * 128 * TILES, t, j);
            }
            uint2 *to = (uint2 *)(panel + channel / 8 * PITCH + 2 * t) + channel / 4 % 2;
#pragma unroll
            for (unsigned k = 0; k < RUN / 32; ++k) {
                const unsigned word = first % Page::P / 32 + k;
                unsigned a[4], b[4];
                if (RUN == Page::P || word == 0) {
                    Raw::template fragment<TILES>(unit, RUN == Page::P ? k : 0, a);
                    Raw::template fragment<TILES>(unit, TILES / 2 + (RUN == Page::P ? k : 0), b);
                } else {
                    Raw::template fragment<TILES>(unit, TILES / 2 - 1, a);
                    Raw::template fragment<TILES>(unit, TILES - 1, b);
                }
#pragma unroll
                for (unsigned x = 0; x < 4; ++x) a[x] ^= 0x80808080u, b[x] ^= 0x80808080u;
                // Tokens 2t, 2t + 1, 2t + 8 and 2t + 9 of 16.
#pragma unroll
                for (unsigned x = 0; x < 8; ++x) {
                    const unsigned half = x / 4, selector = x / 2 % 2 ? 0x7362u : 0x5140u;
                    const unsigned low = bytes_of(a[2 * half], a[2 * half + 1], selector);
                    const unsigned high = bytes_of(b[2 * half], b[2 * half + 1], selector);
                    const unsigned one = x % 2 ? 0x4342u : 0x4140u;
                    to[2 * (32 * k + 16 * half + x / 2 % 2 * 8 + x % 2)] =
                        make_uint2(f16_of_bytes(low, one), f16_of_bytes(high, one));
                }
            }
        });
    }
};
