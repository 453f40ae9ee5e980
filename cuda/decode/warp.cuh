// What a warp does with a step: logits, softmax, weights, values.

// A warp's work on a chunk of vectors: the softmax so far, and what a step does to it. Lane 4g + t has vector 4n + t,
// of tokens g and g + 8 of a tile, and of outputs the channels that ValueTiles::channel gives for g.
struct Warp {
    const Params &params;
    const Shared &shared;
    unsigned lane;
    unsigned positions[NT];
    float scales[NT], biases[NT];
    // Maxima in base 2, sums of this lane's tokens.
    float m[NT], l[NT];
    float o[V_BLOCKS][2][NT];

    KV_METHOD void begin() {
#pragma unroll
        for (unsigned n = 0; n < NT; ++n) {
            const unsigned vector = 4 * n + lane % 4;
            positions[n] = shared.positions[vector];
            scales[n] = shared.scales[vector] * (SOFTCAP ? 1.0f : LOG2_E);
            biases[n] = shared.biases[vector] * (SOFTCAP ? 1.0f : LOG2_E);
            m[n] = EMPTY;
            l[n] = 0.0f;
#pragma unroll
            for (unsigned b = 0; b < V_BLOCKS; ++b) o[b][0][n] = o[b][1][n] = 0.0f;
        }
    }

    // Logits in base 2; the first LOADED tiles are there.
    template <unsigned LOADED>
    KV_METHOD void logits(const KeyTiles &keys, const KeyTiles::Tile *loaded, float (&s)[TILES][NT][2]) const {
#pragma unroll
        for (unsigned tile = 0; tile < TILES; ++tile) {
            Product::Sum sums[NT][4] = {};
            KeyTiles::each(tile < LOADED ? loaded[tile] : keys.load(tile), [&](unsigned step, const unsigned(&a)[4]) {
#pragma unroll
                for (unsigned n = 0; n < NT; ++n) {
                    const uint2 b = shared.queries[(step * NT + n) * 32 + lane];
                    Product::multiply(sums[n], a, b.x, b.y);
                }
            });
            const float2 factor = keys.scales(tile);
#pragma unroll
            for (unsigned n = 0; n < NT; ++n) {
                s[tile][n][0] = fmaf(Product::total(sums[n][0], sums[n][1]), factor.x * scales[n], biases[n]);
                s[tile][n][1] = fmaf(Product::total(sums[n][2], sums[n][3]), factor.y * scales[n], biases[n]);
                if constexpr (SOFTCAP) {
                    s[tile][n][0] = capped(s[tile][n][0], params) * LOG2_E;
                    s[tile][n][1] = capped(s[tile][n][1], params) * LOG2_E;
                }
            }
        }
    }

    // Which tokens of this lane each vector sees: bit 2 * tile + half.
    KV_METHOD void see(const Step &step, unsigned (&seen)[NT]) const {
#pragma unroll
        for (unsigned n = 0; n < NT; ++n) {
            seen[n] = 0u;
#pragma unroll
            for (unsigned i = 0; i < 2 * TILES; ++i) {
                const unsigned token = 8 * i + lane / 4;
                if (token < step.valid && visible(step.first + token, positions[n], params)) seen[n] |= 1u << i;
            }
        }
    }

    // From logits to probabilities relative to the new maxima; `shrink` is what earlier sums are multiplied by, `top`
    // the greatest probability.
    template <bool MASKED>
    KV_METHOD void soften(float (&s)[TILES][NT][2], const unsigned (&seen)[NT], float (&shrink)[NT], float (&top)[NT]) {
#pragma unroll
        for (unsigned n = 0; n < NT; ++n) {
            float most = EMPTY;
#pragma unroll
            for (unsigned i = 0; i < 2 * TILES; ++i) {
                float &x = s[i / 2][n][i % 2];
                if (MASKED && !(seen[n] >> i & 1u)) x = EMPTY;
                most = fmaxf(most, x);
            }
#pragma unroll
            for (unsigned other = 4; other < 32; other *= 2) most = fmaxf(most, __shfl_xor_sync(ALL, most, other));
            const float next = fmaxf(m[n], most);
            shrink[n] = exp2_of(m[n] - next);
            top[n] = exp2_of(most - next);
            m[n] = next;
            float sum = 0.0f;
#pragma unroll
            for (unsigned i = 0; i < 2 * TILES; ++i) {
                float &x = s[i / 2][n][i % 2];
                x = exp2_of(x - next);
                // Before any key is seen, what is hidden would have a probability of 1.
                if (MASKED && !(seen[n] >> i & 1u)) x = 0.0f;
                sum += x;
            }
            l[n] = fmaf(l[n], shrink[n], sum);
        }
    }

    template <bool MASKED>
    KV_METHOD void weigh(const ValueTiles &values, float (&p)[TILES][NT][2], const unsigned (&seen)[NT],
                         const float (&top)[NT], Weights &weights) const {
        if constexpr (ValueTiles::BYTES) {
            weigh_bytes<MASKED>(values, p, seen, top, weights);
        } else {
            weights.set(p, top, lane);
        }
    }

    // Weights in bytes: probabilities times the tokens' scales, and their bounds.
    template <bool MASKED>
    KV_METHOD void weigh_bytes(const ValueTiles &values, float (&p)[TILES][NT][2], const unsigned (&seen)[NT],
                               const float (&top)[NT], Weights &weights) const {
        float bounds[NT], greatest = 0.0f;
#pragma unroll
        for (unsigned n = 0; n < NT; ++n) bounds[n] = 0.0f;
#pragma unroll
        for (unsigned i = 0; i < 2 * TILES; ++i) {
            const float2 both = values.scales(i / 2);
            const float scale = i % 2 ? both.y : both.x;
            greatest = max_or_nan(greatest, scale);
#pragma unroll
            for (unsigned n = 0; n < NT; ++n) {
                float &x = p[i / 2][n][i % 2];
                x *= scale;
                if constexpr (MASKED) {
                    if (!(seen[n] >> i & 1u)) x = 0.0f;
                    bounds[n] = max_or_nan(bounds[n], x);
                }
            }
        }
        // Where all is seen one bound of the scales serves all vectors.
#pragma unroll
        for (unsigned other = 4; other < 32; other *= 2) {
            if constexpr (MASKED) {
#pragma unroll
                for (unsigned n = 0; n < NT; ++n) {
                    bounds[n] = max_or_nan(bounds[n], __shfl_xor_sync(ALL, bounds[n], other));
                }
            } else {
                greatest = max_or_nan(greatest, __shfl_xor_sync(ALL, greatest, other));
            }
        }
        if constexpr (!MASKED) {
#pragma unroll
            for (unsigned n = 0; n < NT; ++n) bounds[n] = top[n] * greatest;
        }
        weights.set(p, bounds, lane);
    }

    // Adds a group's values. Where masked, sums so far have been shrunk, and `row` is the one whose vectors (of the
    // chunk from `chunk` on) take the values.
    template <bool MASKED>
    KV_METHOD void add(unsigned group, const Group &loaded, const ValueTiles &values, const Weights &weights,
                       const Seen<TILES> &seen, const float (&shrink)[NT], unsigned row, unsigned chunk) {
        Weights::Sum sums[ValueTiles::BLOCKS][NT][4] = {};
        ValueTiles::template add<MASKED, TILES, NT>(loaded, weights, seen, sums);
#pragma unroll
        for (unsigned n = 0; n < NT; ++n) {
            const bool takes = !MASKED || (chunk + 4 * n + lane % 4) / GROUP == row;
            const float factor = values.scale() * weights.factor(n);
#pragma unroll
            for (unsigned i = 0; i < 2 * ValueTiles::BLOCKS; ++i) {
                const float sum = Weights::total(sums[i / 2][n][i % 2 * 2], sums[i / 2][n][i % 2 * 2 + 1]);
                float &to = o[group * ValueTiles::BLOCKS + i / 2][i % 2][n];
                if (takes) to = fmaf(sum, factor, MASKED ? to : to * shrink[n]);
            }
        }
    }

    // Adds a step's values where some vectors do not see some tokens: row by row, those that the row does not see
    // cleared. A weight of 0 would not stop a NaN.
    KV_METHOD void add_by_rows(const ValueTiles &values, const Weights &weights, const Step &step,
                               const float (&shrink)[NT], unsigned chunk, unsigned count) {
#pragma unroll
        for (unsigned n = 0; n < NT; ++n) {
#pragma unroll
            for (unsigned b = 0; b < V_BLOCKS; ++b) o[b][0][n] *= shrink[n], o[b][1][n] *= shrink[n];
        }
        const unsigned last = (min(chunk + 4 * NT, count) - 1) / GROUP;
#pragma unroll 1
        for (unsigned row = chunk / GROUP; row <= last; ++row) {
            const unsigned query = shared.positions[max(row * GROUP, chunk) - chunk];
            Seen<TILES> seen;
            unsigned any = 0u;
#pragma unroll
            for (unsigned i = 0; i < 2 * TILES; ++i) {
                const unsigned token = 8 * i + lane % 4 * 2;
                unsigned mask = 0u;
                if (token < step.valid && visible(step.first + token, query, params)) mask |= 0xffffu;
                if (token + 1 < step.valid && visible(step.first + token + 1, query, params)) mask |= 0xffff0000u;
                seen.pairs[i / 2][i % 2] = mask;
                any |= mask;
            }
            // What belongs to the whole page, such as a scale, must not reach a row that sees nothing of it.
            if (!__any_sync(ALL, any != 0u)) continue;
#pragma unroll
            for (unsigned group = 0; group < ValueTiles::GROUPS; ++group) {
                add<true>(group, values.template load<TILES>(group), values, weights, seen, shrink, row, chunk);
            }
        }
    }

    // A step of which some vectors do not see some tokens.
    KV_METHOD void take_masked(const KeyTiles &keys, const ValueTiles &values, const Step &step, unsigned chunk,
                               unsigned count) {
        float s[TILES][NT][2], shrink[NT], top[NT];
        unsigned seen[NT];
        see(step, seen);
        logits<0>(keys, nullptr, s);
        soften<true>(s, seen, shrink, top);
        Weights weights;
        weigh<true>(values, s, seen, top, weights);
        if constexpr (ValueTiles::BYTES) {
            // Codes are never NaN, and weights of hidden tokens are 0: no masks.
            add_all(values, weights, shrink);
        } else {
            add_by_rows(values, weights, step, shrink, chunk, count);
        }
    }

    KV_METHOD void add_all(const ValueTiles &values, const Weights &weights, const float (&shrink)[NT]) {
#pragma unroll
        for (unsigned i = 0; i < ValueTiles::GROUPS; ++i) {
            add<false>(i, values.template load<TILES>(i), values, weights, Seen<TILES>{}, shrink, 0u, 0u);
        }
    }
};
