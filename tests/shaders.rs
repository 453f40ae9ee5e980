//! Every kernel's shader text, assembled for every pair of formats and representative shapes: naga accepts it within
//! WebGPU's default limits and writes it as SPIR-V, MSL and HLSL; Dawn, where installed, compiles it as browsers do.

mod support;

use kvarto::backend::assemble::{AssembleOptions, Module, assemble};
use kvarto::backend::cuda::{Compiler, source};
use kvarto::backend::{CodecUse, Specialisation};
use kvarto::format::FormatRegistry;
use kvarto::kernel::attention::AttentionShape;
use kvarto::kernel::decode_tuning::TensorCores;
use kvarto::kernel::linear::{LinearPath, tensor};
use kvarto::kernel::tier::Tier;
use kvarto::kernel::{
    SideBases, SideBasis, append, convert, copy_slots, decode, decode_tiles, mean, merge, plane, prefill,
    prefill_tiles, query, rms_norm, summarise_box,
};
use kvarto::num::weights::WeightType;
use kvarto::shape::{PageGeometry, Side};
use naga::valid::{Capabilities, ValidationFlags, Validator};
use support::require_or_skip;

/// WebGPU's default for a workgroup's memory, bytes.
const WORKGROUP_BYTES: u32 = 16384;

/// (K head size, V head size, page tokens, group, decode rows, prefill rows, workgroup, window, softcap)
type Row = (usize, usize, usize, usize, usize, usize, u32, bool, bool);
const SHAPES: [Row; 10] = [
    (128, 128, 64, 4, 1, 16, 128, false, false),
    (64, 64, 64, 3, 1, 32, 64, false, false),
    (80, 80, 32, 8, 2, 16, 128, true, false),
    (96, 96, 16, 5, 4, 32, 64, false, true),
    (192, 128, 128, 16, 8, 16, 256, false, false),
    (256, 256, 64, 6, 16, 32, 64, true, true),
    (256, 256, 16, 1, 1, 16, 256, false, false),
    (64, 64, 128, 7, 1, 32, 256, true, false),
    (512, 512, 32, 2, 4, 16, 128, false, false),
    (8, 8, 16, 1, 16, 64, 64, false, false),
];

fn codec(name: &str, side: Side, tokens: usize, head_dim: usize) -> CodecUse {
    let registry = FormatRegistry::builtin();
    let (_, format) = registry.by_name(name).expect("a built-in format");
    let codec = format.codec(side, PageGeometry { tokens, head_dim }).expect("a supported geometry");
    CodecUse { format: name.into(), codec }
}

/// Whether a format is for a head size: blocks are of 32 channels.
fn takes(format: &str, head_dim: usize) -> bool {
    !["q8_0", "q4_0"].contains(&format) || head_dim.is_multiple_of(32)
}

fn names() -> Vec<String> {
    FormatRegistry::builtin().iter().map(|(_, format)| format.name().to_string()).collect()
}

fn shape(row: Row) -> AttentionShape {
    let (k_dim, v_dim, page_tokens, group, .., window, softcap) = row;
    AttentionShape { kv_heads: 2, group, k_dim, v_dim, page_tokens, window, softcap }
}

/// Assembles and accepts, or fails with the module's text and the fault.
fn accept(spec: &Specialisation) -> String {
    let Module { text, unzeroed, enables } =
        assemble(spec, &AssembleOptions::default()).unwrap_or_else(|e| panic!("{}: {e}", spec.key()));
    assert!(unzeroed, "{}: clearing its workgroup memory would make it slow to compile", spec.key());
    let module =
        naga::front::wgsl::parse_str(&text).unwrap_or_else(|e| panic!("{}: {}", spec.key(), e.emit_to_string(&text)));
    // `unpack2x16float` is core WebGPU; naga names it apart.
    let mut capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32;
    for enable in &enables {
        capabilities |= match enable.as_str() {
            "f16" => Capabilities::SHADER_FLOAT16,
            _ => Capabilities::SUBGROUP,
        };
    }
    let info = Validator::new(ValidationFlags::all(), capabilities)
        .validate(&module)
        .unwrap_or_else(|e| panic!("{}: {}", spec.key(), e.emit_to_string(&text)));

    let mut layouter = naga::proc::Layouter::default();
    layouter.update(module.to_ctx()).expect("a layout");
    let of = |space: fn(&naga::AddressSpace) -> bool| {
        module.global_variables.iter().filter(move |(_, v)| space(&v.space)).collect::<Vec<_>>()
    };
    let shared: u32 = of(|s| matches!(s, naga::AddressSpace::WorkGroup))
        .iter()
        .map(|(_, v)| layouter[v.ty].size.next_multiple_of(16))
        .sum();
    assert!(shared <= WORKGROUP_BYTES, "{}: {shared} bytes of workgroup memory", spec.key());
    assert!(of(|s| matches!(s, naga::AddressSpace::Storage { .. })).len() <= 8, "{}", spec.key());
    let size: u32 = module.entry_points[0].workgroup_size.iter().product();
    assert!(module.entry_points.len() == 1 && size <= 256, "{}", spec.key());

    // What the poisoned variant fills is all that there is.
    let poison = AssembleOptions { poison_workgroup: true, ..AssembleOptions::default() };
    let poisoned = assemble(spec, &poison).unwrap_or_else(|e| panic!("{}: {e}", spec.key())).text;
    for (_, variable) in of(|s| matches!(s, naga::AddressSpace::WorkGroup)) {
        let name = variable.name.as_deref().expect("a name");
        let filled = [format!("{name}[poison_at]"), format!("&{name}, poison_word")];
        assert!(filled.iter().any(|f| poisoned.contains(f)), "{}: {name} is not filled", spec.key());
    }
    let words = naga::back::spv::write_vec(&module, &info, &naga::back::spv::Options::default(), None);
    assert!(words.unwrap_or_else(|e| panic!("{}: {e}", spec.key())).len() > 100);
    let msl = naga::back::msl::Options { fake_missing_bindings: true, ..Default::default() };
    let (metal, _) = naga::back::msl::write_string(&module, &info, &msl, &Default::default())
        .unwrap_or_else(|e| panic!("{}: {e}", spec.key()));
    assert!(metal.contains("kernel void"), "{}", spec.key());
    let hlsl = naga::back::hlsl::Options { fake_missing_bindings: true, ..Default::default() };
    let mut out = String::new();
    naga::back::hlsl::Writer::new(&mut out, &hlsl, &Default::default())
        .write(&module, &info, None)
        .unwrap_or_else(|e| panic!("{}: {e}", spec.key()));
    assert!(out.contains("numthreads"), "{}", spec.key());
    text
}

/// Attention kernels over all pairs of formats, shapes in turn so that each format meets each shape.
fn attention_specs() -> Vec<Specialisation> {
    let mut specs = Vec::new();
    for (i, k) in names().iter().enumerate() {
        for (j, v) in names().iter().enumerate() {
            for (at, &row) in SHAPES.iter().enumerate().filter(|(at, _)| (at + i + j) % 2 == 0) {
                let (k_dim, v_dim, tokens, _, rows, tile, workgroup, ..) = row;
                if !takes(k, k_dim) || !takes(v, v_dim) {
                    continue;
                }
                let pair = || (codec(k, Side::K, tokens, k_dim), codec(v, Side::V, tokens, v_dim));
                let ((k1, v1), (k2, v2)) = (pair(), pair());
                let decode = |tier| decode::specialise(&shape(row), k1.clone(), v1.clone(), rows, tier, workgroup);
                specs.push(decode(Tier::FLOOR).expect("decode"));
                // Subgroups of any size: the device's (1), and those that workgroup memory plays.
                let subgroup = [1, 8, 16, 32, 64, 128][(at + i * 3 + j) % 6];
                specs.push(decode(Tier { f16: (i + j) % 3 > 0, subgroup, ..Tier::FLOOR }).expect("decode"));
                if (at + j) % 2 == 0 || i == j {
                    specs
                        .push(prefill::specialise(&shape(row), k2, v2, tile, Tier::FLOOR, workgroup).expect("prefill"));
                }
            }
        }
    }
    specs
}

/// A codec for pages in two parts.
fn in_parts(mut codec: CodecUse) -> CodecUse {
    codec.codec = codec.codec.split().expect("a format in two parts");
    codec
}

/// Kernels over pages of which one side or both are in two parts.
fn split_specs() -> Vec<Specialisation> {
    let mut specs = Vec::new();
    for (at, &row) in SHAPES.iter().enumerate() {
        let (k_dim, v_dim, tokens, _, rows, tile, workgroup, ..) = row;
        let sides = [(Side::K, k_dim), (Side::V, v_dim)];
        let split = |i: usize| in_parts(codec("tq3n", sides[i].0, tokens, sides[i].1));
        let plain = |i: usize| codec(["f16", "tq2", "tq3"][at % 3], sides[i].0, tokens, sides[i].1);
        for (k, v) in [(split(0), split(1)), (split(0), plain(1)), (plain(0), split(1))] {
            for tier in [Tier::FLOOR, Tier { f16: true, subgroup: [1, 8, 32][at % 3], ..Tier::FLOOR }] {
                specs.push(
                    decode::specialise(&shape(row), k.clone(), v.clone(), rows, tier, workgroup).expect("decode"),
                );
            }
            specs.push(prefill::specialise(&shape(row), k, v, tile, Tier::FLOOR, workgroup).expect("prefill"));
        }
        for i in [0, 1] {
            let open = codec("f16", sides[i].0, tokens, sides[i].1);
            specs.push(convert::specialise(split(i), open.clone(), workgroup).expect("convert from parts"));
            specs.push(convert::specialise(open, split(i), workgroup).expect("convert to parts"));
            assert!(convert::specialise(split(i), split(i), workgroup).is_err());
        }
    }
    specs
}

fn other_specs() -> Vec<Specialisation> {
    let mut specs = split_specs();
    for (at, &row) in SHAPES.iter().enumerate() {
        let (k_dim, v_dim, tokens, .., workgroup, _, _) = row;
        let shape = shape(row);
        let bases = [SideBasis::NONE, SideBasis::HADAMARD, SideBasis::MEAN, SideBasis::FIXED_MEAN, SideBasis::MAP];
        for (flags, basis) in bases.into_iter().enumerate() {
            specs.push(query::specialise(&shape, basis, workgroup).expect("query"));
            specs.push(merge::specialise(&shape, basis, (flags + at) % 2 == 0, workgroup).expect("merge"));
            let other = bases[(flags * 2 + at) % bases.len()];
            let (k, v) = [("f16", "f32"), ("bf16", "f16"), ("f32", "bf16")][(at + flags) % 3];
            let (k, v) = (codec(k, Side::K, tokens, k_dim), codec(v, Side::V, tokens, v_dim));
            specs.push(append::specialise(&shape, k, v, SideBases { k: basis, v: other }, workgroup).expect("append"));
        }
        specs.push(mean::specialise(&shape, workgroup).expect("mean"));
        let words = summarise_box::words(k_dim) as u32;
        let place = plane::PlanePlace { record_words: words + 4, at: at as u32 % 2 * 4, words };
        specs.push(plane::specialise(&summarise_box::DECL, &shape, place, workgroup).expect("summarise_box"));
        specs.push(copy_slots::specialise(k_dim * tokens / 2, workgroup).expect("copy_slots"));
        for (i, src) in names().iter().enumerate() {
            for (j, dst) in names().iter().enumerate().filter(|(j, _)| (at + i + j) % 3 == 0) {
                for (side, dim) in
                    [(Side::K, k_dim), (Side::V, v_dim)].into_iter().filter(|(s, _)| *s == Side::K || i != j)
                {
                    if !takes(src, dim) || !takes(dst, dim) {
                        continue;
                    }
                    let pair = (codec(src, side, tokens, dim), codec(dst, side, tokens, dim));
                    specs.push(convert::specialise(pair.0, pair.1, workgroup).expect("convert"));
                }
            }
        }
    }
    specs
}

#[test]
fn attention_kernels_are_portable() {
    let specs = attention_specs();
    specs.iter().for_each(|spec| drop(accept(spec)));
    println!("{} modules", specs.len());
}

#[test]
fn other_kernels_are_portable() {
    let specs = other_specs();
    specs.iter().for_each(|spec| drop(accept(spec)));
    println!("{} modules", specs.len());
}

/// naga checks neither that barriers stand in uniform control flow nor the sum of workgroup memory, and takes modules
/// without their `enable` lines; browsers refuse all three.
#[test]
fn dawn_compiles_every_kernel() {
    let mut specs = other_specs();
    specs.extend(attention_specs());
    match support::dawn::compile_all(&specs) {
        Ok([floor, native]) => println!("{floor} modules without extensions, {native} with"),
        Err(reason) => require_or_skip("dawn", &reason),
    }
}

/// Attention by tiles, which has no WGSL.
fn tile_specs(cores: TensorCores) -> Vec<Specialisation> {
    let tier = Tier { tiles: Some(cores), ..Tier::FLOOR };
    let mut specs = Vec::new();
    for (i, k) in names().iter().enumerate() {
        for (j, v) in names().iter().enumerate() {
            for &row in SHAPES.iter().skip((i + j) % 2).step_by(2) {
                let (k_dim, v_dim, tokens, _, rows, tile, workgroup, ..) = row;
                if takes(k, k_dim) && takes(v, v_dim) {
                    let (k, v) = (codec(k, Side::K, tokens, k_dim), codec(v, Side::V, tokens, v_dim));
                    let fits = [decode_tiles::fits(&k, &v), prefill_tiles::fits(&k, &v)];
                    let (k1, v1) = (k.clone(), v.clone());
                    let own = [
                        decode::specialise(&shape(row), k, v, rows, tier, workgroup).expect("decode"),
                        prefill::specialise(&shape(row), k1, v1, tile, tier, workgroup).expect("prefill"),
                    ];
                    for (spec, fits) in own.into_iter().zip(fits) {
                        assert_eq!(fits, spec.decl.wgsl.is_empty(), "{}", spec.key());
                        specs.extend(fits.then_some(spec));
                    }
                }
            }
        }
    }
    specs
}

/// The linear layer on tensor cores, which has no WGSL, on a card with room for a block and on one with less.
fn tensor_specs() -> Vec<Specialisation> {
    let machines = [(132, 227 << 10), (48, 99 << 10)];
    let mut specs = Vec::new();
    for (at, weight) in WeightType::ALL.into_iter().enumerate() {
        for (path, columns) in LinearPath::ALL.into_iter().flat_map(|path| [576, 96, 4096, 14_336].map(|c| (path, c))) {
            for (turn, (multiprocessors, shared_bytes)) in machines.into_iter().enumerate() {
                let machine = tensor::Machine { multiprocessors, shared_bytes };
                let spec = tensor::specialise(machine, weight, columns, (at + turn) % 2 == 0, path).expect("linear");
                assert_eq!(
                    spec.is_some(),
                    (weight, path) != (WeightType::F32, LinearPath::ManyRows),
                    "{} {path:?} {columns} {machine:?}",
                    weight.as_str()
                );
                specs.extend(spec.inspect(|spec| assert!(spec.u32("SHARED_BYTES") <= shared_bytes, "{}", spec.key())));
            }
        }
    }
    specs
}

/// Of the floor tier, which is what is translated, each text; and a part of them by CUDA's run-time compiler, which needs
/// no GPU.
#[test]
fn cuda_runs_every_kernel_by_the_same_text() {
    let mut specs = other_specs();
    specs.extend(attention_specs());
    specs.retain(|spec| !native(spec));
    specs.extend(tile_specs(TensorCores::MEASURED));
    // Prefill by products of warps, which Hopper has too.
    let others = tile_specs(TensorCores::usual((8, 0)));
    specs.extend(others.into_iter().filter(|spec| std::ptr::eq(spec.decl, &prefill_tiles::DECL)));
    let floor = specs;
    let sources: Vec<_> = floor.iter().map(|spec| source(spec).unwrap_or_else(|e| panic!("{e}"))).collect();
    println!("{} sources", sources.len());
    let compiler = Compiler::new((9, 0), None);
    let Some(version) = compiler.compiler() else {
        return require_or_skip("nvrtc", "CUDA's run-time compiler (libnvrtc) is not found");
    };
    let every = |name: &str| if ["decode", "prefill"].contains(&name) { 181 } else { 67 };
    let mut met: std::collections::BTreeMap<&str, usize> = Default::default();
    for (spec, source) in floor.iter().zip(&sources) {
        let count = met.entry(spec.decl.name).or_default();
        *count += 1;
        if *count % every(spec.decl.name) == 1 {
            let cubin = compiler.cubin(source, spec.key()).unwrap_or_else(|e| panic!("{e}"));
            assert!(cubin.starts_with(b"\x7fELF"), "{}", spec.key());
        }
    }
    println!("NVRTC {version}: {met:?}");
}

/// Own texts for every architecture that is served, whether or not there is such a card.
#[test]
fn cuda_texts_compile_for_every_architecture() {
    let merges: Vec<_> = other_specs().into_iter().filter(|spec| spec.decl.cuda.is_some()).collect();
    // One of each pair of formats, in turn over the shapes, and merges in each basis.
    let some = |cores: TensorCores| {
        let mut seen = std::collections::BTreeSet::new();
        let mut specs = tile_specs(cores);
        specs.extend(merges.iter().cloned());
        specs.retain(|spec| seen.insert(format!("{} {:?}", spec.decl.name, spec.codecs)));
        specs
    };
    let mut linear = tensor_specs();
    linear.extend([1, 7, 576, 4096, 5120, 16_384].map(|width| rms_norm::specialise(width).expect("rms_norm")));
    for (at, capability) in [(8, 0), (8, 9), (9, 0), (10, 0), (12, 0)].into_iter().enumerate() {
        let specs = some(TensorCores::usual(capability));
        let compiler = Compiler::new(capability, None);
        if compiler.compiler().is_none() {
            return require_or_skip("nvrtc", "CUDA's run-time compiler (libnvrtc) is not found");
        }
        for spec in specs.iter().skip(at % 2).step_by(2).chain(linear.iter().skip(at).step_by(5)) {
            let source = source(spec).unwrap_or_else(|e| panic!("{e}"));
            let cubin = compiler.cubin(&source, spec.key()).unwrap_or_else(|e| panic!("{e}"));
            assert!(cubin.starts_with(b"\x7fELF"), "{} for {}", spec.key(), compiler.target());
        }
    }
}

/// Whether a text asks for more than WebGPU's defaults.
fn native(spec: &Specialisation) -> bool {
    let module = assemble(spec, &AssembleOptions::default()).unwrap_or_else(|e| panic!("{}: {e}", spec.key()));
    !module.enables.is_empty()
}
