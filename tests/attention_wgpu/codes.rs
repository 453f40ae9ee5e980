//! Every format's shader text against its CPU code, bit for bit: pages packed on one side and unpacked on the other.

use crate::harness::{POISON, Random};
use crate::on_vulkan;
use kvarto::backend::{Backend, BufferSlice, CodecUse, Recording, read_blocking};
use kvarto::format::FormatRegistry;
use kvarto::kernel::convert;
use kvarto::shape::{PageGeometry, Side};

pub const FORMATS: [&str; 10] = ["f32", "f16", "bf16", "fp8", "tq3", "tq2", "tq4", "q8_0", "q4_0", "q3_affine"];

#[test]
fn every_built_in_format_is_tested() {
    let registry = FormatRegistry::builtin();
    assert!(registry.iter().map(|(_, format)| format.name()).eq(FORMATS));
}

pub fn codec(name: &str, side: Side, geometry: PageGeometry) -> CodecUse {
    let registry = FormatRegistry::builtin();
    let (_, format) = registry.by_name(name).expect("a built-in format");
    CodecUse { format: name.into(), codec: format.codec(side, geometry).expect("a supported geometry") }
}

fn buffer(backend: &mut dyn Backend, words: &[u32]) -> BufferSlice {
    let bytes = (words.len() * 4) as u64;
    let id = backend.alloc("test", bytes).expect("a buffer");
    backend.write(id, 0, bytemuck::cast_slice(words)).expect("a write");
    BufferSlice::whole(id, bytes)
}

/// Converts page by page, `valid[i]` tokens of page i, into slots in reverse order; the destination starts as NaN.
pub fn run(backend: &mut dyn Backend, src: &CodecUse, dst: &CodecUse, pages: &[u32], valid: &[usize]) -> Vec<u32> {
    let (count, words) = (valid.len(), dst.codec.layout().page_words);
    assert_eq!(pages.len(), count * src.codec.layout().page_words);
    let mut tables = vec![POISON; 8];
    for (i, &valid) in valid.iter().enumerate() {
        tables.extend([i as u32, (count - 1 - i) as u32, valid as u32, 0]);
    }
    let src_slab = buffer(backend, pages);
    let dst_slab = buffer(backend, &vec![POISON; (count + 1) * words]);
    let tables = buffer(backend, &tables);
    let spec = convert::specialise(src.clone(), dst.clone(), 64).expect("a kernel");
    let pipeline = backend.prepare(&spec).unwrap_or_else(|e| panic!("{}: {e}", spec.key()));
    let mut recording = Recording::new();
    let args = convert::Args { items: count as u32, items_at: 8 };
    recording.dispatch(convert::dispatch(pipeline, &convert::Buffers { src_slab, dst_slab, tables }, &args));
    backend.submit(recording).expect("a submission");
    let bytes = read_blocking(backend, dst_slab.buffer, 0, dst_slab.bytes).expect("a read");
    [src_slab, dst_slab, tables].into_iter().for_each(|slice| backend.free(slice.buffer));
    let out: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes);
    assert!(out[count * words..].iter().all(|w| *w == POISON), "a slot beyond the last was written");
    (0..count).rev().flat_map(|slot| out[slot * words..(slot + 1) * words].to_vec()).collect()
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

/// The shader's pages from f32 pages are the CPU's, to the bit.
fn check_encode(name: &str, side: Side, geometry: PageGeometry) {
    on_vulkan(|backend| {
        let (src, dst) = (codec("f32", side, geometry), codec(name, side, geometry));
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
        let got = run(backend, &src, &dst, &pages, &valid);
        let words = dst.codec.layout().page_words;
        let apart = got.iter().zip(&want).filter(|(a, b)| a != b).count();
        let first = got.iter().zip(&want).position(|(a, b)| a != b).unwrap_or(0);
        assert_eq!(
            apart,
            0,
            "{name} {side:?} {geometry:?}: page {} word {}: {:08x}, CPU {:08x}",
            first / words,
            first % words,
            got[first],
            want[first]
        );
    });
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
                let mask = kvarto::format::mask(scalar.bits) << shift;
                words[word] = words[word] & !mask | bits << shift;
            }
        }
        pages.extend(words);
    }
    pages
}

fn check_decode(name: &str, side: Side, geometry: PageGeometry) {
    on_vulkan(|backend| {
        let (src, dst) = (codec(name, side, geometry), codec("f32", side, geometry));
        let layout = dst.codec.layout().clone();
        let mut random = Random::new(7);
        let pages = code_pages(name, &src, &mut random);
        let got = run(backend, &src, &dst, &pages, &[geometry.tokens; 3]);
        let words = src.codec.layout().page_words;
        for (number, (page, got)) in pages.chunks_exact(words).zip(got.chunks_exact(layout.page_words)).enumerate() {
            let mut want = vec![0.0; geometry.values()];
            src.codec.decode(page, 0..geometry.tokens, &mut want);
            for (at, want) in want.iter().enumerate() {
                let (t, c) = (at / geometry.head_dim, at % geometry.head_dim);
                let got = f32::from_bits(got[layout.position(0, t, c).0]);
                // NaN stays NaN, of any payload; WGSL lets f32 subnormals become 0.
                let same = got.to_bits() == want.to_bits()
                    || got.is_nan() && want.is_nan()
                    || want.is_subnormal() && got == 0.0;
                assert!(same, "{name} {side:?} {geometry:?} page {number} token {t} channel {c}: {got}, CPU {want}");
            }
        }
    });
}

/// Geometries in turn: each format and side meets several, all of them meet each page size.
fn geometries(name: &str, turn: usize) -> [PageGeometry; 2] {
    let all = [(64, 128), (16, 96), (128, 256), (32, 80), (64, 64), (128, 80), (16, 256), (32, 192)];
    // Blocks are of 32 channels.
    let step = if ["q8_0", "q4_0"].contains(&name) { 32 } else { 8 };
    [turn % 8, (turn + 3) % 8]
        .map(|at| PageGeometry { tokens: all[at].0, head_dim: usize::next_multiple_of(all[at].1, step) })
}

#[test]
fn packed_on_the_gpu_as_on_the_cpu() {
    for (turn, name) in FORMATS.iter().enumerate() {
        for (s, side) in Side::BOTH.into_iter().enumerate() {
            geometries(name, 2 * turn + s).into_iter().for_each(|geometry| check_encode(name, side, geometry));
        }
    }
}

#[test]
fn every_code_unpacks_on_the_gpu_as_on_the_cpu() {
    for (turn, name) in FORMATS.iter().enumerate() {
        for (s, side) in Side::BOTH.into_iter().enumerate() {
            geometries(name, 2 * turn + s + 2).into_iter().for_each(|geometry| check_decode(name, side, geometry));
        }
        // All 65536 codes of the 16-bit formats stand in one page of this size.
        check_decode(name, Side::K, PageGeometry { tokens: 128, head_dim: 512 });
    }
}

#[test]
fn demotion_and_requantisation_agree_with_the_cpu() {
    // Both ways and between families: decoders and encoders of two formats in one kernel.
    on_vulkan(|backend| {
        let pairs = [
            ("fp8", "tq3"),
            ("tq3", "fp8"),
            ("f16", "bf16"),
            ("tq4", "tq2"),
            ("q8_0", "q4_0"),
            ("q4_0", "q3_affine"),
            ("q3_affine", "tq4"),
            ("tq2", "q8_0"),
        ];
        for (src, dst) in pairs {
            let geometry = PageGeometry { tokens: 32, head_dim: 128 };
            let (src, dst) = (codec(src, Side::V, geometry), codec(dst, Side::V, geometry));
            let mut page = vec![0; src.codec.layout().page_words];
            src.codec.encode(&Random::new(3).normal(geometry.values()), &mut page);
            let got = run(backend, &src, &dst, &page, &[geometry.tokens]);
            let want = run(&mut crate::cpu(), &src, &dst, &page, &[geometry.tokens]);
            assert_eq!(got, want, "{} to {}", src.format, dst.format);
        }
    });
}
