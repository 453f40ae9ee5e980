//! From a recording's commands to passes and copies of a command encoder.

use super::buffers::Buffers;
use super::groups::Groups;
use super::pipelines::Pipelines;
use super::timing::{Queries, SPANS_A_SET};
use super::uniforms::{STRIDE_BYTES, Uniform};
use crate::backend::{Caps, Command, Dispatch, checks};
use crate::error::Result;

/// Checks all commands before any of them is carried out.
///
/// # Errors
/// `Shape`, naming the kernel and the binding.
pub(super) fn check(buffers: &Buffers, pipelines: &Pipelines, caps: &Caps, commands: &[Command]) -> Result<()> {
    for command in commands {
        match command {
            Command::Dispatch(dispatch) => check_dispatch(buffers, pipelines, caps, dispatch)?,
            Command::Copy { src, dst } => {
                buffers.check(src, wgpu::BufferUsages::COPY_SRC, || "copy source".into())?;
                buffers.check(dst, wgpu::BufferUsages::COPY_DST, || "copy destination".into())?;
            }
            Command::Boundary | Command::Beside => {}
        }
    }
    Ok(())
}

fn check_dispatch(buffers: &Buffers, pipelines: &Pipelines, caps: &Caps, dispatch: &Dispatch) -> Result<()> {
    let decl = pipelines.get(dispatch.pipeline)?.decl;
    let most = u64::from(caps.max_workgroups_per_dimension).pow(2).min(u64::from(u32::MAX) - 0xffff);
    checks::dispatch(decl, dispatch, caps, most, |slice, what| {
        buffers.check(slice, wgpu::BufferUsages::STORAGE, what).map(|_| ())
    })
}

/// Writes the uniform blocks of all dispatches to `out`, [`STRIDE_BYTES`] apart.
pub(super) fn blocks(commands: &[Command], out: &mut Vec<u8>) {
    out.clear();
    for command in commands {
        if let Command::Dispatch(dispatch) = command {
            let start = out.len();
            out.extend_from_slice(&dispatch.groups.to_le_bytes());
            for word in &dispatch.params {
                out.extend_from_slice(&word.to_le_bytes());
            }
            out.resize(start + STRIDE_BYTES as usize, 0);
        }
    }
}

/// Workgroups as x and y, with `x · y >= groups`, both within a dimension, and the fewest in excess.
pub(super) fn fold(groups: u32, most: u32) -> (u32, u32) {
    let rows = groups.div_ceil(most.max(1)).max(1);
    (groups.div_ceil(rows), rows)
}

/// Encodes `commands`, whose uniform blocks are at the start of `uniform`.
pub(super) struct Encoding<'a> {
    pub(super) device: &'a wgpu::Device,
    pub(super) buffers: &'a Buffers,
    pub(super) pipelines: &'a Pipelines,
    pub(super) groups: &'a mut Groups,
    pub(super) uniform: &'a Uniform,
    pub(super) max_groups: u32,
}

impl Encoding<'_> {
    /// One pass for all dispatches between copies; with `queries`, one pass a span.
    pub(super) fn encode(
        &mut self,
        commands: &[Command],
        encoder: &mut wgpu::CommandEncoder,
        queries: Option<&Queries>,
    ) -> Result<()> {
        self.groups.begin();
        let mut pass: Option<wgpu::ComputePass<'static>> = None;
        let (mut bound, mut timed) = (None, None);
        let mut number = 0;
        for command in commands {
            match command {
                Command::Dispatch(dispatch) => {
                    let pipeline = self.pipelines.get(dispatch.pipeline)?;
                    let layout = (pipeline.layout, self.pipelines.layout(pipeline.layout));
                    let group = self.groups.get(self.device, self.buffers, layout, self.uniform, &dispatch.bindings)?;
                    let span = queries.and_then(|q| q.span_of(number));
                    if span != timed {
                        pass = None;
                        timed = span;
                    }
                    let pass = pass.get_or_insert_with(|| {
                        bound = None;
                        let timestamp_writes = queries.zip(span).map(|(q, at)| wgpu::ComputePassTimestampWrites {
                            query_set: &q.sets[at / SPANS_A_SET],
                            beginning_of_pass_write_index: Some((at % SPANS_A_SET * 2) as u32),
                            end_of_pass_write_index: Some((at % SPANS_A_SET * 2 + 1) as u32),
                        });
                        let label = queries.map(|_| pipeline.decl.name).or(Some("kvarto"));
                        let descriptor = wgpu::ComputePassDescriptor { label, timestamp_writes };
                        encoder.begin_compute_pass(&descriptor).forget_lifetime()
                    });
                    if bound != Some(dispatch.pipeline) {
                        pass.set_pipeline(&pipeline.pipeline);
                        bound = Some(dispatch.pipeline);
                    }
                    let offset = number as u64 * STRIDE_BYTES;
                    pass.set_bind_group(0, &group, &[offset as u32]);
                    let (x, y) = fold(dispatch.groups, self.max_groups);
                    pass.dispatch_workgroups(x, y, 1);
                    number += 1;
                }
                Command::Copy { src, dst } => {
                    pass = None;
                    let from = &self.buffers.get(src.buffer)?.buffer;
                    let to = &self.buffers.get(dst.buffer)?.buffer;
                    encoder.copy_buffer_to_buffer(from, src.offset, to, dst.offset, src.bytes);
                }
                Command::Boundary | Command::Beside => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::fold;

    #[test]
    fn folds_stay_within_limits_and_waste_less_than_a_row() {
        for groups in [1, 2, 65_535, 65_536, 65_537, 70_000, 131_071, 1_000_003, 4_294_836_225] {
            let (x, y) = fold(groups, 65_535);
            assert!(x <= 65_535 && y <= 65_535 && x > 0 && y > 0, "{groups}: {x} {y}");
            let all = u64::from(x) * u64::from(y);
            assert!(all >= groups.into() && all - u64::from(groups) < u64::from(y), "{groups}: {x} {y}");
        }
        assert_eq!(fold(65_535, 65_535), (65_535, 1));
        assert_eq!(fold(7, 4), (4, 2));
    }
}
