// Constants of decode attention, an item, its steps, and which keys a query sees.

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
// Tiles of keys that are asked for while the step before adds its values, and groups of values that are asked for
// before the products with keys: as many as registers hold.
constexpr unsigned K_AHEAD = K_TILES_AHEAD < TILES ? K_TILES_AHEAD : TILES;
constexpr unsigned V_AHEAD = V_GROUPS_AHEAD < ValueTiles::GROUPS ? V_GROUPS_AHEAD : ValueTiles::GROUPS;

// The compiler fences shuffles that stand behind a condition, one by one. Where bytes are multiplied it is quicker to
// shuffle even when no step is left (by 5 % on an H200); elsewhere it is slower (by 2 %).
constexpr bool ALWAYS_LOOK = ALWAYS_ASK || ValueTiles::BYTES || KeyTiles::Product::BYTES;

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

static_assert(sizeof(Shared) <= 49152, "shared memory that needs no asking");

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
    return {__shfl_sync(ALL, step.k_slot, lane), __shfl_sync(ALL, step.v_slot, lane),
            __shfl_sync(ALL, step.first, lane), __shfl_sync(ALL, step.valid, lane), __shfl_sync(ALL, step.token, lane)};
}

template <class Tiles>
KV_FN void open(Tiles &tiles, const uint4 *slab, unsigned slot, unsigned words, unsigned token, unsigned lane) {
    tiles.open((const unsigned *)(slab + (unsigned long long)slot * (words / 4)), token, lane);
}

KV_FN bool visible(unsigned key, unsigned query, const Params &params) {
    // By the difference: the sum of a wide window and a position would wrap.
    return key <= query && (!WINDOW || query - key < params.window);
}

// The soft cap by an exponential that cannot overflow; NaN stays NaN.
KV_FN float capped(float logit, const Params &params) {
    const float e = exp2_of(-2.0f * LOG2_E * fabsf(logit / params.softcap));
    const float t = params.softcap * (1.0f - e) / (1.0f + e);
    return logit < 0.0f ? -t : t;
}
