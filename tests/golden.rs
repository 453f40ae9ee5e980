//! The model against its golden file: greedy tokens and log-probabilities of an implementation that shares no code.
//!
//! Each prompt is prefilled, then its 64 golden tokens are fed twice, on two forks of the sequence: one row a step,
//! and in steps of 1 to 16 rows. So the one-row, few-row and many-row paths of every kernel, prefill over history
//! (the longest prompts take several steps) and copy-on-write of a shared open page all face the golden file.
#![cfg(feature = "cli")]
// A negated comparison is the point: NaN must fail it.
#![allow(clippy::neg_cmp_op_on_partial_ord)]

mod support;

use kvarto::backend::{Backend, CpuBackend};
use kvarto::engine::{Registry, SeqId};
use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use kvarto::model::{Answer, LoadOptions, Model, ModelRows};
use kvarto::profile::Profile;
use std::time::Instant;
use support::model::{golden, ids};

/// What is accepted of the differences of log-probabilities.
#[derive(Clone, Copy)]
struct Limits {
    /// At any position, of any of the ten ids.
    worst: f64,
    /// The median over a prompt's positions of each position's largest.
    median: f64,
}

/// With f32 pages only the order of summation differs; two float32 references differ by 5e-5.
const EXACT: Limits = Limits { worst: 1e-3, median: 2e-4 };

/// Keys and values rounded to 16 bits: the acceptance limit, and a median well below it.
const ROUNDED: Limits = Limits { worst: 0.02, median: 5e-3 };

/// The same over 16 positions. The reference itself has medians from 2.7e-3 to 4.3e-3 over the first 16 positions of
/// `multilingual` when its keys and values are rounded to f16, in ten trials with inputs disturbed by 1e-6
/// (`check_f64.py --half 10`): which way roundings fall is chance, and another order of sums is another trial.
#[cfg(feature = "wgpu")]
const ROUNDED_FEW: Limits = Limits { median: 8e-3, ..ROUNDED };

/// Positions where rounding keys and values to 16 bits moves the model itself further than [`ROUNDED`] allows, with
/// the limit they get. Position 17 of `multilingual` lies inside an emoji: the numpy reference (`check_f64.py` with K
/// and V rounded to f16) moves from 3e-3 to 1.6e-2 there in seven trials with inputs disturbed by 1e-6, and here it
/// goes from 9e-3 to 3e-2 with nothing but the size of the prefill's chunks, while f32 pages stay below 4e-5.
const ILL_CONDITIONED: [(&str, usize, f64); 1] = [("multilingual", 17, 0.05)];

/// Below this gap of the reference's best two, either may come first.
const GAP: f64 = 0.01;
/// Rows of the steps that feed the golden tokens: 63 in all (the last one predicts nothing that is recorded).
const MANY: [usize; 9] = [2, 5, 8, 16, 3, 1, 7, 16, 5];
const ONE: [usize; 63] = [1; 63];

struct Prompt {
    name: String,
    ids: Vec<u32>,
    new_ids: Vec<u32>,
    /// Ids and log-probabilities of the ten likeliest, position by position.
    top: Vec<(Vec<u32>, Vec<f64>)>,
}

fn prompts() -> Vec<Prompt> {
    let file = golden("smollm2-135m.json");
    let list = file["prompts"].as_array().expect("prompts");
    let read = |p: &serde_json::Value| {
        let top = p["top"].as_array().expect("top").iter().map(|t| {
            let logprobs = t["logprobs"].as_array().expect("logprobs").iter();
            (ids(&t["ids"]), logprobs.map(|x| x.as_f64().expect("a number")).collect())
        });
        let prompt = Prompt {
            name: p["name"].as_str().expect("a name").into(),
            ids: ids(&p["prompt_ids"]),
            new_ids: ids(&p["new_ids"]),
            top: top.collect(),
        };
        assert_eq!((prompt.new_ids.len(), prompt.top.len()), (64, 64), "{}", prompt.name);
        prompt
    };
    let prompts: Vec<Prompt> = list.iter().map(read).collect();
    assert_eq!(prompts.len(), 5);
    prompts
}

fn load(gguf: &Gguf, backend: Box<dyn Backend>, profile: Profile) -> Model {
    let options = LoadOptions { context_tokens: 640, ..LoadOptions::default() };
    Model::load(gguf, backend, profile, Registry::builtin(), &options).expect("the model loads")
}

fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - most).exp()).sum();
    logits.iter().map(|&x| f64::from(x - most) - sum.ln()).collect()
}

/// Log-probabilities over the whole vocabulary for each of the first `1 + sum(steps)` positions of the answer.
fn teach(model: &mut Model, seq: SeqId, first: &[f32], tokens: &[u32], steps: &[usize]) -> Vec<Vec<f64>> {
    let vocab = model.config().vocab;
    let mut all = vec![log_softmax(first)];
    let mut done = 0;
    for &rows in steps {
        let tokens = &tokens[done..done + rows];
        let answer = if rows == 1 { Answer::LastLogits } else { Answer::AllLogits };
        let answers = model.step(&[ModelRows { seq, tokens, committed: true, answer }]).expect("a step");
        assert_eq!(answers.logits.len(), rows * vocab);
        all.extend(answers.logits.chunks(vocab).map(log_softmax));
        done += rows;
    }
    all
}

/// What both ways of feeding say about one prompt: one row a step, and many.
fn both_ways(model: &mut Model, prompt: &Prompt, one: &[usize], many: &[usize]) -> [Vec<Vec<f64>>; 2] {
    let seq = model.engine().create().expect("a sequence");
    let first = model.prefill(seq, &prompt.ids, Answer::LastLogits, |_| false).expect("the prefill").logits;
    assert_eq!(first.len(), model.config().vocab);
    let fork = model.engine().fork(seq).expect("a fork");
    let said = [teach(model, seq, &first, &prompt.new_ids, one), teach(model, fork, &first, &prompt.new_ids, many)];
    for seq in [seq, fork] {
        model.engine().release(seq).expect("a release");
    }
    said
}

/// How far an answer is from the golden file.
struct Distance {
    /// Largest difference of a log-probability, over positions and the ten ids.
    worst: f64,
    /// The median over positions of each position's largest.
    median: f64,
    /// Arg-maxes that differ, each within the gap.
    swapped: usize,
}

fn compare(what: &str, prompt: &Prompt, said: &[Vec<f64>], limits: Limits, faults: &mut Vec<String>) -> Distance {
    let (mut each, mut swapped) = (Vec::new(), 0);
    for (i, row) in said.iter().enumerate() {
        let (ids, logprobs) = &prompt.top[i];
        let best = (0..row.len()).fold(0, |best, id| if row[id] > row[best] { id } else { best });
        if best as u32 != prompt.new_ids[i] {
            swapped += 1;
            if !(logprobs[0] - logprobs[1] < GAP) {
                faults.push(format!("{what}: position {i}: arg-max {best}, the golden has {}", prompt.new_ids[i]));
            }
        }
        let ill = ILL_CONDITIONED.iter().find(|(name, at, _)| *name == prompt.name && *at == i);
        let limit = match ill {
            Some((_, _, wider)) if limits.worst == ROUNDED.worst => *wider,
            _ => limits.worst,
        };
        let mut worst = 0.0f64;
        for (&id, &wanted) in ids.iter().zip(logprobs) {
            let difference = (row[id as usize] - wanted).abs();
            if !(difference <= limit) {
                faults.push(format!("{what}: position {i}, token {id}: {} for {wanted}", row[id as usize]));
            }
            worst = if difference > worst || difference.is_nan() { difference } else { worst };
        }
        each.push(worst);
    }
    each.sort_by(f64::total_cmp);
    let median = each[each.len() / 2];
    if !(median <= limits.median) {
        faults.push(format!("{what}: the median difference is {median}"));
    }
    Distance { worst: each[each.len() - 1], median, swapped }
}

/// Feeds prompts and compares the first `one` positions of feeding row by row, the first `many` of many rows.
fn face_golden(name: &str, model: &mut Model, prompts: &[Prompt], limits: Limits, [one, many]: [usize; 2]) {
    let mut faults = Vec::new();
    for prompt in prompts {
        let start = Instant::now();
        let said = both_ways(model, prompt, &within(&ONE, one - 1), &within(&MANY, many - 1));
        for (said, (way, count)) in said.iter().zip([("one row a step", one), ("many rows", many)]) {
            assert_eq!(said.len(), count);
            let what = format!("{name}, {}, {way}", prompt.name);
            let d = compare(&what, prompt, said, limits, &mut faults);
            println!(
                "{what}: {count} positions, worst {:.2e}, median {:.2e}, {} arg-maxes within the gap",
                d.worst, d.median, d.swapped
            );
        }
        println!("  {:.1} s", start.elapsed().as_secs_f64());
    }
    assert!(faults.is_empty(), "{} faults, such as\n{}", faults.len(), faults[..faults.len().min(20)].join("\n"));
}

/// The leading step sizes that add up to `rows`, the last one cut.
fn within(steps: &[usize], rows: usize) -> Vec<usize> {
    let mut left = rows;
    let cut = steps.iter().map(|&s| {
        let s = s.min(left);
        left -= s;
        s
    });
    let cut: Vec<usize> = cut.filter(|&s| s > 0).collect();
    assert_eq!(cut.iter().sum::<usize>(), rows);
    cut
}

fn cpu() -> Box<dyn Backend> {
    Box::new(CpuBackend::new(0).expect("the CPU"))
}

#[test]
fn prompts_become_the_golden_tokens() {
    let Some(gguf) = support::model::open() else { return };
    let tokenizer = Tokenizer::from_gguf(&gguf).expect("a tokenizer");
    let file = golden("smollm2-135m.json");
    for prompt in file["prompts"].as_array().expect("prompts") {
        let special = prompt["parse_special"].as_bool().expect("a flag");
        let encoded = tokenizer.encode(prompt["text"].as_str().expect("text"), special).expect("encodes");
        assert_eq!(encoded, ids(&prompt["prompt_ids"]), "{}", prompt["name"]);
        let new = tokenizer.decode(&ids(&prompt["new_ids"])).expect("decodes");
        assert_eq!(new, prompt["new_text"].as_str().expect("text"), "{}", prompt["name"]);
    }
}

#[test]
fn cpu_f32() {
    let Some(gguf) = support::model::open() else { return };
    face_golden("cpu f32", &mut load(&gguf, cpu(), Profile::formats("f32", "f32")), &prompts(), EXACT, [64, 64]);
}

#[test]
fn cpu_f16() {
    let Some(gguf) = support::model::open() else { return };
    face_golden("cpu f16", &mut load(&gguf, cpu(), Profile::formats("f16", "f16")), &prompts(), ROUNDED, [64, 64]);
}

/// A software rasteriser takes about a second a row on two cores, so on GPUs four prompts get few positions, and the
/// shortest one all 64 of many rows: steps of 1 to 16 rows. `KVARTO_GOLDEN=whole` gives every prompt all of them, both
/// ways, for adapters that are quick.
#[cfg(feature = "wgpu")]
fn face_golden_on_vulkan(name: &str, format: &str, [all, few]: [Limits; 2], [one, many]: [usize; 2]) {
    let Some(gguf) = support::model::open() else { return };
    let Some(backend) = vulkan() else { return };
    let mut model = load(&gguf, backend, Profile::formats(format, format));
    let (whole, others): (Vec<Prompt>, Vec<Prompt>) = prompts().into_iter().partition(|p| p.name == "chat");
    assert_eq!((whole.len(), others.len()), (1, 4));
    if std::env::var("KVARTO_GOLDEN").is_ok_and(|word| word == "whole") {
        face_golden(name, &mut model, &prompts(), all, [64, 64]);
        return;
    }
    face_golden(name, &mut model, &whole, all, [one, 64]);
    face_golden(name, &mut model, &others, few, [one, many]);
}

/// Steps of 1 row, and of 2, 5, 8 and 16.
#[cfg(feature = "wgpu")]
#[test]
fn vulkan_f32() {
    face_golden_on_vulkan("vulkan f32", "f32", [EXACT; 2], [4, 32]);
}

/// Steps of 1 row, and of 2, 5 and 8; up to 16 for the prompt that is fed whole.
#[cfg(feature = "wgpu")]
#[test]
fn vulkan_f16() {
    face_golden_on_vulkan("vulkan f16", "f16", [ROUNDED, ROUNDED_FEW], [2, 16]);
}

#[cfg(feature = "wgpu")]
fn vulkan() -> Option<Box<dyn Backend>> {
    match support::gpu::open("vulkan", &kvarto::backend::wgpu::OpenOptions::default()) {
        Ok(backend) => Some(Box::new(backend)),
        Err(error) => {
            support::require_or_skip("vulkan", &error.to_string());
            None
        }
    }
}

/// What is asked of formats that lose something.
struct Trial {
    /// (K format, V format, basis).
    cases: &'static [(&'static str, &'static str, &'static str)],
    /// The prompt that is sealed, and the exact sink and tail it is given.
    sealed: &'static str,
    exact: [usize; 2],
    /// Positions of the two ways on the short prompt, and of the sealed one.
    short: [usize; 2],
    positions: usize,
}

/// Where nothing is sealed yet they must face the golden file like any other; where most is, they must differ from
/// f32 pages on the CPU, and by little.
fn compressed(name: &str, open: &dyn Fn() -> Option<Box<dyn Backend>>, trial: &Trial) {
    let Some(gguf) = support::model::open() else { return };
    let prompts = prompts();
    let named = |name: &str| prompts.iter().find(|p| p.name == name).expect("the prompt");
    // `chat` has 38 + 64 tokens: all within the default exact sink and tail.
    let (short, long) = (named("chat"), named(trial.sealed));
    let steps = within(&MANY, trial.positions - 1);
    let reference = feed(&mut load(&gguf, cpu(), Profile::formats("f32", "f32")), long, &steps);
    for &(k, v, basis) in trial.cases {
        let profile = |[exact_sink_tokens, exact_tail_tokens]: [usize; 2]| Profile {
            k_basis: Some(basis.into()),
            v_basis: Some(basis.into()),
            exact_sink_tokens,
            exact_tail_tokens,
            ..Profile::formats(k, v)
        };
        let name = format!("{name} k={k},v={v} {basis}");
        let Some(backend) = open() else { return };
        let mut model = load(&gguf, backend, profile([64, 128]));
        face_golden(&name, &mut model, std::slice::from_ref(short), ROUNDED, trial.short);
        assert_eq!(model.engine().stats().conversions, 0, "{name}: pages were sealed within the exact tail");
        drop(model);

        let Some(backend) = open() else { return };
        let mut model = load(&gguf, backend, profile(trial.exact));
        let said = feed(&mut model, long, &steps);
        assert!(model.engine().stats().conversions > 0, "{name}: nothing was sealed");
        let each: Vec<f64> = reference.iter().zip(&said).map(|(p, q)| divergence(p, q)).collect();
        let mean = each.iter().sum::<f64>() / each.len() as f64;
        let most = each.iter().copied().fold(0.0, f64::max);
        println!("{name}: KL from f32 over {} positions: mean {mean:.2e}, most {most:.2e}", each.len());
        assert!(mean > 1e-5 && mean < 0.1, "{name}: mean KL {mean}");
    }
}

/// Log-probabilities fed in these steps.
fn feed(model: &mut Model, prompt: &Prompt, steps: &[usize]) -> Vec<Vec<f64>> {
    let seq = model.engine().create().expect("a sequence");
    let first = model.prefill(seq, &prompt.ids, Answer::LastLogits, |_| false).expect("the prefill").logits;
    teach(model, seq, &first, &prompt.new_ids, steps)
}

/// The Kullback-Leibler divergence of `q` from `p`, in nats, from log-probabilities.
fn divergence(p: &[f64], q: &[f64]) -> f64 {
    p.iter().zip(q).map(|(&p, &q)| p.exp() * (p - q)).sum()
}

/// 517 + 64 tokens: five of nine pages are sealed.
#[test]
fn cpu_compressed() {
    let cases =
        &[("fp8", "tq3", "hadamard"), ("fp8", "tq3", "mean"), ("tq3", "tq3", "hadamard"), ("tq3", "tq3", "mean")];
    let trial = Trial { cases, sealed: "long", exact: [64, 128], short: [4, 64], positions: 64 };
    compressed("cpu", &|| Some(cpu()), &trial);
}

/// 185 + 16 tokens with nothing held exact: every full page is sealed.
#[cfg(feature = "wgpu")]
#[test]
fn vulkan_compressed() {
    let cases = &[("fp8", "tq3", "hadamard"), ("tq3", "tq3", "mean")];
    let trial = Trial { cases, sealed: "code", exact: [0, 0], short: [2, 8], positions: 16 };
    compressed("vulkan", &vulkan, &trial);
}
