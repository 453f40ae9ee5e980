// Query vectors on their way from memory to fragments in shared memory.

// Of a chunk of query vectors: a thread's elements of their fragments, and one vector's position and factors. Those
// past the item's end are zeros.
struct Queries {
    static constexpr unsigned FRAGMENTS = KeyTiles::STEPS * NT * 32;
    static constexpr unsigned OWN = (FRAGMENTS + WORKGROUP - 1) / WORKGROUP;
    float elements[OWN][Product::ELEMENTS], down[OWN];
    unsigned position;
    float bias, scale;

    KV_METHOD void load(const unsigned *tables, const float *q, const Params &params, const Item &item,
                        unsigned chunk) {
        const unsigned count = item.rows * GROUP;
#pragma unroll
        for (unsigned i = 0; i < OWN; ++i) {
            const unsigned at = threadIdx.x + i * WORKGROUP, lane = at % 32;
            const unsigned vector = chunk + at / 32 % NT * 4 + lane / 8;
            const float *own = q + of(item, vector);
            const bool alive = vector < count && at < FRAGMENTS;
            down[i] = alive ? own[K_DIM + 1] : 0.0f;
#pragma unroll
            for (unsigned j = 0; j < Product::ELEMENTS; ++j) {
                elements[i][j] = alive ? own[KeyTiles::channel(at / 32 / NT, lane % 4, j)] : 0.0f;
            }
        }
        if (threadIdx.x < 4 * NT) {
            const unsigned vector = chunk + threadIdx.x, row = item.row_start + (vector < count ? vector / GROUP : 0u);
            const float *own = q + of(item, vector) + K_DIM;
            position = __ldg(tables + params.rows_at + row * 4);
            bias = vector < count ? own[0] : 0.0f;
            scale = vector < count ? own[2] * (1.0f / Product::QUERY_SCALE) : 0.0f;
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
            bool unfit = false;
#pragma unroll
            for (unsigned j = 0; j < Product::ELEMENTS; ++j) {
                x[j] = elements[i][j] * down[i];
                // Prepared queries are within 1, but for infinities and NaN.
                unfit = unfit || (Product::FINITE ? !(fabsf(x[j]) <= 1.0f) : x[j] != x[j]);
            }
            shared.queries[at] = Product::fragment(x, lane / 4 % 2 + 2 * (at / 32 / NT % Product::PASSES));
            // Where products have neither, the vector's factor tells of them.
            if (unfit) shared.scales[at / 32 % NT * 4 + lane / 8] = __uint_as_float(0x7fc00000u);
        }
        __syncthreads();
    }

    // The first float of a prepared query.
    KV_FN unsigned of(const Item &item, unsigned vector) {
        return ((item.row_start + vector / GROUP) * Q_HEADS + item.kv_head * GROUP + vector % GROUP) * (K_DIM + 4);
    }
};
