// What a warp does with a step between products: logits, softmax, weights.

// Of a lane: logits or weights of a step's tokens, a number a row, a bit a token.
using Scores = float[MATRICES][T_BLOCKS][4];
using Factors = float[MATRICES][2];
using Bits = unsigned[MATRICES][2];

// A warp's vectors. Lane 4g + t has of matrix i the rows g and g + 8: of logits tokens 8j + 2t and the next, of outputs
// such channels.
struct Rows {
    const Params &params;
    Shared &shared;
    // Maxima of logits in units of 1 / scales, sums of this lane's tokens, factors to base 2.
    Factors m, l, scales;
    float o[MATRICES][V_BLOCKS][4];
    // Outputs are in units of 2^(exponent - 127).
    unsigned exponent;

    KV_FN unsigned row(unsigned matrix, unsigned half) {
        return (threadIdx.x - FIRST_THREAD) / 32 * 16 * MATRICES + matrix * 16 + half * 8 + threadIdx.x % 32 / 4;
    }

    KV_METHOD void begin() {
        exponent = 1u;
#pragma unroll
        for (unsigned i = 0; i < MATRICES; ++i) {
#pragma unroll
            for (unsigned h = 0; h < 2; ++h) {
                m[i][h] = EMPTY;
                l[i][h] = 0.0f;
                scales[i][h] = SOFTCAP ? 1.0f : shared.scales[row(i, h)] * LOG2_E;
            }
#pragma unroll
            for (unsigned b = 0; b < V_BLOCKS; ++b) o[i][b][0] = o[i][b][1] = o[i][b][2] = o[i][b][3] = 0.0f;
        }
    }

    // From products to logits: the tokens' factors, and the cap.
    KV_METHOD void finish_logits(Scores &s, const float *key_scales) const {
        if constexpr (KeyTiles::SCALED) {
#pragma unroll
            for (unsigned j = 0; j < T_BLOCKS; ++j) {
                const float2 scale = *(const float2 *)(key_scales + 8 * j + threadIdx.x % 4 * 2);
#pragma unroll
                for (unsigned i = 0; i < MATRICES; ++i) {
                    s[i][j][0] *= scale.x, s[i][j][1] *= scale.y, s[i][j][2] *= scale.x, s[i][j][3] *= scale.y;
                }
            }
        }
        if constexpr (SOFTCAP) {
#pragma unroll
            for (unsigned i = 0; i < MATRICES; ++i) {
#pragma unroll
                for (unsigned x = 0; x < 4; ++x) {
                    const float scale = shared.scales[row(i, x / 2)], bias = shared.biases[row(i, x / 2)];
#pragma unroll
                    for (unsigned j = 0; j < T_BLOCKS; ++j) s[i][j][x] = capped(fmaf(s[i][j][x], scale, bias));
                }
            }
        }
    }

    // The soft cap in base 2, by an exponential that cannot overflow; NaN stays NaN.
    KV_METHOD float capped(float logit) const {
        const float e = exp2_of(-2.0f * LOG2_E * fabsf(logit / params.softcap));
        const float t = params.softcap * (1.0f - e) / (1.0f + e) * LOG2_E;
        return logit < 0.0f ? -t : t;
    }

    // Which tokens each of this lane's rows sees: bit 2j + odd. `piece` is the step's first.
    KV_METHOD void see(const Piece *piece, Bits &seen) const {
#pragma unroll
        for (unsigned i = 0; i < MATRICES; ++i) {
#pragma unroll
            for (unsigned h = 0; h < 2; ++h) {
                const unsigned query = shared.positions[row(i, h)];
                unsigned bits = 0u;
#pragma unroll
                for (unsigned x = 0; x < 2 * T_BLOCKS; ++x) {
                    const unsigned token = x / 2 * 8 + threadIdx.x % 4 * 2 + x % 2, in_piece = token % RUN;
                    const Piece &of = piece[x / 2 * 8 / RUN];
                    if (in_piece < of.valid && visible(of.first + in_piece, query, params)) bits |= 1u << x;
                }
                seen[i][h] = bits;
            }
        }
    }

    // From logits to probabilities relative to the new maxima; `shrink` is what outputs so far are to be multiplied by.
    // Whether that is anything but 1 for some row of the warp.
    template <bool MASKED>
    KV_METHOD bool soften(Scores &s, const Bits &seen, Factors &shrink) {
        bool changed = false;
#pragma unroll
        for (unsigned i = 0; i < MATRICES; ++i) {
#pragma unroll
            for (unsigned h = 0; h < 2; ++h) {
                float most = EMPTY;
#pragma unroll
                for (unsigned x = 0; x < 2 * T_BLOCKS; ++x) {
                    float &logit = s[i][x / 2][2 * h + x % 2];
                    if (MASKED && !(seen[i][h] >> x & 1u)) logit = EMPTY;
                    most = fmaxf(most, logit);
                }
                most = fmaxf(most, __shfl_xor_sync(ALL, most, 1));
                most = fmaxf(most, __shfl_xor_sync(ALL, most, 2));
                const float next = fmaxf(m[i][h], most), scale = scales[i][h], base = next * scale;
                shrink[i][h] = exp2_of((m[i][h] - next) * scale);
                changed = changed || next != m[i][h];
                m[i][h] = next;
                float sum = 0.0f;
#pragma unroll
                for (unsigned x = 0; x < 2 * T_BLOCKS; ++x) {
                    float &p = s[i][x / 2][2 * h + x % 2];
                    p = exp2_of(fmaf(p, scale, -base));
                    // Before any key is seen, what is hidden would have a probability of 1.
                    if (MASKED && !(seen[i][h] >> x & 1u)) p = 0.0f;
                    sum += p;
                }
                l[i][h] = fmaf(l[i][h], shrink[i][h], sum);
            }
        }
        return __any_sync(ALL, changed);
    }

    KV_METHOD void shrink_outputs(const Factors &shrink) {
#pragma unroll
        for (unsigned i = 0; i < MATRICES; ++i) {
#pragma unroll
            for (unsigned b = 0; b < V_BLOCKS; ++b) {
                o[i][b][0] *= shrink[i][0], o[i][b][1] *= shrink[i][0];
                o[i][b][2] *= shrink[i][1], o[i][b][3] *= shrink[i][1];
            }
        }
    }

    // Probabilities times the tokens' factors, relative to a power of two, so that neither can leave 16 bits; a change
    // of that joins `shrink`. Whether it did.
    template <bool MASKED>
    KV_METHOD bool weigh(Scores &p, const Bits &seen, const float *value_scales, Factors &shrink) {
        float most = 0.0f;
#pragma unroll
        for (unsigned token = 0; token < STEP; token += 32) {
            // What is no number speaks for itself.
            const float scale = fabsf(value_scales[token + threadIdx.x % 32]);
            if (scale < __uint_as_float(0x7f800000u)) most = fmaxf(most, scale);
        }
        // Magnitudes order like integers.
        const unsigned next = min(max(__reduce_max_sync(ALL, __float_as_uint(most)) >> 23, exponent), 252u);
        const bool changed = next != exponent;
        if (changed) {
            const float less = __uint_as_float((127u + exponent > next ? 127u + exponent - next : 0u) << 23);
#pragma unroll
            for (unsigned i = 0; i < MATRICES; ++i) shrink[i][0] *= less, shrink[i][1] *= less;
            exponent = next;
        }
        const float down = __uint_as_float((254u - exponent) << 23);
#pragma unroll
        for (unsigned j = 0; j < T_BLOCKS; ++j) {
            const float2 scale = *(const float2 *)(value_scales + 8 * j + threadIdx.x % 4 * 2);
            const float factors[2] = {scale.x * down, scale.y * down};
#pragma unroll
            for (unsigned i = 0; i < MATRICES; ++i) {
#pragma unroll
                for (unsigned x = 0; x < 4; ++x) {
                    const float weight = p[i][j][x] * factors[x % 2];
                    p[i][j][x] = MASKED && !(seen[i][x / 2] >> (2 * j + x % 2) & 1u) ? 0.0f : weight;
                }
            }
        }
        return changed;
    }

    // Fragments of 16 tokens' weights.
    KV_FN void pack(const Scores &p, unsigned k, unsigned (&a)[MATRICES][4]) {
#pragma unroll
        for (unsigned i = 0; i < MATRICES; ++i) {
#pragma unroll
            for (unsigned x = 0; x < 4; ++x) {
                const float(&from)[4] = p[i][2 * k + x / 2];
                a[i][x] = ValueProduct::pack(from[x % 2 * 2], from[x % 2 * 2 + 1]);
            }
        }
    }

    // Adds values that are no numbers to the rows that see them. A weight of 0 would not keep them from the others:
    // they are taken out of the panel afterwards.
    KV_METHOD void add_unfit(const Piece *piece, const uint4 *values) {
#pragma unroll 1
        for (unsigned token = 0; token < STEP; ++token) {
            const Piece &of = piece[token / RUN];
            if (token % RUN >= of.valid) continue;
#pragma unroll
            for (unsigned i = 0; i < MATRICES; ++i) {
                const bool first = visible(of.first + token % RUN, shared.positions[row(i, 0)], params);
                const bool second = visible(of.first + token % RUN, shared.positions[row(i, 1)], params);
#pragma unroll
                for (unsigned b = 0; b < V_BLOCKS; ++b) {
                    const unsigned both = ((const unsigned *)(values + b * PITCH + token))[threadIdx.x % 4];
#pragma unroll
                    for (unsigned x = 0; x < 4; ++x) {
                        const unsigned bits = x % 2 ? both >> 16 : both & 0xffffu;
                        const bool unfit = (bits & ValueProduct::EXPONENT) == ValueProduct::EXPONENT;
                        if (unfit && (x < 2 ? first : second)) o[i][b][x] += ValueProduct::wide(bits);
                    }
                }
            }
        }
    }

    // Writes the states of `alive` of the block's vectors, of which `partials` has the first.
    KV_METHOD void write(float *partials, unsigned alive) {
        const float unit = ValueTiles::SCALED ? __uint_as_float(exponent << 23) : 1.0f;
#pragma unroll
        for (unsigned i = 0; i < MATRICES; ++i) {
#pragma unroll
            for (unsigned h = 0; h < 2; ++h) {
                float sum = l[i][h];
                sum += __shfl_xor_sync(ALL, sum, 1);
                sum += __shfl_xor_sync(ALL, sum, 2);
                const unsigned own = row(i, h);
                if (own >= alive) continue;
                float *to = partials + (unsigned long long)own * STRIDE;
                if (threadIdx.x % 4 == 0) {
                    float most = m[i][h];
                    const float scale = SOFTCAP ? LN_2 : shared.scales[own], bias = SOFTCAP ? 0.0f : shared.biases[own];
                    if (most != EMPTY) most = fmaf(most, scale, bias);
                    *(float4 *)to = make_float4(most, sum, 0.0f, 0.0f);
                }
#pragma unroll
                for (unsigned b = 0; b < V_BLOCKS; ++b) {
                    *(float2 *)(to + 4 + 8 * b + threadIdx.x % 4 * 2) =
                        make_float2(o[i][b][2 * h] * unit, o[i][b][2 * h + 1] * unit);
                }
            }
        }
    }
};
