//! Tiny models of every architecture against a second implementation (`tests/golden/make_families.py`, numpy in f64,
//! itself checked against llama.cpp): log-probabilities at every position, in one go and token by token.
#![cfg(feature = "model")]

mod support;

use kvarto::backend::{Backend, CpuBackend};
use kvarto::engine::Registry;
use kvarto::model::config::{ARCHITECTURES, ModelConfig};
use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use kvarto::model::{Answer, LoadOptions, Model, ModelRows};
use kvarto::profile::Profile;
use kvarto::shape::GroupKind;
use serde_json::Value;
use std::path::PathBuf;

/// With f32 pages only the order of summation differs.
const EXACT: f64 = 2e-4;
/// With keys and values rounded to 16 bits.
const ROUNDED: f64 = 0.02;
/// For weights of 4 bits, in f32 on both sides.
#[cfg(feature = "cli")]
const REAL: f64 = 1e-3;

struct Case {
    name: String,
    gguf: Gguf,
    tokens: Vec<u32>,
    /// Ids and log-probabilities of the ten likeliest after each token.
    top: Vec<Vec<(usize, f64)>>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn cases() -> Vec<Case> {
    let file = std::fs::read(folder().join("families.json")).expect("the golden file is there");
    let file: Value = serde_json::from_slice(&file).expect("JSON");
    let cases: Vec<Case> = file.as_object().expect("cases").iter().map(|(name, case)| read(name, case)).collect();
    for architecture in ARCHITECTURES.iter().filter(|a| a.name != "llama") {
        assert!(cases.iter().any(|c| c.name == architecture.name), "{} has no golden", architecture.name);
    }
    cases
}

fn read(name: &str, case: &Value) -> Case {
    let numbers = |v: &Value| v.as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number")).collect();
    let top = case["top"].as_array().expect("top").iter().map(|top| {
        let (ids, logprobs): (Vec<f64>, Vec<f64>) = (numbers(&top["ids"]), numbers(&top["logprobs"]));
        assert_eq!((ids.len(), logprobs.len()), (10, 10));
        ids.iter().map(|&id| id as usize).zip(logprobs).collect()
    });
    let gguf = Gguf::open(folder().join("families").join(format!("{name}.gguf"))).expect("the tiny model opens");
    let tokens: Vec<f64> = numbers(&case["tokens"]);
    let case = Case { name: name.into(), gguf, tokens: tokens.iter().map(|&t| t as u32).collect(), top: top.collect() };
    assert_eq!((case.tokens.len(), case.top.len()), (70, 70), "{name}");
    case
}

/// Log-probabilities after every token, fed in steps of these many rows in turn.
fn said(model: &mut Model, tokens: &[u32], steps: &[usize]) -> Vec<Vec<f64>> {
    let seq = model.engine().create().expect("a sequence");
    let (mut all, mut rest) = (Vec::new(), tokens);
    for &rows in steps.iter().cycle() {
        let (now, later) = rest.split_at(rows.min(rest.len()));
        let rows = ModelRows { seq, tokens: now, committed: true, answer: Answer::AllLogits };
        let answers = model.step(&[rows]).expect("a step");
        let vocab = model.config().vocab;
        assert_eq!(answers.logits.len(), now.len() * vocab);
        all.extend(answers.logits.chunks(vocab).map(|logits| {
            let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
            logits.iter().map(|&x| f64::from(x) - sum.ln()).collect::<Vec<_>>()
        }));
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    model.engine().release(seq).expect("a release");
    all
}

/// The largest distance from the golden.
fn distance(case: &Case, said: &[Vec<f64>]) -> f64 {
    assert_eq!(said.len(), case.top.len());
    let mut worst = 0.0f64;
    for (said, top) in said.iter().zip(&case.top) {
        for &(id, logprob) in top {
            let off = (said[id] - logprob).abs();
            // f64::max would drop a NaN.
            worst = if off <= worst { worst } else { off };
        }
    }
    worst
}

fn check(case: &Case, backend: Box<dyn Backend>, pages: &str, limit: f64, what: &str) {
    let options =
        LoadOptions { page_tokens: 16, context_tokens: 96, chunk_tokens: 96, logit_rows: 96, ..LoadOptions::default() };
    // No exact beginning or end: every page is in the tested format.
    let profile = Profile { exact_sink_tokens: 0, exact_tail_tokens: 0, ..Profile::formats(pages, pages) };
    let mut model = Model::load(&case.gguf, backend, profile, Registry::builtin(), &options).expect("the model loads");
    let at_once = said(&mut model, &case.tokens, &[70]);
    for (way, said) in [
        ("at once", &at_once),
        ("token by token", &said(&mut model, &case.tokens, &[1])),
        ("in odd steps", &said(&mut model, &case.tokens, &[17, 1, 5, 3])),
    ] {
        let off = distance(case, said);
        println!("{} {what} {pages} {way}: {off:.2e}", case.name);
        assert!(off <= limit, "{} {what} {pages} {way}: {off} from the golden, {limit} is allowed", case.name);
    }
}

fn cpu() -> Box<dyn Backend> {
    Box::new(CpuBackend::new(0).expect("the CPU"))
}

#[test]
fn the_cpu_answers_as_the_second_implementation() {
    for case in cases() {
        check(&case, cpu(), "f32", EXACT, "cpu");
        check(&case, cpu(), "f16", ROUNDED, "cpu");
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn a_gpu_answers_as_the_second_implementation() {
    use kvarto::backend::wgpu::OpenOptions;
    for case in cases() {
        for (pages, limit) in [("f32", EXACT), ("f16", ROUNDED)] {
            support::gpu::on_new("vulkan", &OpenOptions::default(), |backend| {
                check(&case, Box::new(backend), pages, limit, "vulkan");
            });
        }
    }
}

#[test]
fn layers_that_slide_are_a_group_of_their_own() {
    let groups = |name: &str| {
        let case = cases().into_iter().find(|c| c.name == name).expect("a case");
        let config = ModelConfig::from_gguf(&case.gguf).expect("a configuration");
        let shape = config.cache_shape(16);
        shape.validate().expect("a shape");
        shape.groups.into_iter().map(|g| (g.kind, g.layers)).collect::<Vec<_>>()
    };
    let window = GroupKind::Window(20);
    assert_eq!(groups("gemma3"), [(window, vec![0, 1, 2, 3, 4, 6]), (GroupKind::Full, vec![5])]);
    assert_eq!(groups("gemma3-sliding"), [(GroupKind::Window(33), vec![0, 1])]);
    assert_eq!(groups("qwen3"), [(GroupKind::Full, vec![0, 1, 2])]);
}

#[test]
fn pages_behind_the_window_are_freed() {
    let case = cases().into_iter().find(|c| c.name == "gemma3").expect("a case");
    let options = LoadOptions { page_tokens: 16, ..LoadOptions::default() };
    let mut model = Model::load(&case.gguf, cpu(), Profile::dense(), Registry::builtin(), &options).expect("loads");
    let seq = model.engine().create().expect("a sequence");
    for tokens in case.tokens.chunks(7) {
        model.prefill(seq, tokens, Answer::Nothing, |_| false).expect("a step");
    }
    let held = model.engine().held(seq).expect("what is held");
    assert_eq!(held.len(), 2);
    assert!(held[0].start > 0 && held[0].end == 70, "{held:?}");
    assert_eq!(held[1], 0..70);
}

#[test]
fn their_tokenizers_are_built() {
    for case in cases() {
        let tokenizer = Tokenizer::from_gguf(&case.gguf).expect("a tokenizer");
        assert_eq!(tokenizer.len(), 300, "{}", case.name);
        let text = "hello, world. é日\n ab";
        let ids = tokenizer.encode(text, false).expect("ids");
        let led = ids.first().copied() == tokenizer.bos() && tokenizer.add_bos();
        assert_eq!(tokenizer.decode(&ids[usize::from(led)..]).expect("text"), text, "{}", case.name);
    }
}
/// The real model: greedy tokens of a second implementation over the same file, and its log-probabilities, also past
/// the window.
#[cfg(feature = "cli")]
#[test]
fn gemma_270m_says_what_the_second_implementation_says() {
    let Some(path) = kvarto::model::store::resolve_cached("gemma3-270m") else {
        let how = "gemma3-270m is not in the cache; run `kvarto models fetch gemma3-270m`";
        return support::require_or_skip("gemma3", how);
    };
    let gguf = Gguf::open(path).expect("the file opens");
    let tokenizer = Tokenizer::from_gguf(&gguf).expect("a tokenizer");
    let options = LoadOptions { context_tokens: 1024, logit_rows: 1, ..LoadOptions::default() };
    let mut model = Model::load(&gguf, cpu(), Profile::formats("f32", "f32"), Registry::builtin(), &options).unwrap();
    let golden: Value = serde_json::from_slice(&std::fs::read(folder().join("gemma3-270m.json")).unwrap()).unwrap();
    let ids = |v: &Value| v.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect::<Vec<_>>();
    let (mut longest, mut worst) = (0, 0.0f64);
    for case in golden["cases"].as_array().unwrap() {
        let (name, prompt, new) = (case["name"].as_str().unwrap(), ids(&case["prompt"]), ids(&case["new"]));
        assert_eq!(tokenizer.encode(case["text"].as_str().unwrap(), false).unwrap(), prompt, "{name}");
        longest = longest.max(prompt.len());
        let seq = model.engine().create().unwrap();
        let mut logits = model.prefill(seq, &prompt, Answer::LastLogits, |_| false).unwrap().logits;
        for (at, (&token, top)) in new.iter().zip(case["top"].as_array().unwrap()).enumerate() {
            let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = logits.iter().map(|&x| f64::from(x - most).exp()).sum();
            let said = |id: u32| f64::from(logits[id as usize] - most) - sum.ln();
            let logprobs: Vec<f64> = top["logprobs"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
            for (id, &logprob) in ids(&top["ids"]).into_iter().zip(&logprobs) {
                let off = (said(id) - logprob).abs();
                assert!(off <= REAL, "{name}, token {at}, id {id}: {} and not {logprob}", said(id));
                worst = worst.max(off);
            }
            let best = (0..logits.len() as u32).max_by(|&a, &b| said(a).total_cmp(&said(b))).unwrap();
            assert!(best == token || logprobs[0] - logprobs[1] < 2.0 * REAL, "{name}, token {at}: {best}, not {token}");
            let rows = ModelRows { seq, tokens: &[token], committed: true, answer: Answer::LastLogits };
            logits = model.step(&[rows]).unwrap().logits;
        }
        let text = tokenizer.decode(&new).unwrap();
        println!("{name}: {text:?}");
        model.engine().release(seq).unwrap();
    }
    println!("at most {worst:.2e} away");
    assert!(longest > 512, "no prompt is longer than the window");
}
