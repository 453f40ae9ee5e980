//! A side plane of one's own: the largest magnitude among the values of V of a page, as f32 bits.

use kvarto::Result;
use kvarto::backend::{CpuCall, KernelDecl};
use kvarto::kernel::plane;
use kvarto::needs::PlaneSpec;

static DECL: KernelDecl = KernelDecl {
    name: "peak",
    bindings: &plane::BINDINGS,
    params: &plane::PARAMS,
    constants: &plane::CONSTANTS,
    codecs: &[],
    cpu,
    wgsl: "
#include \"lib/plane.wgsl\"

@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let group = group_index(id, groups);
    if (group >= params.groups || lid > 0u) {
        return;
    }
    let work = plane_work(group);
    if (!work.live) {
        return;
    }
    var peak = 0u;
    if (!work.fresh) {
        peak = planes[work.record];
    }
    for (var r = 0u; r < work.rows; r++) {
        for (var c = 0u; c < V_DIM; c++) {
            peak = max(peak, bitcast<u32>(v_in[work.v_at + r * params.v_stride + c]) & 0x7fffffffu);
        }
    }
    planes[work.record] = peak;
}
",
    cuda: None,
};

/// Words: one.
pub fn spec() -> PlaneSpec {
    PlaneSpec { name: "peak".into(), kernel: &DECL, words: |_| 1 }
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    plane::each_page(call, |new, record| {
        if new.first_token == 0 {
            record[0] = 0;
        }
        for row in 0..new.rows {
            record[0] = new.v(row)?.iter().fold(record[0], |peak, x| peak.max(x.to_bits() & 0x7fff_ffff));
        }
        Ok(())
    })
}
