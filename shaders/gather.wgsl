// y[row] = x[indices[row]]; one thread a value. A row whose index is out of range is left alone.

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
    let row = item / params.width;
    let column = item % params.width;
    if (row >= params.rows) {
        return;
    }
    let index = indices[row];
    if (index < params.x_rows) {
        y[params.y_offset + row * params.y_stride + column] = x[params.x_offset + index * params.x_stride + column];
    }
}
