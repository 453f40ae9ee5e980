//! A small kernel for tests of backends, and a sequence of work with it.

use kvarto::Result;
use kvarto::backend::{
    Backend, BindingDecl, BufferId, BufferSlice, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl,
    PipelineId, Recording, Specialisation, read_blocking,
};

/// `out[g] = a[g] · scale + N · step + out[g]` for every group g, one value a group.
pub static AFFINE: KernelDecl = KernelDecl {
    name: "affine",
    bindings: &[BindingDecl::read("a", Element::F32), BindingDecl::write("result", Element::F32)],
    params: &[ParamDecl::u32("step"), ParamDecl::f32("scale")],
    constants: &["N", "WORKGROUP"],
    codecs: &[],
    cpu: affine,
    wgsl: "
@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let group = group_index(id, count);
    if group >= params.groups { return; }
    if lane == 0u {
        result[group] = a[group] * params.scale + f32(N * params.step) + result[group];
    }
}
",
    cuda: None,
};

fn affine(call: &mut CpuCall<'_>) -> Result<()> {
    let (scale, add) = (call.float("scale"), (call.spec.u32("N") * call.param("step")) as f32);
    let groups = call.groups as usize;
    let a: &[f32] = call.read("a");
    let result: &mut [f32] = call.write("result");
    for (r, a) in result.iter_mut().zip(a).take(groups) {
        *r += a * scale + add;
    }
    Ok(())
}

pub fn spec(n: u32) -> Specialisation {
    Specialisation::new(&AFFINE, &[("N", Constant::U32(n)), ("WORKGROUP", Constant::U32(64))], vec![]).unwrap()
}

pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(bytes)
}

pub fn dispatch(
    pipeline: PipelineId,
    groups: u32,
    step: u32,
    scale: f32,
    a: BufferSlice,
    result: BufferSlice,
) -> Dispatch {
    Dispatch { pipeline, groups, params: vec![step, scale.to_bits()], bindings: vec![a, result] }
}

pub fn filled(backend: &mut dyn Backend, label: &str, values: &[f32]) -> BufferId {
    let id = backend.alloc(label, values.len() as u64 * 4).unwrap();
    backend.write(id, 0, bytemuck::cast_slice(values)).unwrap();
    id
}

/// Writes, dispatches with several parameter sets, copies, and dispatches again: all in one recording.
pub fn sequence(backend: &mut dyn Backend) -> Vec<f32> {
    let count = 1000u32;
    let bytes = u64::from(count) * 4;
    let a: Vec<f32> = (0..count).map(|i| i as f32 * 0.25 - 7.0).collect();
    let a = filled(backend, "a", &a);
    let x = filled(backend, "x", &vec![0.0; count as usize]);
    let y = filled(backend, "y", &vec![f32::NAN; count as usize]);
    let (three, five) = (backend.prepare(&spec(3)).unwrap(), backend.prepare(&spec(5)).unwrap());
    assert_ne!(three, five);
    let whole = |id| BufferSlice::whole(id, bytes);
    let mut recording = Recording::new();
    for step in 0..40 {
        let pipeline = if step % 2 == 0 { three } else { five };
        recording.dispatch(dispatch(pipeline, count, step, 0.5, whole(a), whole(x)));
        recording.boundary();
    }
    recording.copy(whole(x), whole(y)).unwrap();
    recording.dispatch(dispatch(three, count - 1, 1, -2.0, whole(x), whole(y)));
    backend.submit(recording).unwrap();
    let result = floats(&read_blocking(backend, y, 0, bytes).unwrap());
    for id in [a, x, y] {
        backend.free(id);
    }
    result
}
