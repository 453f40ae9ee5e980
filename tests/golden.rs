//! The model against its golden file: greedy tokens and log-probabilities of an implementation that shares no code.
//!
//! Each prompt is prefilled, then its 64 golden tokens are fed twice, on two forks of the sequence: one row a step,
//! and in steps of 1 to 16 rows. So the one-row, few-row and many-row paths of every kernel, prefill over history
//! (the longest prompts take several steps) and copy-on-write of a shared open page all face the golden file.
#![cfg(feature = "cli")]

mod support;

use kvarto::backend::{Backend, CpuBackend};
use kvarto::engine::{Registry, SeqId};
use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use kvarto::model::{Answer, LoadOptions, Model, ModelRows};
use kvarto::profile::Profile;
use std::time::Instant;
use support::model::{golden, ids};

/// Largest difference of a log-probability that is accepted.
const TOLERANCE: f64 = 0.02;
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
    let said = [
        teach(model, seq, &first, &prompt.new_ids, one),
        teach(model, fork, &first, &prompt.new_ids, many),
    ];
    for seq in [seq, fork] {
        model.engine().release(seq).expect("a release");
    }
    said
}

/// The worst log-probability difference and how many arg-maxes differ (each within the gap).
fn compare(what: &str, prompt: &Prompt, said: &[Vec<f64>], faults: &mut Vec<String>) -> (f64, usize) {
    let (mut worst, mut swapped) = (0.0f64, 0);
    for (i, row) in said.iter().enumerate() {
        let (ids, logprobs) = &prompt.top[i];
        let best = (0..row.len()).fold(0, |best, id| if row[id] > row[best] { id } else { best });
        if best as u32 != prompt.new_ids[i] {
            swapped += 1;
            if !(logprobs[0] - logprobs[1] < GAP) {
                faults.push(format!("{what}: position {i}: arg-max {best}, the golden has {}", prompt.new_ids[i]));
            }
        }
        for (&id, &wanted) in ids.iter().zip(logprobs) {
            let difference = (row[id as usize] - wanted).abs();
            if !(difference <= TOLERANCE) {
                faults.push(format!("{what}: position {i}, token {id}: {} for {wanted}", row[id as usize]));
            }
            worst = if difference > worst || difference.is_nan() { difference } else { worst };
        }
    }
    (worst, swapped)
}

/// Feeds every prompt; `positions` bounds how many of the 64 are looked at.
fn face_golden(backend_name: &str, backend: Box<dyn Backend>, gguf: &Gguf, format: &str, positions: usize) {
    let mut model = load(gguf, backend, Profile::formats(format, format));
    let mut faults = Vec::new();
    for prompt in prompts() {
        let start = Instant::now();
        let many = within(&MANY, positions - 1);
        let said = both_ways(&mut model, &prompt, &ONE[..positions - 1], &many);
        for (said, way) in said.iter().zip(["one row a step", "many rows"]) {
            assert_eq!(said.len(), positions);
            let what = format!("{backend_name} {format} {} {way}", prompt.name);
            let (worst, swapped) = compare(&what, &prompt, said, &mut faults);
            println!("{what}: worst difference {worst:.2e}, {swapped} arg-maxes within the gap");
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
    face_golden("cpu", cpu(), &gguf, "f32", 64);
}

#[test]
fn cpu_f16() {
    let Some(gguf) = support::model::open() else { return };
    face_golden("cpu", cpu(), &gguf, "f16", 64);
}

#[cfg(feature = "wgpu")]
fn vulkan(format: &str, positions: usize) {
    let Some(gguf) = support::model::open() else { return };
    match support::gpu::open("vulkan", &kvarto::backend::wgpu::OpenOptions::default()) {
        Ok(backend) => face_golden("vulkan", Box::new(backend), &gguf, format, positions),
        Err(error) => support::require_or_skip("vulkan", &error.to_string()),
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn vulkan_f32() {
    vulkan("f32", 64);
}

#[cfg(feature = "wgpu")]
#[test]
fn vulkan_f16() {
    vulkan("f16", 64);
}
