//! Page formats: how the values of one page side become words, on the CPU and as shader text.
//!
//! A [`Format`] is a name in a [`FormatRegistry`]; [`Format::codec`] specialises it to a side and a
//! page geometry. A codec's [`Layout`] states where every bit stands, once: decoders and encoders
//! in Rust, WGSL and CUDA are tested against it or printed from it.
//!
//! Pages are little-endian `u32` words; a page is a multiple of 16 bytes.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::shape::{PageGeometry, Side};

mod bf16;
mod blocks;
mod codes;
pub mod emit;
mod expr;
mod f16;
mod f32;
mod fp8;
mod halves;
mod layout;
mod plain;
mod q3_affine;
mod registry;
mod tiles;
mod tq;
mod units;
pub(crate) mod words;

pub use bf16::Bf16;
pub use blocks::{Q4_0, Q8_0};
pub use expr::Expr;
pub use f16::F16;
pub use f32::F32;
pub use fp8::Fp8;
pub use layout::{Layout, Per, PlaneSpec, ScalarPlane, UNIT_WORDS, mask};
pub use q3_affine::Q3Affine;
pub use registry::{FormatId, FormatRegistry};
pub use tiles::Tiles;
pub use tq::{Tq2, Tq3, Tq3Nested, Tq4};
pub use units::Units;

#[cfg(target_endian = "big")]
compile_error!("pages are viewed as bytes and half words in place, which is right on little-endian hosts only");

/// A page format, independent of shape: one file and one line in the registry.
pub trait Format: Send + Sync {
    /// The word for it in profiles and on the command line, such as `fp8`.
    fn name(&self) -> &str;

    /// One line for a list of formats.
    fn summary(&self) -> &str;

    /// Whether its codebook presumes rotated rows: the default basis is then `hadamard`.
    fn wants_rotation(&self) -> bool;

    /// The format for pages of `geometry` on `side`; `Unsupported`, with a reason, where it cannot be.
    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>>;

    /// The format that a page is in when only its first part is left, for a format whose pages are stored in two parts
    /// ([`Codec::split`]): the first part, as it stands, is a page of that format. `None` for pages in one piece.
    fn first_part(&self) -> Option<&str> {
        None
    }
}

/// A format specialised to a side and a page geometry (P tokens of D channels).
///
/// # Shader text
/// `prefix` (p below) leads every name, so that several formats live in one module. WGSL expects
/// [`WGSL_NUMBERS`](crate::num::WGSL_NUMBERS) once, ahead, and a storage binding `{p}_slab`, whose words it reads
/// by `{p}_word(i: u32) -> u32`; where it writes or encodes, that is an `array<u32>`. `base` is a page's first word. CUDA text expects
/// [`CUDA_NUMBERS`](crate::num::CUDA_NUMBERS) once, ahead; its functions take the page's address.
pub trait Codec: Send + Sync {
    /// Where every bit of a page stands.
    fn layout(&self) -> &Layout;

    /// Words of the first part of a page, and of the further one where the page is stored in two
    /// ([`Codec::split`]); together the page.
    fn parts(&self) -> [usize; 2] {
        [self.layout().page_words, 0]
    }

    /// The same format for pages whose first part stands in `{p}_slab` and whose further one in `{p}1_slab`, each with a
    /// slot of its own, so that the further one can be freed alone ([`Format::first_part`]). Its [`Codec::parts`] say
    /// where a page is cut; on the host a page is one piece all the same. Its shader text adds the words of the further
    /// part to `{p}_part1`, which the kernel sets to that part's first word less the words of the first part, and reads
    /// them with `{p}1_word(i: u32) -> u32`. [`Codec::wgsl_units`] reads `{p}_part1` in `{p}_at` and nowhere else.
    fn split(&self) -> Option<Arc<dyn Codec>> {
        None
    }

    /// Writes a whole page, every word of it.
    ///
    /// `values` is `[P][D]` row-major, `page` has `layout().page_words` words.
    ///
    /// # Panics
    /// If a slice's length is another.
    fn encode(&self, values: &[f32], page: &mut [u32]);

    /// Reads the rows of `tokens` (within 0..P) into `out`, `[tokens.len()][D]` row-major.
    ///
    /// # Panics
    /// If a slice's length or the range does not fit.
    fn decode(&self, page: &[u32], tokens: Range<usize>, out: &mut [f32]);

    /// Whether a page's words are IEEE halves, in the places that [`Codec::layout`] gives the values of `f16`: kernels on the
    /// CPU may then read them without [`Codec::decode`].
    fn holds_halves(&self) -> bool {
        false
    }

    /// Whether a token can be written alone, without reading the rest of its page.
    fn token_writable(&self) -> bool {
        false
    }

    /// Writes token `token` (below P) from `row`, D values, where [`Codec::token_writable`].
    ///
    /// # Panics
    /// If the format is not token-writable, or an index or a length does not fit.
    fn write_token(&self, page: &mut [u32], token: usize, row: &[f32]) {
        let _ = (page, row);
        panic!("token {token}: pages of this format are written whole");
    }

    /// WGSL for reading, value = load4 · scale:
    /// - `fn {p}_load4(base: u32, token: u32, c4: u32) -> vec4<f32>`, channels 4·c4 to 4·c4 + 3;
    /// - `fn {p}_scale(base: u32, token: u32) -> f32`;
    /// - the layout's functions `{p}_{plane}_word(t, c)` and `{p}_{plane}_shift(t, c)`, of scalars with `t`
    ///   alone unless they are of blocks.
    ///
    /// `scale` is one number a token: kernels multiply by it once a token, after the sum over channels. A
    /// format whose scales are of less than a token, or which has a zero point, returns whole values
    /// from `load4` and 1 from `scale`.
    fn wgsl(&self, prefix: &str) -> String;

    /// WGSL for reading many values at a time, with [`Codec::wgsl`] of the same prefix; there `{p}_slab` is an
    /// `array<vec4<u32>>`. By default it goes by `load4`; a format of one's own may do better (see [`Units`]), and decode
    /// attention refuses units that it cannot take.
    fn wgsl_units(&self, prefix: &str) -> Units {
        Units::by_load4(self.layout(), prefix)
    }

    /// WGSL for writing a token: `fn {p}_store4(base: u32, token: u32, c4: u32, value: vec4<f32>)`.
    ///
    /// Empty where not token-writable. Goes with [`Codec::wgsl`] of the same prefix; the slab must
    /// be `read_write`.
    fn wgsl_store(&self, prefix: &str) -> String {
        let _ = prefix;
        String::new()
    }

    /// WGSL for writing a page: `fn {p}_encode_page(base: u32, lid: u32)`.
    ///
    /// Goes with [`Codec::wgsl`] and [`Codec::wgsl_store`] of the same prefix. To be called in
    /// uniform control flow by all `WORKGROUP` threads (a constant of the kernel's, a power of two
    /// from 64 to 256), `lid` the thread's index; reads values through the kernel's
    /// `fn source4(token: u32, c4: u32) -> vec4<f32>` and writes every word of the page. Declares at
    /// most 12 KiB of workgroup memory, its names led by `{p}_`; on return all of it may be reused. A line
    /// `//#unzeroed` claims that every word of it is written before it is read: it is then not cleared at entry.
    fn wgsl_encode(&self, prefix: &str) -> String;

    /// How tensor cores read this side's pages in decode attention; `None` where that is by the portable kernel alone.
    fn tiles(&self) -> Option<Tiles> {
        None
    }

    /// CUDA text for reading, which is also C: the layout's functions, and
    /// `{p}_load4(const unsigned *page, unsigned token, unsigned c4, float *out)` and
    /// `float {p}_scale(const unsigned *page, unsigned token)`, which mean the same. Empty where the format has none.
    fn cuda(&self, prefix: &str) -> String {
        let _ = prefix;
        String::new()
    }
}

#[cfg(test)]
mod tests;
