// The mean of K and of V over an item's rows, for one KV head: what bases with mean removal subtract.
// One workgroup takes one KV head of one item; a thread owns channels, so that neighbours read neighbours.

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = group_index(id, groups);
    if (group >= params.groups) {
        return;
    }
    let at = params.items_at + group / KV_HEADS * 4u;
    let head = group % KV_HEADS;
    let row_start = tables[at];
    let rows = tables[at + 1u];
    let to = tables[at + 2u] * params.mean_stride + params.mean_layer_at + head * (K_DIM + V_DIM);
    let inverse = 1.0 / f32(max(rows, 1u));
    for (var c = lid; c < K_DIM; c += WORKGROUP) {
        let start = params.k_offset + row_start * params.k_stride + head * K_DIM + c;
        var sum = 0.0;
        for (var r = 0u; r < rows; r++) {
            sum += k_in[start + r * params.k_stride];
        }
        means[to + c] = sum * inverse;
    }
    for (var c = lid; c < V_DIM; c += WORKGROUP) {
        let start = params.v_offset + row_start * params.v_stride + head * V_DIM + c;
        var sum = 0.0;
        for (var r = 0u; r < rows; r++) {
            sum += v_in[start + r * params.v_stride];
        }
        means[to + K_DIM + c] = sum * inverse;
    }
}
