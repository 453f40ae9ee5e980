// x[row][i] += y[row][i]; one thread a value.

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
    if (row < params.rows) {
        let at = params.x_offset + row * params.x_stride + column;
        x[at] = x[at] + y[params.y_offset + row * params.y_stride + column];
    }
}
