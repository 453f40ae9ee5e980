// What attention kernels share: a work item, its pages, which key a query sees, and the capped logit.
// Causal limits come from positions alone, never from an index within a list.

// Stands for "no key seen yet": finite, and never an operand that could decide a result.
const EMPTY: f32 = -3.4028234663852886e38;

struct Item {
    row_start: u32,
    rows: u32,
    kv_head: u32,
    ids_start: u32,
    ids_count: u32,
    partial_start: u32,
}

fn load_item(group: u32) -> Item {
    let at = params.items_at + group * 8u;
    return Item(tables[at], tables[at + 1u], tables[at + 2u], tables[at + 3u], tables[at + 4u], tables[at + 5u]);
}

fn row_position(row: u32) -> u32 {
    return tables[params.rows_at + row * 4u];
}

// A page in a block of tokens: first words of its two slots, first position, tokens that exist. Where sides are in two
// parts, also what is added to words of the further ones (`Codec::split`).
struct Page {
    k_base: u32,
    v_base: u32,
    first: u32,
    valid: u32,
#if IN_PARTS
    k_part1: u32,
    v_part1: u32,
#endif
}

// The `index`th page of the item; past the list's end a page without tokens, whose loads stay in bounds.
fn load_page(item: Item, index: u32) -> Page {
    if (index >= item.ids_count) {
#if IN_PARTS
        return Page(0u, 0u, 0u, 0u, 0u, 0u);
#else
        return Page(0u, 0u, 0u, 0u);
#endif
    }
    let at = tables[item.ids_start + index] * 8u;
#if IN_PARTS
    let row = descs[at + 6u] * 8u;
    return Page(
        descs[at + 4u] * K_WORDS,
        descs[at + 5u] * V_WORDS,
        descs[at + 3u],
        descs[at + 1u] & 0xffffu,
        descs[row] * K1_WORDS - K_WORDS,
        descs[row + 1u] * V1_WORDS - V_WORDS,
    );
#else
    return Page(descs[at + 4u] * K_WORDS, descs[at + 5u] * V_WORDS, descs[at + 3u], descs[at + 1u] & 0xffffu);
#endif
}

// Whether queries at positions `query` see the key at `position`.
fn visible4(position: u32, query: vec4<u32>) -> vec4<bool> {
    let key = vec4<u32>(position);
#if WINDOW
    // By the difference: the sum of a wide window and a position would wrap.
    return (key <= query) & (query - key < vec4<u32>(params.window));
#else
    return key <= query;
#endif
}

// Softcap by an exponential that cannot overflow; NaN stays NaN.
fn cap4(s: vec4<f32>) -> vec4<f32> {
#if SOFTCAP
    let e = exp(-2.0 * abs(s / params.softcap));
    let t = params.softcap * (1.0 - e) / (1.0 + e);
    return select(t, -t, s < vec4<f32>(0.0));
#else
    return s;
#endif
}
