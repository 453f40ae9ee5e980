//! Quest's boxes: of each channel the smallest and the largest key of a page (arXiv 2406.10774 §3.3).
//!
//! Word `c` of a box holds the minimum of channel `c` in its low 16 bits and the maximum in its high ones, as f16 bits
//! rounded outwards: every key of the page lies within. Rounding comes first and is monotone, so the box does not depend
//! on the steps that the rows came in. There are no subnormals in it, which a reader could flush; beyond ±65504 stands an
//! infinity; a channel that holds a NaN has it on both ends. All of it is integers, so every backend writes the same bits.

use super::plane::{self, NewRows};
use crate::backend::{BindingDecl, CpuCall, Element, KernelDecl};
use crate::error::Result;
use crate::num::{f16_above, f16_below};

/// The kernel; specialised and dispatched as every kernel of a side plane ([`plane`]).
pub static DECL: KernelDecl = KernelDecl {
    name: "summarise_box",
    bindings: &[
        // As bits: loads of floats may flush subnormals.
        BindingDecl::read("k_in", Element::U32),
        BindingDecl::read("v_in", Element::U32),
        BindingDecl::read("tables", Element::U32),
        BindingDecl::read("descs", Element::U32),
        BindingDecl::write("planes", Element::U32),
    ],
    params: &plane::PARAMS,
    constants: &plane::CONSTANTS,
    codecs: &[],
    cpu,
    wgsl: include_str!("../../shaders/summarise_box.wgsl"),
    cuda: None,
};

/// Words of a box: one a channel of K.
pub fn words(k_dim: usize) -> usize {
    k_dim
}

fn cpu(call: &mut CpuCall<'_>) -> Result<()> {
    plane::each_page(call, widen)
}

const NAN: u16 = 0x7e00;

/// f16 bits in the order of their values, NaN above everything.
fn ordered(bits: u16) -> u16 {
    bits ^ if bits & 0x8000 == 0 { 0x8000 } else { 0xffff }
}

fn widen(new: &NewRows<'_>, record: &mut [u32]) -> Result<()> {
    for row in 0..new.rows {
        let first = row == 0 && new.first_token == 0;
        for (word, &x) in record.iter_mut().zip(new.k(row)?) {
            let (mut low, mut high) = (f16_below(x), f16_above(x));
            if !first {
                low = std::cmp::min_by_key(low, *word as u16, |&bits| ordered(bits));
                high = std::cmp::max_by_key(high, (*word >> 16) as u16, |&bits| ordered(bits));
            }
            if high == NAN {
                low = NAN;
            }
            *word = u32::from(low) | u32::from(high) << 16;
        }
    }
    Ok(())
}
