//! Formats (interim signatures).

use crate::error::Result;
use crate::shape::{PageGeometry, Side};
use std::ops::Range;
use std::sync::Arc;

/// Where the bits of a page side are.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Words of a page side, a multiple of 4.
    pub page_words: usize,
    /// Side.
    pub side: Side,
    /// Tokens and channels.
    pub geometry: PageGeometry,
}

/// A format.
pub trait Format: Send + Sync {
    /// Name.
    fn name(&self) -> &str;
    /// One line.
    fn summary(&self) -> &str;
    /// Whether the Hadamard basis suits it.
    fn wants_rotation(&self) -> bool;
    /// Specialise.
    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>>;
}

/// A format at a side and geometry.
pub trait Codec: Send + Sync {
    /// Layout.
    fn layout(&self) -> &Layout;
    /// Whole page.
    fn encode(&self, values: &[f32], page: &mut [u32]);
    /// Rows.
    fn decode(&self, page: &[u32], tokens: Range<usize>, out: &mut [f32]);
    /// Whether one token can be written alone.
    fn token_writable(&self) -> bool;
    /// Write one token.
    fn write_token(&self, page: &mut [u32], token: usize, row: &[f32]);
    /// WGSL decode functions.
    fn wgsl(&self, prefix: &str) -> String;
    /// WGSL store.
    fn wgsl_store(&self, prefix: &str) -> String;
    /// WGSL encode.
    fn wgsl_encode(&self, prefix: &str) -> String;
    /// CUDA text.
    fn cuda(&self, prefix: &str) -> String;
}
