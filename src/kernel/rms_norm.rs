//! Root-mean-square norm of rows (arXiv 1910.07467).

use super::RowView;
use super::view::{Rows, RowsMut};
use crate::backend::{
    BindingDecl, BufferSlice, Constant, CpuCall, CudaText, Dispatch, Element, KernelDecl, ParamDecl, PipelineId,
    Specialisation,
};
use crate::error::{Error, ErrorKind, Result};
use pulp::{Arch, Simd, WithSimd};

/// `y = x / sqrt(mean(x^2) + eps) * w`, one workgroup a row.
pub static DECL: KernelDecl = KernelDecl {
    name: "rms_norm",
    bindings: &[
        BindingDecl::read("x", Element::F32),
        BindingDecl::read("w", Element::F32),
        BindingDecl::write("y", Element::F32),
    ],
    params: &[
        ParamDecl::u32("rows"),
        ParamDecl::u32("x_offset"),
        ParamDecl::u32("x_stride"),
        ParamDecl::u32("y_offset"),
        ParamDecl::u32("y_stride"),
        ParamDecl::u32("w_offset"),
        ParamDecl::f32("eps"),
    ],
    constants: &["WORKGROUP", "WIDTH"],
    codecs: &[],
    cpu,
    wgsl: include_str!("../../shaders/rms_norm.wgsl"),
    cuda: Some(CudaText {
        text: include_str!("../../cuda/rms_norm.cu"),
        // A thread holds up to 16 values and as many weights.
        serves: |spec| spec.u32("WIDTH") <= 16_384,
        threads: |spec| spec.u32("WIDTH").div_ceil(8).next_multiple_of(32).clamp(64, 1024),
        shared_bytes: |_| 0,
        overlaps: true,
    }),
};

/// For rows of `width` values.
pub fn specialise(width: u32) -> Result<Specialisation> {
    let workgroup: u32 = if width <= 256 { 64 } else { 256 };
    Specialisation::new(&DECL, &[("WORKGROUP", Constant::U32(workgroup)), ("WIDTH", Constant::U32(width))], Vec::new())
}

/// Normalises `rows` rows from x to y, another buffer; `specialisation` is the pipeline's. `weights` holds f32, from
/// `weights_offset` (in values) on. `eps` is above 0.
///
/// # Errors
/// `Shape` when a view or the weights are not inside their slices.
#[expect(clippy::too_many_arguments, reason = "each has its own type or meaning, and callers name them")]
pub fn dispatch(
    pipeline: PipelineId,
    specialisation: &Specialisation,
    x: RowView,
    weights: BufferSlice,
    weights_offset: u32,
    y: RowView,
    rows: u32,
    eps: f32,
) -> Result<Dispatch> {
    let width = specialisation.u32("WIDTH");
    x.check("rms_norm.x", rows, width, false)?;
    y.check("rms_norm.y", rows, width, true)?;
    check_weights(weights.bytes / 4, weights_offset, width)?;
    Ok(Dispatch {
        pipeline,
        groups: rows,
        params: vec![rows, x.offset, x.stride, y.offset, y.stride, weights_offset, eps.to_bits()],
        bindings: vec![x.slice, weights, y.slice],
    })
}

fn check_weights(given: u64, offset: u32, width: u32) -> Result<()> {
    if given < u64::from(offset) + u64::from(width) {
        return Err(Error::new(
            ErrorKind::Shape,
            format!("rms_norm: {width} weights from {offset} on, the slice has {given}"),
            "",
        ));
    }
    Ok(())
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    let (rows, width, eps) = (call.param("rows"), call.spec.u32("WIDTH"), call.float("eps"));
    let offset = call.param("w_offset");
    let weights: &[f32] = call.read("w");
    check_weights(weights.len() as u64, offset, width)?;
    let weights = &weights[offset as usize..][..width as usize];
    let x = Rows::of(call, "x", rows, width)?;
    let arch = Arch::new();
    RowsMut::of(call, "y", rows, width)?
        .for_each(2 * width as usize, |row, y| arch.dispatch(Norm { x: x.row(row), weights, y, eps }));
    Ok(())
}

struct Norm<'a> {
    x: &'a [f32],
    weights: &'a [f32],
    y: &'a mut [f32],
    eps: f32,
}

impl WithSimd for Norm<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        // Sixteen sums side by side: vector code, and less rounding than one long sum.
        let (blocks, rest) = self.x.as_chunks::<16>();
        let mut sums = [0f32; 16];
        for block in blocks {
            for (sum, x) in sums.iter_mut().zip(block) {
                *sum += x * x;
            }
        }
        let squares = sums.iter().sum::<f32>() + rest.iter().map(|x| x * x).sum::<f32>();
        let scale = 1.0 / (squares / self.x.len() as f32 + self.eps).sqrt();
        for ((y, x), w) in self.y.iter_mut().zip(self.x).zip(self.weights) {
            *y = x * scale * w;
        }
    }
}
