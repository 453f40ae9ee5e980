//! Every format's shader text against its CPU code, bit for bit: pages packed on one side and unpacked on the other.

use crate::on_vulkan;
use kvarto::Result;
use kvarto::backend::{Backend, CodecUse};
use kvarto::conformance::Random;
use kvarto::conformance::codes::{self, Agreement};
use kvarto::format::FormatRegistry;
use kvarto::shape::{PageGeometry, Side};

pub const FORMATS: [&str; 11] = ["f32", "f16", "bf16", "fp8", "tq3", "tq2", "tq4", "q8_0", "q4_0", "q3_affine", "tq3n"];

#[test]
fn every_built_in_format_is_tested() {
    let registry = FormatRegistry::builtin();
    assert!(registry.iter().map(|(_, format)| format.name()).eq(FORMATS));
}

pub fn codec(name: &str, side: Side, geometry: PageGeometry) -> CodecUse {
    codes::codec(name, side, geometry).expect("a supported geometry")
}

/// Converts page by page, `valid[i]` tokens of page i.
pub fn run(backend: &mut dyn Backend, src: &CodecUse, dst: &CodecUse, pages: &[u32], valid: &[usize]) -> Vec<u32> {
    codes::convert_pages(backend, src, dst, pages, valid)
        .unwrap_or_else(|e| panic!("{} to {}: {e}", src.format, dst.format))
}

type Compare = fn(&mut dyn Backend, &str, Side, PageGeometry) -> Result<Agreement>;

/// The shader's words or values are the CPU's.
fn check(compare: Compare, name: &str, side: Side, geometry: PageGeometry) {
    on_vulkan(|backend| {
        let said =
            compare(backend, name, side, geometry).unwrap_or_else(|e| panic!("{name} {side:?} {geometry:?}: {e}"));
        assert_eq!(said.apart, 0, "{name} {side:?} {geometry:?}: {}", said.first);
        assert!(said.compared >= geometry.values() / 32, "{name}: only {} compared", said.compared);
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
            geometries(name, 2 * turn + s).into_iter().for_each(|geometry| check(codes::pack, name, side, geometry));
        }
    }
}

#[test]
fn every_code_unpacks_on_the_gpu_as_on_the_cpu() {
    for (turn, name) in FORMATS.iter().enumerate() {
        for (s, side) in Side::BOTH.into_iter().enumerate() {
            geometries(name, 2 * turn + s + 2)
                .into_iter()
                .for_each(|geometry| check(codes::unpack, name, side, geometry));
        }
        // All 65536 codes of the 16-bit formats stand in one page of this size.
        check(codes::unpack, name, Side::K, PageGeometry { tokens: 128, head_dim: 512 });
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
