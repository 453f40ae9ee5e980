//! Every format's shader text against its CPU code, bit for bit: pages packed on one side and unpacked on the other.

use super::{POISON, Random, buffer, words};
use crate::backend::{Backend, BufferSlice, CodecUse, Recording};
use crate::error::{Error, ErrorKind, Result};
use crate::format::{FormatRegistry, mask};
use crate::kernel::convert;
use crate::shape::{PageGeometry, Side};

/// A side of a page in a built-in format.
///
/// # Errors
/// `Usage` for a format that is not built in, and the format's own refusal of the geometry.
pub fn codec(name: &str, side: Side, geometry: PageGeometry) -> Result<CodecUse> {
    let registry = FormatRegistry::builtin();
    Ok(CodecUse { format: name.into(), codec: registry.by_name(name)?.1.codec(side, geometry)? })
}

/// What a backend's pages have in common with the CPU's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// Words or values compared.
    pub compared: usize,
    /// Those that differ.
    pub apart: usize,
    /// The first that does: where, and both sides; empty where none does.
    pub first: String,
}

/// Converts page by page, `valid[i]` tokens of page i, into slots in reverse order; the destination starts as NaN.
/// The pages in their order.
///
/// # Errors
/// The backend's; `Shape` for pages of another size than `src`'s, and where a slot beyond the last was written.
pub fn convert_pages(
    backend: &mut dyn Backend,
    src: &CodecUse,
    dst: &CodecUse,
    pages: &[u32],
    valid: &[usize],
) -> Result<Vec<u32>> {
    let (count, page_words) = (valid.len(), dst.codec.layout().page_words);
    let wanted = count * src.codec.layout().page_words;
    if pages.len() != wanted {
        return Err(Error::new(ErrorKind::Shape, format!("{} words for {count} pages of {wanted}", pages.len()), ""));
    }
    let mut tables = vec![POISON; 8];
    for (i, &valid) in valid.iter().enumerate() {
        tables.extend([i as u32, (count - 1 - i) as u32, valid as u32, 0]);
    }
    let mut live = Vec::new();
    let mut convert = || {
        let mut make = |label: &str, words: &[u32]| -> Result<BufferSlice> {
            let slice = buffer(backend, label, words)?;
            live.push(slice.buffer);
            Ok(slice)
        };
        let src_slab = make("src", pages)?;
        let dst_slab = make("dst", &vec![POISON; (count + 1) * page_words])?;
        let tables = make("tables", &tables)?;
        let pipeline = backend.prepare(&convert::specialise(src.clone(), dst.clone(), 64)?)?;
        let mut recording = Recording::new();
        let args = convert::Args { items: count as u32, items_at: 8 };
        recording.dispatch(convert::dispatch(pipeline, &convert::Buffers { src_slab, dst_slab, tables }, &args));
        backend.submit(recording)?;
        words(backend, &dst_slab)
    };
    let out = convert();
    live.into_iter().for_each(|id| backend.free(id));
    let out = out?;
    if out[count * page_words..].iter().any(|w| *w != POISON) {
        return Err(Error::new(ErrorKind::Shape, "a slot beyond the last was written", ""));
    }
    Ok((0..count).rev().flat_map(|slot| out[slot * page_words..(slot + 1) * page_words].to_vec()).collect())
}

/// Pages of values that find the edges: zeros, tiny and huge rows, ties between codes, infinities, NaN.
pub fn edges(geometry: PageGeometry, random: &mut Random) -> Vec<Vec<f32>> {
    let PageGeometry { tokens, head_dim } = geometry;
    let mut plain = random.normal(tokens * head_dim);
    plain[..head_dim].fill(0.0);
    plain[head_dim..2 * head_dim].iter_mut().for_each(|x| *x *= 1e-30);
    plain[2 * head_dim..3 * head_dim].iter_mut().for_each(|x| *x *= 1e30);
    plain[3 * head_dim..4 * head_dim].iter_mut().for_each(|x| *x = x.signum());
    let mut moderate = random.normal(tokens * head_dim);
    moderate.iter_mut().enumerate().for_each(|(i, x)| *x *= f32::powi(2.0, i as i32 % 41 - 24));
    let mut ties: Vec<f32> = (0..tokens * head_dim).map(|i| (i as f32 - 1000.0) / 16.0).collect();
    ties[5] = 448.0;
    let mut wild = random.normal(tokens * head_dim);
    wild[7] = f32::INFINITY;
    wild[head_dim + 1] = f32::NEG_INFINITY;
    let mut nan = wild.clone();
    nan[3 * head_dim + 2] = f32::NAN;
    nan[4 * head_dim + 1] = -f32::NAN;
    vec![plain, moderate, ties, wild, nan, random.normal(tokens * head_dim)]
}

/// The backend's pages from f32 pages beside the CPU's, to the bit.
///
/// # Errors
/// As [`convert_pages`] and [`codec`].
pub fn pack(backend: &mut dyn Backend, name: &str, side: Side, geometry: PageGeometry) -> Result<Agreement> {
    let (src, dst) = (codec("f32", side, geometry)?, codec(name, side, geometry)?);
    let layout = src.codec.layout().clone();
    let mut random = Random::new(geometry.head_dim as u64);
    let values = edges(geometry, &mut random);
    // The last page is not full: what lies behind its tokens is NaN and must enter as zeros.
    let mut valid = vec![geometry.tokens; values.len()];
    valid[values.len() - 1] = geometry.tokens - 5;
    let (mut pages, mut want) = (Vec::new(), Vec::new());
    for (values, &valid) in values.iter().zip(&valid) {
        let mut page = vec![POISON; layout.page_words];
        src.codec.encode(values, &mut page);
        // As the CPU reads it back: f32 pages need not keep every payload of a NaN.
        let mut back = vec![0.0; values.len()];
        src.codec.decode(&page, 0..geometry.tokens, &mut back);
        back[valid * geometry.head_dim..].fill(0.0);
        for (t, c) in (valid..geometry.tokens).flat_map(|t| (0..geometry.head_dim).map(move |c| (t, c))) {
            page[layout.position(0, t, c).0] = POISON;
        }
        pages.extend(page);
        let mut encoded = vec![POISON; dst.codec.layout().page_words];
        dst.codec.encode(&back, &mut encoded);
        want.extend(encoded);
    }
    let got = convert_pages(backend, &src, &dst, &pages, &valid)?;
    let page_words = dst.codec.layout().page_words;
    let mut agreement = Agreement { compared: want.len(), apart: 0, first: String::new() };
    for (at, (got, want)) in got.iter().zip(&want).enumerate().filter(|(_, (got, want))| got != want) {
        if agreement.apart == 0 {
            let (page, word) = (at / page_words, at % page_words);
            agreement.first = format!("page {page} word {word}: {got:08x}, CPU {want:08x}");
        }
        agreement.apart += 1;
    }
    Ok(agreement)
}

/// Pages whose words run through every code, with scalars that are ordinary numbers.
fn code_pages(name: &str, codec: &CodecUse, random: &mut Random) -> Vec<u32> {
    let layout = codec.codec.layout();
    let mut pages = Vec::new();
    for page in 0..3u32 {
        let mut words: Vec<u32> = (0..layout.page_words).map(|_| random.next() as u32).collect();
        if ["f16", "bf16"].contains(&name) {
            // 32768 words hold all 65536 codes: three pages of 8192 words or more reach them from three starts.
            words.iter_mut().enumerate().for_each(|(i, w)| {
                let code = (2 * i as u32 + page * 21846) & 0xffff;
                *w = code | ((code + 1) & 0xffff) << 16;
            });
        }
        if name == "fp8" {
            // Every code but the two that pages never hold.
            words.iter_mut().enumerate().for_each(|(i, w)| {
                let byte = |k: u32| {
                    let code = (4 * i as u32 + k + page) & 0xff;
                    if code & 0x7f == 0x7f { code - 1 } else { code }
                };
                *w = byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24;
            });
        }
        for (number, scalar) in layout.scalars.iter().enumerate() {
            for (t, c) in scalar.owners(layout.geometry) {
                let (word, shift) = layout.scalar_position(number, t, c);
                let mut half = || 0x2c00 + (random.next() as u32 & 0x1fff);
                let bits = match scalar.bits {
                    // Scale and zero, the latter of both signs.
                    32 if name == "q3_affine" => half() | half() << 16 | (t as u32 & 1) << 31,
                    32 => [1.0f32, 0.37, 1.5e-3][page as usize].to_bits(),
                    _ => half(),
                };
                let mask = mask(scalar.bits) << shift;
                words[word] = words[word] & !mask | bits << shift;
            }
        }
        pages.extend(words);
    }
    pages
}

/// The backend's f32 pages from pages of every code beside the CPU's values. A NaN stays one, of any payload; WGSL lets
/// subnormals become 0.
///
/// # Errors
/// As [`convert_pages`] and [`codec`].
pub fn unpack(backend: &mut dyn Backend, name: &str, side: Side, geometry: PageGeometry) -> Result<Agreement> {
    let (src, dst) = (codec(name, side, geometry)?, codec("f32", side, geometry)?);
    let layout = dst.codec.layout().clone();
    let pages = code_pages(name, &src, &mut Random::new(7));
    let got = convert_pages(backend, &src, &dst, &pages, &[geometry.tokens; 3])?;
    let page_words = src.codec.layout().page_words;
    let mut agreement = Agreement { compared: 3 * geometry.values(), apart: 0, first: String::new() };
    for (number, (page, got)) in pages.chunks_exact(page_words).zip(got.chunks_exact(layout.page_words)).enumerate() {
        let mut want = vec![0.0f32; geometry.values()];
        src.codec.decode(page, 0..geometry.tokens, &mut want);
        for (at, want) in want.iter().enumerate() {
            let (t, c) = (at / geometry.head_dim, at % geometry.head_dim);
            let got = f32::from_bits(got[layout.position(0, t, c).0]);
            let same =
                got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan() || want.is_subnormal() && got == 0.0;
            if !same {
                if agreement.apart == 0 {
                    agreement.first = format!("page {number} token {t} channel {c}: {got}, CPU {want}");
                }
                agreement.apart += 1;
            }
        }
    }
    Ok(agreement)
}
