// y = x * inverseSqrt(mean(x^2) + eps) * w; one workgroup a row.

#unzeroed
var<workgroup> sums: array<f32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) count: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = group_index(id, count);
    if (row >= params.groups) {
        return;
    }
    let from_x = params.x_offset + row * params.x_stride;
    var sum = 0.0;
    for (var i = thread; i < WIDTH; i += WORKGROUP) {
        let value = x[from_x + i];
        sum += value * value;
    }
    sums[thread] = sum;
    workgroupBarrier();
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        if (thread < half) {
            sums[thread] = sums[thread] + sums[thread + half];
        }
        workgroupBarrier();
    }
    let scale = inverseSqrt(sums[0] / f32(WIDTH) + params.eps);
    let to_y = params.y_offset + row * params.y_stride;
    for (var i = thread; i < WIDTH; i += WORKGROUP) {
        y[to_y + i] = x[from_x + i] * scale * w[params.w_offset + i];
    }
}
