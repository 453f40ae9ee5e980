// Prepares query rows for attention: into the basis of K, times the softmax scale, and the bias that
// stands for the mean removed from K. One workgroup takes one query head of one row.

const_assert ((WORKGROUP & (WORKGROUP - 1u)) == 0u);
const BASIS_MAX: u32 = K_DIM;
const KV_HEADS: u32 = Q_HEADS / GROUP;

#include "lib/hadamard_block.wgsl"
#if MAP
#include "lib/map_block.wgsl"
#endif

// Floats of a KV head's calibrated mean and maps.
const RECORD: u32 = select(K_DIM, K_DIM + 2u * K_DIM * K_DIM, MAP);

#unzeroed
var<workgroup> sums: array<f32, WORKGROUP>;
var<workgroup> peak: atomic<u32>;

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
    let row = group / Q_HEADS;
    let head = group % Q_HEADS;
    let at = params.q_offset + row * params.q_stride + head * K_DIM;
#if MEAN
    let mean_slot = tables[params.rows_at + row * 4u + 3u];
    let mean_at = mean_slot * params.mean_stride + params.mean_layer_at + head / GROUP * (K_DIM + V_DIM);
#endif
    if (lid == 0u) {
        atomicStore(&peak, 0u);
    }
    var bias = 0.0;
    for (var c = lid; c < K_DIM; c += WORKGROUP) {
        let x = q_in[at + c];
#if MEAN
        bias += x * means[mean_at + c];
#elif FIXED
        bias += x * maps[head / GROUP * RECORD + c];
#endif
#if ROTATE
        basis_row[c] = x * hadamard_sign(c);
#else
        basis_row[c] = x;
#endif
    }
#if REMOVES
    sums[lid] = bias;
    for (var half = WORKGROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lid < half) {
            sums[lid] += sums[lid + half];
        }
    }
#endif
#if ROTATE
    hadamard_transform(lid, K_DIM);
#elif MAP
    map_transform(lid, K_DIM, head / GROUP * RECORD + K_DIM + K_DIM * K_DIM);
#else
    workgroupBarrier();
#endif
    let to = group * (K_DIM + 4u);
    var most = 0u;
    for (var c = lid; c < K_DIM; c += WORKGROUP) {
        let x = basis_row[c] * params.scale;
        q_out[to + c] = x;
        // Magnitudes order like integers.
        most = max(most, bitcast<u32>(x) & 0x7fffffffu);
    }
    atomicMax(&peak, most);
    workgroupBarrier();
    if (lid == 0u) {
        // Powers of two that bring the row within 1, and back.
        let exponent = clamp(atomicLoad(&peak) >> 23u, 2u, 252u);
#if REMOVES
        bias = sums[0] * params.scale;
#endif
        q_out[to + K_DIM] = bias;
        q_out[to + K_DIM + 1u] = bitcast<f32>((253u - exponent) << 23u);
        q_out[to + K_DIM + 2u] = bitcast<f32>((exponent + 1u) << 23u);
        q_out[to + K_DIM + 3u] = 0.0;
    }
}
