//! Blackwell without such a card: decode attention for sm_100a and sm_120a is assembled by NVRTC and the machine code
//! looked into; and what products of e4m3 cost in quality, by their arithmetic on the CPU.

#[path = "support/cubin.rs"]
mod cubin;
mod support;

use cubin::{Cubin, HMMA, IMMA, QMMA, STL};
use kvarto::backend::cuda::{Compiler, ENTRY, Standing, source};
use kvarto::backend::{CodecUse, Specialisation};
use kvarto::conformance::{HALF_TOLERANCE, Random};
use kvarto::format::FormatRegistry;
use kvarto::kernel::attention::AttentionShape;
use kvarto::kernel::decode;
use kvarto::kernel::decode_tuning::{E4M3_PARTS, TensorCores};
use kvarto::kernel::tier::Tier;
use kvarto::num::{e4m3_decode_finite, e4m3_encode};
use kvarto::shape::{PageGeometry, Side};
use support::require_or_skip;

const FORMATS: [&str; 6] = ["f16", "bf16", "fp8", "tq2", "tq3", "tq4"];

/// What a block may have of shared memory on compute capability 12.x, bytes.
const SHARED: u64 = 99 * 1024;

/// K head size, V head size, page tokens, query heads of a KV head, window.
type Shape = (usize, usize, usize, usize, bool);

fn spec((k_dim, v_dim, page_tokens, group, window): Shape, k: &str, v: &str, cores: TensorCores) -> Specialisation {
    let shape = AttentionShape { kv_heads: 8, group, k_dim, v_dim, page_tokens, window, softcap: false };
    let codec = |name: &str, side, head_dim| {
        let (_, format) = FormatRegistry::builtin().by_name(name).map(|(id, f)| (id, f.clone())).expect("built in");
        let codec = format.codec(side, PageGeometry { tokens: page_tokens, head_dim }).expect("it takes the geometry");
        CodecUse { format: name.into(), codec }
    };
    let tier = Tier { tiles: Some(cores), ..Tier::FLOOR };
    let (k, v) = (codec(k, Side::K, k_dim), codec(v, Side::V, v_dim));
    decode::specialise(&shape, k, v, 1, tier, 64).expect("decode")
}

fn assembled(compiler: &Compiler, spec: &Specialisation) -> (Cubin, u32) {
    let source = source(spec).unwrap_or_else(|e| panic!("{e}"));
    let file = compiler.cubin(&source, spec.key()).unwrap_or_else(|e| panic!("{e}"));
    let cubin = Cubin::read(&file, ENTRY).unwrap_or_else(|| panic!("{}: no cubin of one kernel", spec.key()));
    assert!(cubin.shared + u64::from(source.shared_bytes) <= SHARED, "{}: {cubin:?}", spec.key());
    // Registers go by eights to a thread, and by warps to four schedulers.
    let warps = u64::from(source.threads.div_ceil(128)) * 4;
    assert!(u64::from(cubin.registers.next_multiple_of(8)) * 32 * warps <= 65_536, "{}: {cubin:?}", spec.key());
    (cubin, source.threads)
}

/// Products as formats and architecture have them, and no others.
fn opcodes_are_right(cubin: &Cubin, k: &str, v: &str, e4m3: bool, own: bool, key: &str) {
    let product = |format: &str| match format {
        "tq2" | "tq3" | "tq4" => IMMA,
        "fp8" if e4m3 && own => QMMA,
        _ => HMMA,
    };
    for opcode in [HMMA, IMMA, QMMA] {
        let wanted = [k, v].iter().any(|format| product(format) == opcode);
        assert_eq!(cubin.count(opcode) > 0, wanted, "{key}: opcode {opcode:x}, {:x?}", cubin.opcodes);
    }
}

#[test]
fn decode_is_assembled_for_blackwell_without_spills() {
    for capability in [(10, 0), (12, 0)] {
        let compiler = Compiler::new(capability, None);
        if compiler.compiler().is_none() {
            return require_or_skip("nvrtc", "CUDA's run-time compiler (libnvrtc) is not found");
        }
        let usual = TensorCores::usual(capability);
        assert_eq!(usual.e4m3, capability.0 == 12, "16-bit products of converted fp8 on 10.x, e4m3 on 12.x");
        let report = |name: &str, shape: Shape, k: &str, v: &str, cores: TensorCores, stack: u32| {
            let spec = spec(shape, k, v, cores);
            let (cubin, threads) = assembled(&compiler, &spec);
            opcodes_are_right(&cubin, k, v, cores.e4m3, usual.e4m3, spec.key());
            let [hmma, qmma, imma] = [HMMA, QMMA, IMMA].map(|opcode| cubin.count(opcode));
            println!(
                "{} {name} {k}/{v}{}: {threads} threads, {} registers, {} B shared, {} B stack, {hmma} HMMA, {qmma} QMMA, \
                 {imma} IMMA",
                compiler.target(),
                if cores.e4m3 { " e4m3" } else { "" },
                cubin.registers,
                cubin.shared,
                cubin.stack
            );
            assert!(cubin.stack <= stack, "{}: {cubin:?}", spec.key());
            assert!(stack > 0 || cubin.count(STL) == 0, "{}: {cubin:?}", spec.key());
        };
        // Every pair of the usual shape, fp8 by either kind of products where both are to be had.
        for k in FORMATS {
            for v in FORMATS {
                // Keys of codes beside values of 16 bits: sm_100a has too few registers by a few.
                let odd = capability.0 == 10 && k.starts_with("tq") && v.ends_with("f16");
                report("128", (128, 128, 64, 4, false), k, v, usual, if odd { WIDE_STACK } else { 0 });
            }
            report("64", (64, 64, 64, 3, true), k, k, usual, 0);
        }
        report("128", (128, 128, 64, 4, false), "fp8", "fp8", TensorCores { e4m3: !usual.e4m3, ..usual }, WIDE_STACK);
        // Six vectors of 256 channels take all 255 registers that a thread can have, and a few words of stack that the
        // loops are entered and left with.
        for format in FORMATS {
            report("256", (256, 256, 64, 6, false), format, format, usual, WIDE_STACK);
        }
    }
}

/// Bytes of stack that are put up with at head size 256 and in the odd pairs.
const WIDE_STACK: u32 = 40;

/// One text for each architecture that is said to be assembled.
#[test]
fn what_is_said_to_be_assembled_is() {
    let mut targets = Vec::new();
    for (capability, standing) in Standing::known() {
        assert_ne!(standing, Standing::Untried);
        let compiler = Compiler::new(capability, None);
        if compiler.compiler().is_none() {
            return require_or_skip("nvrtc", "CUDA's run-time compiler (libnvrtc) is not found");
        }
        let cores = TensorCores::usual(capability);
        for (k, v) in [("f16", "f16"), ("fp8", "fp8"), ("fp8", "tq3")] {
            let spec = spec((128, 128, 64, 4, false), k, v, cores);
            let (cubin, _) = assembled(&compiler, &spec);
            opcodes_are_right(&cubin, k, v, cores.e4m3, cores.e4m3, spec.key());
        }
        targets.push(compiler.target().to_string());
    }
    println!("{}", targets.join(", "));
}

/// A number as the sum of `parts` codes of e4m3.
fn in_parts(x: f32, parts: u32) -> f32 {
    let mut sum = 0.0;
    for _ in 0..parts {
        sum += e4m3_decode_finite(e4m3_encode(x - sum));
    }
    sum
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Data {
    Normal,
    /// Four channels of the keys twenty times as large.
    LoudKeys,
    /// Four channels of the queries twenty times as large.
    LoudQueries,
    /// Ratios of a normal number and the root of a mean of three squares.
    HeavyTails,
}

/// Largest and root mean square error of decode attention whose queries and weights are sums of codes, against f64 over
/// the same pages: fractions of the largest output, which is taken as at least 1, and of the outputs' own size.
fn errors(data: Data, tokens: usize, dim: usize, [queries, weights]: [u32; 2], seed: u64) -> (f64, f64) {
    let mut random = Random::new(seed);
    let mut draw = |count: usize, loud: bool| -> Vec<f32> {
        let mut x = random.normal(count);
        if data == Data::HeavyTails {
            let squares = random.normal(3 * count);
            x.iter_mut().zip(squares.as_chunks::<3>().0).for_each(|(x, s)| {
                *x /= (s.iter().map(|s| s * s).sum::<f32>() / 3.0).sqrt();
            });
        }
        let channels = [3, 17, 40, 61];
        x.iter_mut().enumerate().filter(|(at, _)| loud && channels.contains(&(at % dim))).for_each(|(_, x)| *x *= 20.0);
        x
    };
    let vectors = 16;
    let pages = |x: Vec<f32>| -> Vec<f32> {
        x.chunks(64 * dim)
            .flat_map(|page| {
                let scale = page.iter().fold(0f32, |m, x| m.max(x.abs())) / 448.0;
                page.iter().map(move |x| e4m3_decode_finite(e4m3_encode(x / scale)) * scale).collect::<Vec<_>>()
            })
            .collect()
    };
    let (k, v) = (pages(draw(tokens * dim, data == Data::LoudKeys)), pages(draw(tokens * dim, false)));
    let q = draw(vectors * dim, data == Data::LoudQueries);
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    let (mut largest, mut worst, mut square, mut size) = (1f64, 0f64, 0f64, 0f64);
    for q in q.chunks(dim) {
        let q: Vec<f32> = q.iter().map(|x| x / (dim as f32).sqrt()).collect();
        let peak = q.iter().fold(0f32, |m, x| m.max(x.abs()));
        // As prepared queries: a power of two brings them within 1, and then within 256.
        let up = 256.0 / peak.log2().ceil().exp2();
        let coded: Vec<f32> = q.iter().map(|x| in_parts(x * up, queries) / up).collect();
        let softmax = |q: &[f32]| -> Vec<f64> {
            let logits: Vec<f64> = k.chunks(dim).map(|k| dot(k, q)).collect();
            let most = logits.iter().fold(f64::NEG_INFINITY, |m, &x| m.max(x));
            logits.iter().map(|x| (x - most).exp()).collect()
        };
        let (exact, mut p) = (softmax(&q), softmax(&coded));
        let sum: f64 = p.iter().sum();
        for step in p.chunks_mut(32) {
            let top = step.iter().fold(1e-30, |m: f64, &x| m.max(x));
            step.iter_mut().for_each(|x| *x = f64::from(in_parts((*x / top * 256.0) as f32, weights)) / 256.0 * top);
        }
        let whole: f64 = exact.iter().sum();
        for channel in 0..dim {
            let column = |p: &[f64], sum: f64| -> f64 {
                p.iter().zip(v.chunks(dim)).map(|(p, v)| p * f64::from(v[channel])).sum::<f64>() / sum
            };
            let (wanted, got) = (column(&exact, whole), column(&p, sum));
            largest = largest.max(wanted.abs());
            worst = worst.max((got - wanted).abs());
            square += (got - wanted).powi(2);
            size += wanted.powi(2);
        }
    }
    (worst / largest, (square / size).sqrt())
}

/// The gate that conformance sets for decode of fp8. One part of either fails it, and so do queries in two.
#[test]
fn products_of_e4m3_pass_the_gate_in_parts() {
    let mut worst = std::collections::BTreeMap::new();
    for parts in [[1, 1], [2, 1], [3, 1], [2, 2], E4M3_PARTS] {
        for data in [Data::Normal, Data::LoudKeys, Data::LoudQueries, Data::HeavyTails] {
            let mut most = (0f64, 0f64);
            for (at, (tokens, dim)) in [(4, 64), (17, 128), (65, 64), (1000, 128), (4096, 64)].into_iter().enumerate() {
                for turn in 0..3 {
                    let (largest, rms) = errors(data, tokens, dim, parts, 10 * at as u64 + turn);
                    most = (most.0.max(largest), most.1.max(rms));
                }
            }
            println!(
                "queries in {}, weights in {}: {data:?} worst {:.1e}, rms {:.1e}",
                parts[0], parts[1], most.0, most.1
            );
            let all = worst.entry(parts).or_insert(0f64);
            *all = all.max(most.0);
        }
    }
    assert!(worst[&E4M3_PARTS] < HALF_TOLERANCE / 3.0, "{worst:?}");
    assert!([[1, 1], [2, 1], [3, 1]].iter().all(|parts| worst[parts] > 2.0 * HALF_TOLERANCE), "{worst:?}");
    assert!(worst[&[2, 2]] > HALF_TOLERANCE, "{worst:?}");
}
