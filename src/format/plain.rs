//! What f32, f16 and bf16 share: pages of bare values in units of 16 bytes.
//!
//! K stands in chunks of N channels (N values fill a unit): chunk C/N of token T is unit
//! (C/N)·P + T, so that threads on neighbouring tokens read neighbouring units. V is row-major.

use std::ops::Range;

use bytemuck::Pod;

use super::Layout;
use super::emit::fill;
use crate::shape::{PageGeometry, Side};

/// Asserts the lengths that [`Codec::encode`](super::Codec::encode) demands.
pub(super) fn check_encode(layout: &Layout, values: &[f32], page: &[u32]) {
    assert_eq!(values.len(), layout.geometry.values(), "values of a page");
    assert_eq!(page.len(), layout.page_words, "words of a page");
}

/// Asserts the lengths that [`Codec::decode`](super::Codec::decode) demands.
pub(super) fn check_decode(layout: &Layout, page: &[u32], tokens: &Range<usize>, out: &[f32]) {
    assert_eq!(page.len(), layout.page_words, "words of a page");
    assert!(tokens.start <= tokens.end && tokens.end <= layout.geometry.tokens, "tokens {tokens:?} of a page");
    assert_eq!(out.len(), tokens.len() * layout.geometry.head_dim, "values of the tokens");
}

/// Asserts what [`Codec::write_token`](super::Codec::write_token) demands.
pub(super) fn check_token(layout: &Layout, page: &[u32], token: usize, row: &[f32]) {
    assert_eq!(page.len(), layout.page_words, "words of a page");
    assert!(token < layout.geometry.tokens, "token {token} of a page");
    assert_eq!(row.len(), layout.geometry.head_dim, "values of a row");
}

/// Tokens that K pages are decoded at a time: their rows and units stay in the first-level cache.
const BLOCK: usize = 16;

/// Reads rows; `convert` turns stored items into values, equally many.
#[inline(always)]
pub(super) fn decode<const N: usize, S: Pod>(
    layout: &Layout,
    page: &[u32],
    tokens: Range<usize>,
    out: &mut [f32],
    convert: impl Fn(&[S], &mut [f32]),
) {
    let PageGeometry { tokens: page_tokens, head_dim } = layout.geometry;
    let items: &[S] = bytemuck::cast_slice(page);
    if layout.side == Side::V {
        return convert(&items[tokens.start * head_dim..tokens.end * head_dim], out);
    }
    let mut buffer = [0f32; 8 * BLOCK];
    for (block, rows) in out.chunks_mut(BLOCK * head_dim).enumerate() {
        let first = tokens.start + block * BLOCK;
        let count = rows.len() / head_dim;
        let chunk_values = &mut buffer[..count * N];
        for chunk in 0..head_dim / N {
            let unit = chunk * page_tokens + first;
            convert(&items[unit * N..(unit + count) * N], chunk_values);
            for (row, values) in rows.chunks_exact_mut(head_dim).zip(chunk_values.as_chunks::<N>().0) {
                row[chunk * N..(chunk + 1) * N].copy_from_slice(values);
            }
        }
    }
}

/// Writes a row; `convert` turns a value into what is stored.
#[inline(always)]
pub(super) fn write_token<const N: usize, S: Pod>(
    layout: &Layout,
    page: &mut [u32],
    token: usize,
    row: &[f32],
    convert: impl Fn(f32) -> S,
) {
    let PageGeometry { tokens, head_dim } = layout.geometry;
    let items: &mut [S] = bytemuck::cast_slice_mut(page);
    for (chunk, values) in row.chunks_exact(N).enumerate() {
        let start = match layout.side {
            Side::K => (chunk * tokens + token) * N,
            Side::V => token * head_dim + chunk * N,
        };
        for (item, value) in items[start..start + N].iter_mut().zip(values) {
            *item = convert(*value);
        }
    }
}

/// `{p}_encode_page` through `{p}_store4`, threads on neighbouring units.
pub(super) fn wgsl_encode(layout: &Layout, prefix: &str) -> String {
    let PageGeometry { tokens, head_dim } = layout.geometry;
    // Quads of channels within a unit: 1 of f32, 2 of 16-bit values.
    let quads = (128 / layout.planes[0].bits / 4) as usize;
    let (token, c4) = match layout.side {
        Side::K => {
            (format!("(i / {quads}u) % {tokens}u"), format!("i / {}u * {quads}u + i % {quads}u", quads * tokens))
        }
        Side::V => (format!("i / {}u", head_dim / 4), format!("i % {}u", head_dim / 4)),
    };
    fill(
        "fn {p}_encode_page(base: u32, lid: u32) {
    for (var i = lid; i < {quads_total}u; i += WORKGROUP) {
        let token = {token};
        let c4 = {c4};
        {p}_store4(base, token, c4, source4(token, c4));
    }
}
",
        prefix,
        &[("quads_total", (tokens * head_dim / 4).to_string()), ("token", token), ("c4", c4)],
    )
}
