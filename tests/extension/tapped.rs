//! Takes taps: copies each on the device with a kernel of its own, and reads the copies before the next step.

use kvarto::Result;
use kvarto::backend::{
    Backend, BindingDecl, Constant, CpuCall, Dispatch, Element, KernelDecl, ParamDecl, Specialisation, read_blocking,
};
use kvarto::engine::{TapCall, TapMemory};
use kvarto::needs::TapKind;
use std::sync::{Arc, Mutex};

/// Floats that are kept of a step.
const ROOM: usize = 1 << 18;

static COPY_ROWS: KernelDecl = KernelDecl {
    name: "copy_rows",
    bindings: &[BindingDecl::read("tensor", Element::U32), BindingDecl::write("seen", Element::U32)],
    params: &[
        ParamDecl::u32("offset"),
        ParamDecl::u32("stride"),
        ParamDecl::u32("width"),
        ParamDecl::u32("values"),
        ParamDecl::u32("goal"),
    ],
    constants: &["WORKGROUP"],
    codecs: &[],
    cpu,
    wgsl: "
@compute @workgroup_size(WORKGROUP)
fn main(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lid: u32,
) {
    let i = group_index(id, groups) * WORKGROUP + lid;
    if (i < params.values) {
        seen[params.goal + i] = tensor[params.offset + i / params.width * params.stride + i % params.width];
    }
}
",
    cuda: None,
};

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let [offset, stride, width, values, goal] =
        ["offset", "stride", "width", "values", "goal"].map(|name| call.index(name));
    let tensor = call.read::<u32>("tensor");
    let seen = call.write::<u32>("seen");
    for i in 0..values {
        seen[goal + i] = tensor[offset + i / width * stride + i % width];
    }
    Ok(())
}

fn spec() -> Specialisation {
    Specialisation::new(&COPY_ROWS, &[("WORKGROUP", Constant::U32(64))], vec![]).expect("its own constants")
}

/// A tap as it was handed over.
#[derive(Clone, Debug)]
pub struct Seen {
    pub kind: TapKind,
    pub layer: usize,
    /// The number of its step.
    pub step: u64,
    pub positions: Vec<u32>,
    pub width: usize,
    /// From the device.
    pub values: Vec<f32>,
    /// From the host, if it was there.
    pub host: Option<Vec<f32>>,
}

/// Everything that was handed over and read so far.
pub type Log = Arc<Mutex<Vec<Seen>>>;

/// What a selector or policy does about taps.
#[derive(Default)]
pub struct Tapper {
    pub log: Log,
    waiting: Mutex<Vec<Seen>>,
}

impl Tapper {
    pub fn new(log: Log) -> Self {
        Tapper { log, waiting: Mutex::default() }
    }

    pub fn prepare(&self, backend: &mut dyn Backend) -> Result<()> {
        backend.prepare(&spec()).map(|_| ())
    }

    pub fn take(&self, call: &mut TapCall<'_>) -> Result<()> {
        let mut waiting = self.waiting.lock().expect("not poisoned");
        let values = call.positions.len() * call.width;
        assert_eq!(call.rows.iter().map(|r| r.rows as usize).sum::<usize>(), call.positions.len());
        let at: usize = waiting.iter().map(|seen| seen.positions.len() * seen.width).sum();
        assert!(at + values <= ROOM);
        let seen = call.memory.buffer("seen", ROOM as u64 * 4)?;
        let pipeline = call.memory.backend().prepare(&spec())?;
        let tensor = call.tensor;
        let params = [tensor.offset, tensor.stride, call.width as u32, values as u32, at as u32].to_vec();
        let groups = (values as u32).div_ceil(64);
        call.recording().dispatch(Dispatch { pipeline, groups, params, bindings: vec![tensor.slice, seen] });
        waiting.push(Seen {
            kind: call.kind,
            layer: call.layer,
            step: call.step,
            positions: call.positions.to_vec(),
            width: call.width,
            values: Vec::new(),
            host: call.host.map(<[f32]>::to_vec),
        });
        Ok(())
    }

    pub fn read(&self, memory: &mut TapMemory<'_>) -> Result<()> {
        let Some(seen) = memory.find("seen") else { return Ok(()) };
        let bytes = read_blocking(memory.backend(), seen.buffer, seen.offset, ROOM as u64 * 4)?;
        let mut values: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        for mut seen in self.waiting.lock().expect("not poisoned").drain(..) {
            let rest = values.split_off(seen.positions.len() * seen.width);
            seen.values = std::mem::replace(&mut values, rest);
            self.log.lock().expect("not poisoned").push(seen);
        }
        Ok(())
    }
}
