// Constants of prefill attention, what a block shares, an item, its steps, and which keys a query sees.

// Threads that multiply: those behind FIRST_THREAD.
constexpr unsigned MULTIPLIERS = WORKGROUP - FIRST_THREAD;
// Query vectors of a block: MATRICES times sixteen a warp that multiplies.
constexpr unsigned VECTORS = MULTIPLIERS / 2 * MATRICES;
// A step is of pieces of pages.
constexpr unsigned LEAST_RUN = PAGE_TOKENS < STEP ? PAGE_TOKENS : STEP;
constexpr unsigned RUN = LEAST_RUN < 64 ? LEAST_RUN : 64;
constexpr unsigned PIECES = STEP / RUN;
constexpr unsigned SUBS = PAGE_TOKENS / RUN;
// Pieces that are looked up together.
constexpr unsigned LOOK = 256;
constexpr unsigned STRIDE = V_DIM + 4;
constexpr float EMPTY = -3.4028234663852886e38f;
constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;
constexpr unsigned ALL = 0xffffffffu;
// Blocks of eight tokens of a step, and of eight channels of the values.
constexpr unsigned T_BLOCKS = STEP / 8;
constexpr unsigned V_BLOCKS = V_DIM / 8;
// Units of a piece as it stands in a page.
constexpr unsigned K_RAW = KeyTiles::RAW_OF<RUN>, V_RAW = ValueTiles::RAW_OF<RUN>;

static_assert(STEP % 16 == 0 && STEP % RUN == 0 && PAGE_TOKENS % RUN == 0 && RUN % 16 == 0, "steps of whole pieces");

using KeyProduct = KeyTiles::Halves;
using ValueProduct = ValueTiles::Halves;

struct Item {
    unsigned row_start, rows, kv_head, ids_start, ids_count, partial_start;
};

// Where a piece's pages are, the position of its first token, tokens that exist, and its first token in the page.
struct Piece {
    unsigned k_slot, v_slot, first;
    unsigned short valid, token;
};

struct Shared {
    // Units of queries stand as those of panels: (C/8)*VECTORS + vector.
    uint4 queries[K_DIM / 8 * VECTORS];
    uint4 keys[K_STAGES][K_DIM / 8 * PITCH];
    uint4 values[V_STAGES][V_DIM / 8 * PITCH];
    uint4 raw_keys[RAW_STAGES][K_RAW * PIECES + 1];
    uint4 raw_values[RAW_STAGES][V_RAW * PIECES + 1];
    Piece pieces[LOOK];
    float key_scales[K_STAGES][STEP], value_scales[V_STAGES][STEP];
    // Factors of the vectors' logits, what is added to these, and positions.
    float scales[VECTORS], biases[VECTORS];
    unsigned positions[VECTORS];
    // Steps of which something is seen: first those that all vectors see whole.
    unsigned short order[LOOK / PIECES];
    unsigned whole, steps;
};

static_assert(sizeof(Shared) <= SHARED_BYTES, "shared memory that is asked for");

// Barriers of the threads that multiply.
KV_FN void sync_multipliers() { asm volatile("barrier.sync 1, %0;" ::"n"(MULTIPLIERS) : "memory"); }

KV_FN bool any_multiplier(bool own) {
    unsigned any;
    asm volatile("{\n\t.reg .pred p, q;\n\tsetp.ne.u32 p, %1, 0;\n\tbarrier.red.or.pred q, 1, %2, p;\n\t"
                 "selp.u32 %0, 1, 0, q;\n\t}"
                 : "=r"(any)
                 : "r"((unsigned)own), "n"(MULTIPLIERS)
                 : "memory");
    return any != 0u;
}

// The block's item: those of late rows, which see most, come first.
KV_FN Item item_of(const unsigned *tables, const Params &params) {
    const unsigned *record = tables + params.items_at + 8 * (params.groups - 1 - blockIdx.x);
    return {__ldg(record),     __ldg(record + 1), __ldg(record + 2),
            __ldg(record + 3), __ldg(record + 4), __ldg(record + 5)};
}

// The item's query vectors from `chunk` on, in 16 bits; those past its end are zeros.
KV_FN void load_queries(Shared &shared, const unsigned *tables, const float *q, const Params &params, const Item &item,
                        unsigned chunk) {
    const unsigned count = item.rows * GROUP;
    const auto of = [&](unsigned vector) {
        const unsigned head = item.kv_head * GROUP + vector % GROUP;
        return q + (unsigned long long)((item.row_start + vector / GROUP) * Q_HEADS + head) * (K_DIM + 4);
    };
    // Eight lanes take as many vectors.
    share<K_DIM / 8 * VECTORS, WORKGROUP>(threadIdx.x, [&](unsigned i) {
        const unsigned unit = i / 8 % (K_DIM / 8), vector = i / K_DIM * 8 + i % 8;
        uint4 packed = make_uint4(0u, 0u, 0u, 0u);
        if (chunk + vector < count) {
            const float *own = of(chunk + vector);
            // Prepared queries are within 1 so, but for infinities and NaN.
            const float down = __ldg(own + K_DIM + 1);
            const float4 x = __ldg((const float4 *)own + 2 * unit), y = __ldg((const float4 *)own + 2 * unit + 1);
            packed = make_uint4(KeyProduct::pack(x.x * down, x.y * down), KeyProduct::pack(x.z * down, x.w * down),
                                KeyProduct::pack(y.x * down, y.y * down), KeyProduct::pack(y.z * down, y.w * down));
        }
        shared.queries[unit * VECTORS + vector] = packed;
    });
    share<VECTORS, WORKGROUP>(threadIdx.x, [&](unsigned i) {
        const unsigned vector = chunk + i < count ? chunk + i : 0u;
        const float *own = of(vector) + K_DIM;
        shared.positions[i] = __ldg(tables + params.rows_at + (item.row_start + vector / GROUP) * 4);
        shared.biases[i] = __ldg(own);
        shared.scales[i] = __ldg(own + 2);
    });
}

// Positions of the first and the last of the block's vectors.
struct Span {
    unsigned first, last;
};

KV_FN Span span_of(const Shared &shared) {
    unsigned first = ALL, last = 0u;
    for (unsigned v = threadIdx.x % 32; v < VECTORS; v += 32) {
        first = min(first, shared.positions[v]);
        last = max(last, shared.positions[v]);
    }
    return {__reduce_min_sync(ALL, first), __reduce_max_sync(ALL, last)};
}

KV_FN bool visible(unsigned key, unsigned query, const Params &params) {
    // By the difference: the sum of a wide window and a position would wrap.
    return key <= query && (!WINDOW || query - key < params.window);
}

// Looks up the pieces from `first` on, and orders their steps.
KV_FN void look_up(Shared &shared, const unsigned *descs, const unsigned *tables, const Params &params,
                   const Item &item, unsigned first, const Span &span) {
    share<LOOK, WORKGROUP>(threadIdx.x, [&](unsigned i) {
        Piece piece = {0u, 0u, 0u, 0u, 0u};
        if (first + i < item.ids_count * SUBS) {
            const unsigned page = __ldg(tables + item.ids_start + (first + i) / SUBS);
            const uint4 low = __ldg((const uint4 *)descs + 2 * page), high = __ldg((const uint4 *)descs + 2 * page + 1);
            const unsigned token = (first + i) % SUBS * RUN;
            piece.k_slot = high.x;
            piece.v_slot = high.y;
            piece.first = low.w + token;
            piece.valid = (unsigned short)(min(max(low.y & 0xffffu, token) - token, RUN));
            piece.token = (unsigned short)token;
        }
        shared.pieces[i] = piece;
    });
    __syncthreads();
    if (threadIdx.x < 32) {
        unsigned counts[2] = {0u, 0u};
        // Twice: whole steps, then those of which some vector does not see some token.
#pragma unroll
        for (unsigned masked = 0; masked < 2; ++masked) {
            for (unsigned at = threadIdx.x; at < LOOK / PIECES; at += 32) {
                bool some = false, whole = true;
                for (unsigned i = 0; i < PIECES; ++i) {
                    const Piece piece = shared.pieces[at * PIECES + i];
                    const unsigned last_key = piece.first + max((unsigned)piece.valid, 1u) - 1u;
                    bool of_it = piece.valid > 0 && piece.first <= span.last;
                    whole = whole && piece.valid == RUN && last_key <= span.first;
                    if constexpr (WINDOW) {
                        of_it = of_it && (last_key >= span.first || span.first - last_key < params.window);
                        whole = whole && span.last - piece.first < params.window;
                    }
                    some = some || of_it;
                }
                const bool own = some && whole == (masked == 0u);
                const unsigned all = __ballot_sync(ALL, own);
                if (own) {
                    shared.order[counts[0] + counts[1] + __popc(all & ((1u << threadIdx.x) - 1u))] = (unsigned short)at;
                }
                counts[masked] += __popc(all);
            }
        }
        if (threadIdx.x == 0) {
            shared.whole = counts[0];
            shared.steps = counts[0] + counts[1];
        }
    }
    __syncthreads();
}
