// A vector in workgroup memory and its orthonormal Walsh-Hadamard transform, in blocks of the largest
// power of two that divides its length. The kernel defines BASIS_MAX (most channels) and WORKGROUP.
// The order of additions is the CPU's (num::hadamard::fwht), so that rows of whole numbers agree to the bit.
#include "lib/hadamard.wgsl"

#unzeroed
var<workgroup> basis_row: array<f32, BASIS_MAX>;

// 1/sqrt(block) for a power of two: exact powers, times one rounded constant for odd exponents.
fn hadamard_norm(block: u32) -> f32 {
    let log = firstTrailingBit(block);
    return select(1.0, 0.70710677, (log & 1u) == 1u) * bitcast<f32>((127u - log / 2u) << 23u);
}

// Transforms basis_row[0..dim] in place. All threads call it, in uniform control flow, with uniform `dim`;
// the row must have been written before (no barrier needed) and may be read after.
fn hadamard_transform(lid: u32, dim: u32) {
    let block = dim & (~dim + 1u);
    workgroupBarrier();
    for (var half = 1u; half < block; half *= 2u) {
        for (var i = lid; i < dim / 2u; i += WORKGROUP) {
            let low = i / half * half * 2u + i % half;
            let a = basis_row[low];
            let b = basis_row[low + half];
            basis_row[low] = a + b;
            basis_row[low + half] = a - b;
        }
        workgroupBarrier();
    }
    let norm = hadamard_norm(block);
    for (var c = lid; c < dim; c += WORKGROUP) {
        basis_row[c] *= norm;
    }
    workgroupBarrier();
}
