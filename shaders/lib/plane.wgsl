// What a workgroup of a plane kernel works on: the rows that a step appends to one page, and that page's record.
// The contract stands in src/kernel/plane.rs.

struct PlaneWork {
    // False: this head's page has its record in another segment, and another dispatch writes it.
    live: bool,
    // The page held nothing before these rows: what its record holds is another page's.
    fresh: bool,
    // First word of the plane in `planes`.
    record: u32,
    rows: u32,
    // First value of the head's first new row.
    k_at: u32,
    v_at: u32,
}

fn plane_work(group: u32) -> PlaneWork {
    let head = group % KV_HEADS;
    let item = params.items_at + group / KV_HEADS * 4u;
    let row = tables[item];
    let page = tables[tables[item + 3u] + head];
    var work: PlaneWork;
    work.live = page != 0xffffffffu;
    if (work.live) {
        work.fresh = tables[item + 2u] == 0u;
        work.record = (descs[page * 8u + 7u] - params.first_record) * RECORD_WORDS + PLANE_AT;
        work.rows = tables[item + 1u];
        work.k_at = params.k_offset + row * params.k_stride + head * K_DIM;
        work.v_at = params.v_offset + row * params.v_stride + head * V_DIM;
    }
    return work;
}
