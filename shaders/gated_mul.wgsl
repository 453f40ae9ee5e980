// out = activation(gate) * up; one thread a value.

// 1 / (1 + exp(-x)); the exponent is never positive, so nothing overflows.
fn sigmoid(x: f32) -> f32 {
    let e = exp(-abs(x));
    return select(e, 1.0, x >= 0.0) / (1.0 + e);
}

#if GELU
// (1 + tanh(u)) / 2 is sigmoid(2 u), with u = sqrt(2 / pi) (x + 0.044715 x^3). Past 20 the sigmoid is 0 or 1 in f32.
fn activation(x: f32) -> f32 {
    let t = clamp(x, -20.0, 20.0);
    return x * sigmoid(1.5957691216057308 * (t + 0.044715 * t * t * t));
}
#else
fn activation(x: f32) -> f32 {
    return x * sigmoid(x);
}
#endif

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
        out[params.out_offset + row * params.out_stride + column] = activation(g) * u;
    }
}
