// x = x * inverseSqrt(mean(x^2) + eps) * w over a head, in place; one workgroup a head.

#unzeroed
var<workgroup> sums: array<f32, WORKGROUP>;

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
    let row = group / params.heads;
    let head = group % params.heads;
    let at = params.x_offset + row * params.x_stride + head * DIM;
    var sum = 0.0;
    for (var i = thread; i < DIM; i += WORKGROUP) {
        let value = x[at + i];
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
    let scale = inverseSqrt(sums[0] / f32(DIM) + params.eps);
    // Each thread writes the values it read.
    for (var i = thread; i < DIM; i += WORKGROUP) {
        x[at + i] = x[at + i] * scale * w[i];
    }
}
