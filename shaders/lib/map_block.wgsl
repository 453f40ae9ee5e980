// A matrix product by a workgroup: the row in workgroup memory becomes M times it. The kernel defines BASIS_MAX and
// WORKGROUP, includes lib/hadamard_block.wgsl, and binds `maps`, where M lies column after column, so that neighbouring
// threads read neighbouring words.

#unzeroed

const MAP_OWN: u32 = (BASIS_MAX + WORKGROUP - 1u) / WORKGROUP;

// basis_row[0..dim] = M basis_row[0..dim], M's first column at `at`. All threads call it, in uniform control flow,
// with uniform `dim` and `at`; what they wrote to basis_row before need not be visible to the others yet.
fn map_transform(lid: u32, dim: u32, at: u32) {
    workgroupBarrier();
    var own: array<f32, MAP_OWN>;
    for (var o = 0u; o < MAP_OWN; o++) {
        let c = lid + o * WORKGROUP;
        var sum = 0.0;
        if (c < dim) {
            for (var j = 0u; j < dim; j++) {
                sum += maps[at + j * dim + c] * basis_row[j];
            }
        }
        own[o] = sum;
    }
    workgroupBarrier();
    for (var o = 0u; o < MAP_OWN; o++) {
        let c = lid + o * WORKGROUP;
        if (c < dim) {
            basis_row[c] = own[o];
        }
    }
    workgroupBarrier();
}
