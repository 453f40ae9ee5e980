//! Layouts and fragments of every format: documented formulas, bounds, emitted C run beside Rust,
//! emitted WGSL through naga.

use std::fmt::Write as _;
use std::process::Command;
use std::sync::Arc;

use kvarto::format::{Codec, FormatRegistry, Layout, Per};
use kvarto::num::{CUDA_NUMBERS, WGSL_HADAMARD, WGSL_NUMBERS};
use kvarto::shape::{PAGE_TOKENS, PageGeometry, Side};

#[cfg(feature = "wgpu")]
#[path = "layouts/gpu.rs"]
mod gpu;
#[cfg(feature = "wgpu")]
mod support;

const DIMS: [usize; 6] = [64, 80, 96, 128, 192, 256];

/// Whether a format is for a head size: blocks are of 32 channels.
fn takes(format: &str, head_dim: usize) -> bool {
    !["q8_0", "q4_0"].contains(&format) || head_dim.is_multiple_of(32)
}

/// Every built-in format on both sides at `dims` and all page sizes, with a name for messages.
fn codecs(dims: &[usize]) -> Vec<(String, Arc<dyn Codec>)> {
    let mut all = Vec::new();
    for (_, format) in FormatRegistry::builtin().iter() {
        for side in Side::BOTH {
            for &head_dim in dims {
                for tokens in PAGE_TOKENS {
                    let geometry = PageGeometry { tokens, head_dim };
                    if !takes(format.name(), head_dim) {
                        assert!(format.codec(side, geometry).is_err(), "{} takes {head_dim}", format.name());
                        continue;
                    }
                    let codec = format.codec(side, geometry).expect("a legal geometry");
                    all.push((format!("{}_{}_{head_dim}_{tokens}", format.name(), side.as_str()), codec));
                }
            }
        }
    }
    all
}

fn layout(format: &str, side: Side, tokens: usize, head_dim: usize) -> Layout {
    let registry = FormatRegistry::builtin();
    let (_, format) = registry.by_name(format).expect("a built-in format");
    format.codec(side, PageGeometry { tokens, head_dim }).expect("a legal geometry").layout().clone()
}

#[test]
fn layouts_are_injective_and_in_bounds() {
    let dims = [8, 16, 24, 40, 64, 72, 80, 96, 112, 120, 128, 136, 160, 192, 256, 320, 512];
    for (name, codec) in codecs(&dims) {
        let layout = codec.layout();
        let PageGeometry { tokens, head_dim } = layout.geometry;
        assert_eq!(layout.page_words % 4, 0, "{name}");
        let mut taken = vec![0u32; layout.page_words];
        let mut take = |word: usize, shift: u32, bits: u32, from: usize, words: usize, what: &str| {
            assert!((from..from + words).contains(&word), "{name} {what}: word {word} outside its plane");
            assert!(shift + bits <= 32, "{name} {what}: shift {shift}");
            let mask = (u32::MAX >> (32 - bits)) << shift;
            assert_eq!(taken[word] & mask, 0, "{name} {what}: word {word} shift {shift} taken twice");
            taken[word] |= mask;
        };
        for (p, plane) in layout.planes.iter().enumerate() {
            assert_eq!(plane.offset_words % 4, 0, "{name}");
            for t in 0..tokens {
                for c in 0..head_dim {
                    let (word, shift) = layout.position(p, t, c);
                    take(word, shift, plane.bits, plane.offset_words, plane.words, plane.name);
                }
            }
        }
        for (s, scalar) in layout.scalars.iter().enumerate() {
            assert_eq!(scalar.offset_words % 4, 0, "{name}");
            for (t, c) in scalar.owners(layout.geometry) {
                let (word, shift) = layout.scalar_position(s, t, c);
                take(word, shift, scalar.bits, scalar.offset_words, scalar.words, scalar.name);
            }
        }
    }
}

/// The formulas of the layout decision, written out from its text: 64 tokens, 128 or 256 channels.
#[test]
fn documented_formulas_hold() {
    let page = 64;
    for d in [128, 256] {
        for side in Side::BOTH {
            let (half, byte) = (layout("f16", side, page, d), layout("fp8", side, page, d));
            let (tq3, tq2, tq4) =
                (layout("tq3", side, page, d), layout("tq2", side, page, d), layout("tq4", side, page, d));
            let (q8, q4) = (layout("q8_0", side, page, d), layout("q4_0", side, page, d));
            for t in 0..page {
                for c in 0..d {
                    let (at_half, at_byte) = match side {
                        Side::K => (((c / 8) * 64 + t) * 16 + 2 * (c % 8), ((c / 16) * 64 + t) * 16 + c % 16),
                        Side::V => (2 * (t * d + c), t * d + c),
                    };
                    assert_eq!(half.position(0, t, c), (at_half / 4, 8 * (at_half % 4) as u32));
                    assert_eq!(byte.position(0, t, c), (at_byte / 4, 8 * (at_byte % 4) as u32));
                    assert_eq!(tq3.position(0, t, c), tq3_plane2(side, t, c), "plane2 {t} {c}");
                    assert_eq!(tq2.position(0, t, c), tq3_plane2(side, t, c), "plane2 {t} {c}");
                    assert_eq!(tq4.position(0, t, c), tq4_plane4(side, t, c), "plane4 {t} {c}");
                    assert_eq!(q8.position(0, t, c), byte.position(0, t, c));
                    let (at_nibble, block) = match side {
                        Side::K => (((c / 32) * 64 + t) * 32 + c % 32, (c / 32) * 64 + t),
                        Side::V => (t * d + c, t * (d / 32) + c / 32),
                    };
                    assert_eq!(q4.position(0, t, c), (at_nibble / 8, 4 * (at_nibble % 8) as u32));
                    for (q, bytes) in [(&q8, 64 * d), (&q4, 32 * d)] {
                        assert_eq!(q.scalar_position(0, t, c), (bytes / 4 + block / 2, 16 * (block % 2) as u32));
                    }
                    let (word, bit) = tq3_plane1(side, t, c);
                    assert_eq!(tq3.position(1, t, c), ((16 * d + 128) / 4 + word, bit), "plane1 {t} {c}");
                }
                let index = 8 * (t % 8) + 2 * (t / 16) + (t / 8) % 2;
                assert_eq!(tq3.scalar_position(0, t, 0), (16 * d / 4 + index / 2, 16 * (index % 2) as u32));
                assert_eq!(tq2.scalar_position(0, t, 0), tq3.scalar_position(0, t, 0));
                assert_eq!(tq4.scalar_position(0, t, 0), (32 * d / 4 + index / 2, 16 * (index % 2) as u32));
            }
            assert_eq!((half.page_bytes(), byte.page_bytes()), (128 * d, 64 * d + 16));
            assert_eq!(tq3.page_bytes(), if d == 128 { 3200 } else { 6272 });
        }
    }
    assert_eq!(layout("tq3", Side::V, 64, 64).page_bytes(), 1664);
}

/// (t, i, j, n, s) of the decision's L6 layout.
fn l6(side: Side, token: usize, c: usize) -> [usize; 5] {
    match side {
        Side::K => {
            let e = c % 8;
            [(c / 8) % 4, (c / 32) % 4, 8 * (token / 16) + token % 8, e % 4 + 4 * ((token / 8) % 2), e / 4]
        }
        Side::V => {
            let x = token % 16;
            let i = 2 * ((c / 2) % 2) + token / 32;
            let j = 8 * ((c / 4) % 4) + (c / 16) % 8;
            [(x % 8) / 2, i, j, x % 2 + 2 * (x / 8) + 4 * (c % 2), (token / 16) % 2]
        }
    }
}

fn tq3_plane2(side: Side, token: usize, c: usize) -> (usize, u32) {
    let [t, i, j, n, s] = l6(side, token, c);
    (((4 * (c / 128) + t) * 32 + j) * 4 + i, (4 * n + 2 * s) as u32)
}

fn tq3_plane1(side: Side, token: usize, c: usize) -> (usize, u32) {
    let [t, i, j, n, s] = l6(side, token, c);
    let word = ((2 * (c / 128) + t / 2) * 32 + j) * 4 + 2 * (t % 2) + i / 2;
    (word, (4 * n + 2 * (i % 2) + s) as u32)
}

fn tq4_plane4(side: Side, token: usize, c: usize) -> (usize, u32) {
    let [t, i, j, n, s] = l6(side, token, c);
    let unit = (8 * (c / 128) + 2 * t + i / 2) * 32 + j;
    (unit * 4 + 2 * (i % 2) + s, 4 * n as u32)
}

/// Words of a page, the same in C and Rust: any bits, NaN scales among them.
fn filled(words: usize) -> Vec<u32> {
    (0..words as u32).map(|i| (i + 1).wrapping_mul(2654435761) ^ (i << 7)).collect()
}

/// The C program of every format's CUDA text: it prints all positions, then all values of a page.
fn c_program(codecs: &[(String, Arc<dyn Codec>)]) -> String {
    let mut source = format!(
        "#include <stdio.h>\n{CUDA_NUMBERS}\nstatic unsigned page[65536];\n\
         static void put(unsigned x) {{ fwrite(&x, 4, 1, stdout); }}\n\
         static void putf(float x) {{ fwrite(&x, 4, 1, stdout); }}\n"
    );
    let mut main = String::from(
        "int main(void) {\n  for (unsigned i = 0; i < 65536; ++i) page[i] = ((i + 1u) * 2654435761u) ^ (i << 7);\n",
    );
    for (name, codec) in codecs {
        let layout = codec.layout();
        let PageGeometry { tokens, head_dim } = layout.geometry;
        source += &codec.cuda(name);
        let mut body = String::new();
        let each_token = format!("  for (unsigned t = 0; t < {tokens}u; ++t)");
        for p in layout.planes.iter().map(|p| format!("{name}_{}", p.name)) {
            let _ = writeln!(
                body,
                "{each_token} for (unsigned c = 0; c < {head_dim}u; ++c) put({p}_word(t, c) * 32u + {p}_shift(t, c));"
            );
        }
        for scalar in &layout.scalars {
            let s = format!("{name}_{}", scalar.name);
            let _ = match scalar.per {
                Per::Block(channels) => writeln!(
                    body,
                    "{each_token} for (unsigned c = 0; c < {head_dim}u; c += {channels}u) \
                     put({s}_word(t, c) * 32u + {s}_shift(t, c));"
                ),
                _ => writeln!(body, "{each_token} put({s}_word(t) * 32u + {s}_shift(t));"),
            };
        }
        let _ = writeln!(
            body,
            "{each_token} for (unsigned c = 0; c < {}u; ++c) {{
    float v[4];
    {name}_load4(page, t, c, v);
    for (int k = 0; k < 4; ++k) putf(v[k] * {name}_scale(page, t));
  }}",
            head_dim / 4
        );
        let _ = writeln!(source, "static void run_{name}(void) {{\n{body}}}");
        let _ = writeln!(main, "  run_{name}();");
    }
    source + &main + "  return 0;\n}\n"
}

#[test]
fn emitted_c_agrees_with_rust() {
    if Command::new("cc").arg("--version").output().is_err() {
        println!("skipped: no C compiler `cc` on this machine");
        return;
    }
    let codecs = codecs(&DIMS);
    let dir = tempfile::tempdir().expect("a folder for temporary files");
    let (file, program) = (dir.path().join("layouts.c"), dir.path().join("layouts"));
    std::fs::write(&file, c_program(&codecs)).expect("the folder can be written");
    let flags = ["-O1", "-Wall", "-Werror", "-Wno-unused-function", "-o"];
    let built = Command::new("cc").args(flags).arg(&program).arg(&file).output().expect("cc ran a moment ago");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let printed = Command::new(&program).output().expect("the program runs").stdout;
    let mut printed = printed.as_chunks::<4>().0.iter().map(|b| u32::from_le_bytes(*b));
    let mut next = || printed.next().expect("the program prints every item");
    let (mut positions, mut values) = (0, 0);
    for (name, codec) in &codecs {
        let layout = codec.layout();
        let PageGeometry { tokens, head_dim } = layout.geometry;
        for p in 0..layout.planes.len() {
            for t in 0..tokens {
                for c in 0..head_dim {
                    let (word, shift) = layout.position(p, t, c);
                    assert_eq!(next(), word as u32 * 32 + shift, "{name} plane {p} ({t}, {c})");
                    positions += 1;
                }
            }
        }
        for s in 0..layout.scalars.len() {
            let step = match layout.scalars[s].per {
                Per::Block(channels) => channels as usize,
                _ => head_dim,
            };
            for (t, c) in (0..tokens).flat_map(|t| (0..head_dim).step_by(step).map(move |c| (t, c))) {
                let (word, shift) = layout.scalar_position(s, t, c);
                assert_eq!(next(), word as u32 * 32 + shift, "{name} scalar {s} ({t}, {c})");
            }
        }
        let mut out = vec![0.0; tokens * head_dim];
        codec.decode(&filled(layout.page_words), 0..tokens, &mut out);
        for (i, want) in out.iter().enumerate() {
            let got = f32::from_bits(next());
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            assert!(same, "{name} ({}, {}): {got} in C, {want} in Rust", i / head_dim, i % head_dim);
            values += 1;
        }
    }
    assert!(printed.next().is_none(), "the program prints nothing else");
    println!("{positions} positions and {values} values agree");
}

/// A kernel around a format's fragments: encodes a page, writes a token, reads values.
fn harness(codec: &dyn Codec) -> String {
    let PageGeometry { tokens, head_dim } = codec.layout().geometry;
    let store = if codec.token_writable() { "a_store4(0u, 1u, 0u, source[lid]);" } else { "" };
    format!(
        "{WGSL_NUMBERS}{WGSL_HADAMARD}
const WORKGROUP: u32 = 128u;
@group(0) @binding(0) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> a_slab: array<u32>;
fn a_word(i: u32) -> u32 {{ return a_slab[i]; }}
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
fn source4(token: u32, c4: u32) -> vec4<f32> {{ return source[token * {}u + c4]; }}
{}{}{}
@compute @workgroup_size(128)
fn main(@builtin(local_invocation_index) lid: u32) {{
    a_encode_page(0u, lid);
    {store}
    let token = lid % {tokens}u;
    out[lid] = a_load4(0u, token, 0u) * (a_scale(0u, token) * hadamard_sign(lid));
}}
",
        head_dim / 4,
        codec.wgsl("a"),
        codec.wgsl_store("a"),
        codec.wgsl_encode("a"),
    )
}

#[test]
fn fragments_pass_naga() {
    let dims = [8, 24, 64, 80, 96, 128, 192, 256, 512];
    for (name, codec) in codecs(&dims) {
        let text = harness(&*codec);
        let module = naga::front::wgsl::parse_str(&text)
            .unwrap_or_else(|error| panic!("{name}: {}\n{text}", error.emit_to_string(&text)));
        // naga's name for unpack2x16float, which is core WGSL.
        let capabilities = naga::valid::Capabilities::SHADER_FLOAT16_IN_FLOAT32;
        let mut validator = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), capabilities);
        let info = validator.validate(&module).unwrap_or_else(|error| panic!("{name}: {error:?}\n{text}"));
        let workgroup: u32 = module
            .global_variables
            .iter()
            .filter(|(_, v)| v.space == naga::AddressSpace::WorkGroup)
            .map(|(_, v)| module.types[v.ty].inner.size(module.to_ctx()))
            .sum();
        assert!(workgroup <= 12 << 10, "{name}: {workgroup} bytes of workgroup memory");
        naga::back::spv::write_vec(&module, &info, &naga::back::spv::Options::default(), None)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
