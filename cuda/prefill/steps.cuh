// Constants of prefill attention, what a block shares, an item, its steps, and which keys a query sees.

constexpr unsigned WARPS = WORKGROUP / 32;
// Query vectors of a block: MATRICES times sixteen a warp.
constexpr unsigned VECTORS = WARPS * 16 * MATRICES;
// A step is of pieces of pages, which are of steps.
constexpr unsigned RUN = PAGE_TOKENS < STEP ? PAGE_TOKENS : STEP;
constexpr unsigned PIECES = STEP / RUN;
constexpr unsigned SUBS = PAGE_TOKENS / RUN;
constexpr unsigned PITCH = STEP + 1;
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
    uint4 raw_keys[K_RAW * PIECES + 1];
    uint4 raw_values[V_RAW * PIECES + 1];
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

KV_FN bool visible(unsigned key, unsigned query, const Params &params) {
    // By the difference: the sum of a wide window and a position would wrap.
    return key <= query && (!WINDOW || query - key < params.window);
}

// Looks up the pieces from `first` on, and orders their steps.
KV_FN void look_up(Shared &shared, const unsigned *descs, const unsigned *tables, const Params &params,
                   const Item &item, unsigned first, unsigned first_query, unsigned last_query) {
    share<LOOK>([&](unsigned i) {
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
                    bool of_it = piece.valid > 0 && piece.first <= last_query;
                    whole = whole && piece.valid == RUN && last_key <= first_query;
                    if constexpr (WINDOW) {
                        of_it = of_it && (last_key >= first_query || first_query - last_key < params.window);
                        whole = whole && last_query - piece.first < params.window;
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
