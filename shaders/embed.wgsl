// y[row] = w[tokens[row]] * scale; one thread for 8 values. Tokens outside this segment are left to another dispatch.

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = group_index(id, count);
    if (group >= params.groups) {
        return;
    }
    let item = group * WORKGROUP + thread;
    let row = item / UNITS;
    let unit = item % UNITS;
    if (row >= params.rows) {
        return;
    }
    // A token below first_row wraps to a number above every row count.
    let at = tokens[row] - params.first_row;
    if (at >= params.row_count) {
        return;
    }
    let values = unit_at(at, unit);
    let low = params.y_offset + row * params.y_stride + unit_column(unit);
    let high = low + UNIT_GAP;
    y[low] = values.low.x * params.scale;
    y[low + 1u] = values.low.y * params.scale;
    y[low + 2u] = values.low.z * params.scale;
    y[low + 3u] = values.low.w * params.scale;
    y[high] = values.high.x * params.scale;
    y[high + 1u] = values.high.y * params.scale;
    y[high + 2u] = values.high.z * params.scale;
    y[high + 3u] = values.high.w * params.scale;
}
