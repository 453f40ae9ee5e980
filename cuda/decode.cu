// Attention of a few query vectors over a list of pages, on tensor cores.
//
// A block takes an item. Each of its warps takes steps of STEP tokens by itself: products with keys, softmax, products
// with values, all in registers; tiles of pages go from memory straight to registers, as the formats lay them out.
// Nothing is shared but the queries, until the warps' states are added up at the end. Query vectors go four to a
// product; CHUNK of them share every load.
//
// The formats give KeyTiles and ValueTiles: see NOTES.md of the kernel for what these define.

constexpr unsigned WARPS = WORKGROUP / 32;
constexpr unsigned NT = (CHUNK + 3) / 4;
constexpr unsigned TILES = STEP / 16;
// Steps of a page.
constexpr unsigned SUBS = PAGE_TOKENS / STEP;
constexpr unsigned STRIDE = V_DIM + 4;
constexpr float EMPTY = -3.4028234663852886e38f;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;
constexpr unsigned ALL = 0xffffffffu;
constexpr unsigned V_BLOCKS = V_DIM / 16;
// Tiles of keys that are asked for while the step before adds its values, and groups of values that are asked for before
// the products with keys: as many as registers hold.
constexpr unsigned K_AHEAD = K_TILES_AHEAD < TILES ? K_TILES_AHEAD : TILES;
constexpr unsigned V_AHEAD = V_GROUPS_AHEAD < ValueTiles::GROUPS ? V_GROUPS_AHEAD : ValueTiles::GROUPS;

static_assert(WORKGROUP % 32 == 0 && WORKGROUP * V_DIM <= 65536, "states of warps fit shared memory");
static_assert(PAGE_TOKENS % STEP == 0 && STEP % 16 == 0, "steps are of whole tiles");
static_assert(ValueTiles::GROUPS * ValueTiles::BLOCKS == V_BLOCKS, "tiles cover the values");

using Product = KeyTiles::Product;
using Weights = ValueTiles::Weights<TILES, NT>;
using Group = ValueTiles::Group<TILES>;

struct Item {
    unsigned row_start, rows, kv_head, ids_start, ids_count, partial_start;
};

struct Shared {
    uint2 queries[KeyTiles::STEPS * NT * 32];
    float outputs[WARPS * V_DIM * 4];
    float2 states[WARPS][4];
    unsigned positions[4 * NT];
    float scales[4 * NT];
    float biases[4 * NT];
};

// What a warp knows of a step: where its pages are, the position of its first token, tokens that exist.
struct Step {
    unsigned k_slot, v_slot, first, valid, token;
};

// Steps that a warp takes one after another are looked up 32 at a time, one a lane: their pages' numbers, then what the
// descriptors say.
KV_FN unsigned page_of(const unsigned *tables, const Item &item, unsigned unit) {
    return unit < item.ids_count * SUBS ? __ldg(tables + item.ids_start + unit / SUBS) : ALL;
}

KV_FN Step look_up(const unsigned *descs, unsigned page, unsigned unit) {
    Step step = {0u, 0u, 0u, 0u, 0u};
    if (page != ALL) {
        const uint4 low = __ldg((const uint4 *)descs + 2 * page), high = __ldg((const uint4 *)descs + 2 * page + 1);
        step.token = unit % SUBS * STEP;
        step.first = low.w + step.token;
        step.valid = max(low.y & 0xffffu, step.token) - step.token;
        step.k_slot = high.x;
        step.v_slot = high.y;
    }
    return step;
}

KV_FN Step of_lane(const Step &step, unsigned lane) {
    return {__shfl_sync(ALL, step.k_slot, lane), __shfl_sync(ALL, step.v_slot, lane), __shfl_sync(ALL, step.first, lane),
            __shfl_sync(ALL, step.valid, lane), __shfl_sync(ALL, step.token, lane)};
}

template <class Tiles>
KV_FN void open(Tiles &tiles, const uint4 *slab, unsigned slot, unsigned words, unsigned token, unsigned lane) {
    tiles.open((const unsigned *)(slab + (unsigned long long)slot * (words / 4)), token, lane);
}

KV_FN bool visible(unsigned key, unsigned query, const Params &params) {
    if constexpr (WINDOW) return key <= query && key + params.window > query;
    return key <= query;
}

// The soft cap by an exponential that cannot overflow; NaN stays NaN.
KV_FN float capped(float logit, const Params &params) {
    const float e = exp2_of(-2.0f * LOG2_E * fabsf(logit / params.softcap));
    const float t = params.softcap * (1.0f - e) / (1.0f + e);
    return logit < 0.0f ? -t : t;
}

// Of a chunk of query vectors: a thread's elements of their fragments, and one vector's position and factors. Those past
// the item's end are zeros.
struct Queries {
    static constexpr unsigned FRAGMENTS = KeyTiles::STEPS * NT * 32;
    static constexpr unsigned OWN = (FRAGMENTS + WORKGROUP - 1) / WORKGROUP;
    float elements[OWN][Product::ELEMENTS], down[OWN];
    unsigned position;
    float bias, scale;

    KV_METHOD void load(const unsigned *tables, const float *q, const Params &params, const Item &item, unsigned chunk) {
        const unsigned count = item.rows * GROUP;
#pragma unroll
        for (unsigned i = 0; i < OWN; ++i) {
            const unsigned at = threadIdx.x + i * WORKGROUP, lane = at % 32, vector = chunk + at / 32 % NT * 4 + lane / 8;
            const float *own = q + of(item, vector);
            const bool alive = vector < count && at < FRAGMENTS;
            down[i] = alive ? __ldg(own + K_DIM + 1) : 0.0f;
#pragma unroll
            for (unsigned j = 0; j < Product::ELEMENTS; ++j) {
                elements[i][j] = alive ? __ldg(own + KeyTiles::channel(at / 32 / NT, lane % 4, j)) : 0.0f;
            }
        }
        if (threadIdx.x < 4 * NT) {
            const unsigned vector = chunk + threadIdx.x, row = item.row_start + (vector < count ? vector / GROUP : 0u);
            const float *own = q + of(item, vector) + K_DIM;
            position = __ldg(tables + params.rows_at + row * 4);
            bias = vector < count ? __ldg(own) : 0.0f;
            scale = vector < count ? __ldg(own + 2) * (1.0f / Product::QUERY_SCALE) : 0.0f;
        }
    }

    KV_METHOD void store(Shared &shared) const {
        if (threadIdx.x < 4 * NT) {
            shared.positions[threadIdx.x] = position;
            shared.biases[threadIdx.x] = bias;
            shared.scales[threadIdx.x] = scale;
        }
        __syncthreads();
#pragma unroll
        for (unsigned i = 0; i < OWN; ++i) {
            const unsigned at = threadIdx.x + i * WORKGROUP, lane = at % 32;
            if (at >= FRAGMENTS) break;
            float x[Product::ELEMENTS];
            bool nan = false;
#pragma unroll
            for (unsigned j = 0; j < Product::ELEMENTS; ++j) {
                x[j] = elements[i][j] * down[i];
                nan = nan || x[j] != x[j];
            }
            shared.queries[at] = Product::fragment(x, lane / 4);
            // Whole numbers have no NaN: the vector's factor tells of it.
            if (nan) shared.scales[at / 32 % NT * 4 + lane / 8] = __uint_as_float(0x7fc00000u);
        }
        __syncthreads();
    }

    // The first float of a prepared query.
    KV_FN unsigned of(const Item &item, unsigned vector) {
        return ((item.row_start + vector / GROUP) * Q_HEADS + item.kv_head * GROUP + vector % GROUP) * (K_DIM + 4);
    }
};

// A warp's work on a chunk of vectors: the softmax so far, and what a step does to it. Lane 4g + t has vector 4n + t, of
// tokens g and g + 8 of a tile, and of outputs the channels that ValueTiles::channel gives for g.
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

    // From logits to probabilities relative to the new maxima; `shrink` is what earlier sums are multiplied by, `top` the
    // greatest probability.
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
                for (unsigned n = 0; n < NT; ++n) bounds[n] = max_or_nan(bounds[n], __shfl_xor_sync(ALL, bounds[n], other));
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

    // Adds a group's values. Where masked, sums so far have been shrunk, and `row` is the one whose vectors (of the chunk
    // from `chunk` on) take the values.
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

    // Adds a step's values where some vectors do not see some tokens: row by row, those that the row does not see cleared.
    // A weight of 0 would not stop a NaN.
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

// Adds the warps' states of four vectors and writes them.
KV_FN void write_states(Shared &shared, const Warp &warp, float4 *partials, unsigned n, unsigned first, unsigned alive) {
    const unsigned lane = warp.lane, own = threadIdx.x / 32;
    float l = warp.l[n];
#pragma unroll
    for (unsigned other = 4; other < 32; other *= 2) l += __shfl_xor_sync(ALL, l, other);
    __syncthreads();
    if (lane < 4) shared.states[own][lane] = make_float2(warp.m[n], l);
#pragma unroll
    for (unsigned b = 0; b < 2 * V_BLOCKS; ++b) shared.outputs[(own * V_BLOCKS * 2 + b) * 32 + lane] = warp.o[b / 2][b % 2][n];
    __syncthreads();
    for (unsigned i = threadIdx.x; i < V_DIM * 4; i += WORKGROUP) {
        const unsigned vector = i % 4, block = i / 64;
        if (vector >= alive) continue;
        float most = EMPTY, keys = 0.0f, sum = 0.0f;
#pragma unroll
        for (unsigned w = 0; w < WARPS; ++w) most = fmaxf(most, shared.states[w][vector].x);
#pragma unroll
        for (unsigned w = 0; w < WARPS; ++w) {
            const float2 state = shared.states[w][vector];
            const float weight = exp2_of(state.x - most);
            keys = fmaf(weight, state.y, keys);
            sum = fmaf(weight, shared.outputs[w * V_DIM * 4 + i], sum);
        }
        float *to = (float *)partials + (unsigned long long)(first + vector) * STRIDE;
        to[4 + ValueTiles::channel(block / ValueTiles::BLOCKS, block % ValueTiles::BLOCKS, i / 32 % 2, i % 32 / 4)] = sum;
        if (i < 4) *(float4 *)to = make_float4(most == EMPTY ? EMPTY : most * LN_2, keys, 0.0f, 0.0f);
    }
}

extern "C" __global__ void __launch_bounds__(WORKGROUP, BLOCKS_AN_SM)
kvarto_kernel(const uint4 *__restrict__ k_slab, const uint4 *__restrict__ v_slab, const unsigned *__restrict__ descs,
              const unsigned *__restrict__ tables, const float *__restrict__ q, float4 *__restrict__ partials,
              const Params params) {
    __shared__ Shared shared;
    const unsigned lane = threadIdx.x % 32, own = threadIdx.x / 32;
    // Where launches overlap: what went before has written queries and tables, and what comes next may begin to wait.
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const unsigned *record = tables + params.items_at + 8 * blockIdx.x;
    const Item item = {__ldg(record), __ldg(record + 1), __ldg(record + 2),
                       __ldg(record + 3), __ldg(record + 4), __ldg(record + 5)};
    const unsigned count = item.rows * GROUP, units = item.ids_count * SUBS;

#pragma unroll 1
    for (unsigned chunk = 0; chunk < count; chunk += 4 * NT) {
        const unsigned own_page = page_of(tables, item, own + lane * WARPS);
        Queries queries;
        queries.load(tables, q, params, item, chunk);
        Step looked_up = look_up(descs, own_page, own + lane * WARPS);
        queries.store(shared);
        Warp warp = {params, shared, lane};
        warp.begin();
        unsigned first_query = ALL, last_query = 0u;
#pragma unroll
        for (unsigned v = 0; v < 4 * NT; ++v) {
            first_query = min(first_query, shared.positions[v]);
            last_query = max(last_query, shared.positions[v]);
        }

#pragma unroll 1
        for (unsigned unit = own; unit < units; unit += 32 * WARPS) {
            if (unit != own) {
                const unsigned mine = unit + lane * WARPS;
                looked_up = look_up(descs, page_of(tables, item, mine), mine);
            }
            // Steps that all vectors see whole, and others of which something is seen: one a bit.
            const unsigned last_key = looked_up.first + min(looked_up.valid, STEP) - 1u;
            bool some = looked_up.valid > 0 && looked_up.first <= last_query;
            bool whole = looked_up.valid >= STEP && last_key <= first_query;
            if constexpr (WINDOW) {
                some = some && last_key + params.window > first_query;
                whole = whole && looked_up.first + params.window > last_query;
            }
            const unsigned masked_steps = __ballot_sync(ALL, some && !whole);
            unsigned steps = __ballot_sync(ALL, whole);

            KeyTiles keys;
            KeyTiles::Tile ahead[K_AHEAD + 1];
            Step step;
            const auto ask = [&]() {
                const bool more = steps != 0u;
                step = of_lane(looked_up, more ? __ffs(steps) - 1 : 0);
                steps &= steps - 1;
                if (!more) return;
                open(keys, k_slab, step.k_slot, K_WORDS, step.token, lane);
#pragma unroll
                for (unsigned i = 0; i < K_AHEAD; ++i) ahead[i] = keys.load(i);
            };
            unsigned left = __popc(steps);
            ask();
#pragma unroll 1
            for (; left > 0; --left) {
                ValueTiles values;
                open(values, v_slab, step.v_slot, V_WORDS, step.token, lane);
                Group groups[V_AHEAD + 1];
#pragma unroll
                for (unsigned i = 0; i < V_AHEAD; ++i) groups[i] = values.template load<TILES>(i);
                float s[TILES][NT][2], shrink[NT], top[NT];
                const unsigned all[NT] = {};
                warp.logits<K_AHEAD>(keys, ahead, s);
                warp.soften<false>(s, all, shrink, top);
                // The next step's keys come while this one's values are multiplied.
                ask();
                Weights weights;
                warp.weigh<false>(values, s, all, top, weights);
#pragma unroll
                for (unsigned i = 0; i < ValueTiles::GROUPS; ++i) {
                    const Group loaded = i < V_AHEAD ? groups[i < V_AHEAD ? i : 0] : values.template load<TILES>(i);
                    warp.add<false>(i, loaded, values, weights, Seen<TILES>{}, shrink, 0u, 0u);
                }
            }
            // Apart from the others, whose registers they would take.
#pragma unroll 1
            for (unsigned rest = masked_steps; rest != 0u; rest &= rest - 1) {
                const Step masked = of_lane(looked_up, __ffs(rest) - 1);
                ValueTiles values;
                open(keys, k_slab, masked.k_slot, K_WORDS, masked.token, lane);
                open(values, v_slab, masked.v_slot, V_WORDS, masked.token, lane);
                warp.take_masked(keys, values, masked, chunk, count);
            }
        }
#pragma unroll
        for (unsigned n = 0; n < NT; ++n) {
            const unsigned done = chunk + 4 * n;
            if (done < count) write_states(shared, warp, partials, n, item.partial_start + done, min(4u, count - done));
        }
        __syncthreads();
    }
}
