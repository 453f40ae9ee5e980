// out = silu(gate) * up; one thread a value.

// x / (1 + exp(-x)); the exponent is never positive, so nothing overflows.
fn silu(x: f32) -> f32 {
    let e = exp(-abs(x));
    return x * select(e, 1.0, x >= 0.0) / (1.0 + e);
}

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
        let g = gate[params.gate_offset + row * params.gate_stride + column];
        let u = up[params.up_offset + row * params.up_stride + column];
        out[params.out_offset + row * params.out_stride + column] = silu(g) * u;
    }
}
