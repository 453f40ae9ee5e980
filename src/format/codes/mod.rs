//! What formats of 2, 3 and 4-bit codes with one scalar a token share: the layout, the CPU's tables,
//! and the shader text that finds codes and packs them. What a code means is each format's own.

mod layout;
mod reader;
mod text;
mod units;
#[cfg(target_arch = "x86_64")]
mod wide;

pub(super) use layout::{FIRST, PLANE1, SCALAR, layout};
pub(super) use reader::Reader;
pub(super) use text::{c_code, wgsl_codes, wgsl_encode};
pub(super) use units::units;
