//! Scores of the real model: dense costs nothing, a bad format a lot, emulated steps what single ones cost.

use crate::support;
use crate::texts::english;
use kvarto::backend::CpuBackend;
use kvarto::engine::Registry;
use kvarto::eval::{Candidate, Mode, Plan, Progress, Record, Runner, Subject, Summary, Windows};
use kvarto::format::{Codec, Format, Fp8, Layout};
use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use kvarto::model::{LoadOptions, Model};
use kvarto::profile::Profile;
use kvarto::shape::{PageGeometry, Side};
use kvarto::{ErrorKind, Result};
use std::ops::Range;
use std::sync::Arc;

/// Stops after so many tokens.
#[derive(Default)]
struct Quiet {
    tokens: u64,
    most: Option<u64>,
}

impl Progress for Quiet {
    fn stage(&mut self, _: &str) {}

    fn advance(&mut self, tokens: u64) {
        self.tokens += tokens;
    }

    fn stopped(&self) -> bool {
        self.most.is_some_and(|most| self.tokens >= most)
    }
}

fn runner(gguf: &Gguf, registry: &Registry) -> Runner {
    let load = LoadOptions { chunk_tokens: 128, logit_rows: 128, ..LoadOptions::default() };
    let backend = Box::new(CpuBackend::new(0).expect("the CPU"));
    let model = Model::load(gguf, backend, Profile::dense(), registry.clone(), &load).expect("the model loads");
    let word = || "a test".to_string();
    let subject = Subject {
        label: word(),
        profile: word(),
        model: word(),
        calibrations: Vec::new(),
        model_sha256: gguf.sha256().into(),
        architecture: word(),
        backend: word(),
        adapter: word(),
        tier: word(),
        version: word(),
        command: Vec::new(),
    };
    Runner::new(model, registry.clone(), subject)
}

fn plan(gguf: &Gguf, tokens: usize, score_tokens: usize, mode: Mode) -> Plan {
    let tokenizer = Tokenizer::from_gguf(gguf).expect("a tokenizer");
    let text = english();
    let windows = Windows { tokens, count: 2 }.cut(&tokenizer, &text, 0).expect("windows");
    Plan { texts: vec![text], windows, score_tokens, mode, logit_bytes: 1 << 30 }
}

fn candidates(words: &[&str], registry: &Registry) -> Vec<Candidate> {
    words.iter().map(|word| Candidate::parse(word, &[], registry).expect("a profile")).collect()
}

fn run(runner: &mut Runner, plan: &Plan, candidates: &[Candidate]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut progress = Quiet::default();
    let work = runner.work(plan, candidates, &|_, _| true);
    runner
        .run(plan, candidates, &|_, _| true, &mut progress, &mut |_, _, record| {
            records.push(record);
            Ok(())
        })
        .expect("a run");
    assert_eq!(progress.tokens, work, "the work announced is the work done");
    records
}

/// fp8 with a planted error: of every even token it keeps nothing.
struct Forgetful;

struct ForgetfulCodec(Arc<dyn Codec>);

impl Format for Forgetful {
    fn name(&self) -> &str {
        "forgetful"
    }

    fn summary(&self) -> &str {
        "a planted error"
    }

    fn wants_rotation(&self) -> bool {
        false
    }

    fn codec(&self, side: Side, geometry: PageGeometry) -> Result<Arc<dyn Codec>> {
        Ok(Arc::new(ForgetfulCodec(Fp8.codec(side, geometry)?)))
    }
}

impl Codec for ForgetfulCodec {
    fn layout(&self) -> &Layout {
        self.0.layout()
    }

    fn encode(&self, values: &[f32], page: &mut [u32]) {
        let mut kept = values.to_vec();
        let dim = self.0.layout().geometry.head_dim;
        kept.chunks_mut(dim).step_by(2).for_each(|row| row.fill(0.0));
        self.0.encode(&kept, page);
    }

    fn decode(&self, page: &[u32], tokens: Range<usize>, out: &mut [f32]) {
        self.0.decode(page, tokens, out);
    }

    fn wgsl(&self, prefix: &str) -> String {
        self.0.wgsl(prefix)
    }

    fn wgsl_encode(&self, prefix: &str) -> String {
        self.0.wgsl_encode(prefix)
    }
}

#[test]
fn a_planted_bad_codec_looks_bad() {
    let Some(gguf) = support::model::open() else { return };
    let registry = Registry::builtin().with_format(Arc::new(Forgetful)).expect("a new name");
    let mut runner = runner(&gguf, &registry);
    let plan = plan(&gguf, 320, 30, Mode::Emulated);
    let records = run(&mut runner, &plan, &candidates(&["kv:fp8", "kv:tq2", "kv:forgetful"], &registry));
    let summaries = Summary::of(&records);
    let [fp8, tq2, bad] = &summaries[..] else { panic!("{summaries:?}") };
    assert!(fp8.kl_mean < Some(0.005) && fp8.top1 > Some(0.9), "{fp8:?}");
    // As many bits as fp8, and worse than a quarter of them.
    assert!((bad.resident_bits_per_value.unwrap() - fp8.resident_bits_per_value.unwrap()).abs() < 1e-9);
    assert!(bad.kl_mean > tq2.kl_mean && bad.kl_mean.unwrap() > 20.0 * fp8.kl_mean.unwrap(), "{bad:?}");
    assert!(bad.top1 < tq2.top1, "{bad:?}");
}

#[test]
fn dense_costs_nothing_and_fewer_bits_cost_more() {
    let Some(gguf) = support::model::open() else { return };
    let registry = Registry::builtin();
    let mut runner = runner(&gguf, &registry);
    let plan = plan(&gguf, 384, 32, Mode::Emulated);
    let words = ["dense", "fp8", "tq4", "tq3", "tq2", "streaming+policy.recent_tokens=130"];
    let records = run(&mut runner, &plan, &candidates(&words, &registry));
    assert_eq!(records.len(), 12);
    let summaries = Summary::of(&records);
    let kl: Vec<f64> = summaries.iter().map(|s| s.kl_mean.expect("a mean")).collect();
    assert!(kl[0] < 1e-5, "dense replayed is dense: {kl:?}");
    assert!(summaries[0].top1 > Some(0.97));
    assert!(kl[0] < kl[1] && kl[1] < kl[2] && kl[2] < kl[3] && kl[3] < kl[4] && kl[3] < kl[5], "{words:?}: {kl:?}");
    for s in &summaries {
        let (ppl, dense) = (s.ppl.expect("one"), s.ppl_dense.expect("one"));
        assert!(((ppl / dense).ln() - s.nll_difference.expect("one")).abs() < 1e-9);
        assert_eq!((s.windows, s.tokens, s.buckets.len()), (2, 64, 4));
        assert_eq!((s.buckets[0].from, s.buckets[3].to), (352, 384));
        assert!(s.read_bits_per_value > Some(0.0) && s.decode_tokens_per_s > Some(0.0));
    }
    let bits: Vec<f64> = summaries.iter().map(|s| s.resident_bits_per_value.expect("bits")).collect();
    assert!(
        bits[0] >= 16.0 && bits[1] < bits[0] && bits[2] < bits[1] && bits[3] < bits[2] && bits[4] < bits[3],
        "{bits:?}"
    );
    assert!(records[10].cache.evicted > 0);
}

#[test]
fn emulated_steps_score_what_single_steps_score() {
    let Some(gguf) = support::model::open() else { return };
    let registry = Registry::builtin();
    let mut runner = runner(&gguf, &registry);
    let words = [
        "kv:tq4/tq3@mean",
        "minima-kv+policy.recent_tokens=150+kv.page_tokens=32+kv.exact_tail_tokens=32",
        "streaming+policy.recent_tokens=100+kv.page_tokens=32+kv.exact_tail_tokens=32",
    ];
    let candidates = candidates(&words, &registry);
    let single = run(&mut runner, &plan(&gguf, 352, 72, Mode::Stepwise), &candidates);
    let long = run(&mut runner, &plan(&gguf, 352, 72, Mode::Emulated), &candidates);
    let chunked = run(&mut runner, &plan(&gguf, 352, 72, Mode::Chunked(64)), &candidates);
    let worst = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let mean = |list: &[f64]| list.iter().sum::<f64>() / list.len() as f64;
    for ((single, long), chunked) in single.iter().zip(&long).zip(&chunked) {
        let label = &single.subject.label;
        assert_eq!((single.mode.as_str(), long.mode.as_str()), ("stepwise", "emulated"));
        assert_eq!(single.cache.pages, long.cache.pages, "{label}");
        assert_eq!((single.cache.evicted, single.cache.conversions), (long.cache.evicted, long.cache.conversions));
        // Kernels of many rows sum in another order than those of few; keys are then rounded to 16 bits.
        let off = worst(&single.tokens.nll, &long.tokens.nll);
        assert!(off < 0.02, "{label}: a token's NLL differs by {off}");
        let (a, b) = (mean(&single.tokens.kl), mean(&long.tokens.kl));
        assert!((a - b).abs() < 0.02 * a + 1e-5, "{label}: KL {a} stepwise, {b} emulated");
        let reads = (single.cache.read_bits_per_value.expect("reads"), long.cache.read_bits_per_value.expect("reads"));
        assert!((reads.0 - reads.1).abs() < 0.02 * reads.0, "{label}: reads {reads:?}");
        // What cutting at the cache's changes is for.
        let flattered = worst(&single.tokens.nll, &chunked.tokens.nll);
        assert!(flattered > 2.0 * off, "{label}: chunks of 64 differ by {flattered}, emulated steps by {off}");
    }
}

#[test]
fn a_stopped_run_hands_over_what_is_done() {
    let Some(gguf) = support::model::open() else { return };
    let registry = Registry::builtin();
    let mut runner = runner(&gguf, &registry);
    let plan = plan(&gguf, 160, 20, Mode::Emulated);
    let candidates = candidates(&["fp8", "tq3"], &registry);
    let mut records = Vec::new();
    // Prefills, dense, the first candidate and a little.
    let mut progress = Quiet { tokens: 0, most: Some(2 * (139 + 20 + 20) + 1) };
    let error = runner
        .run(&plan, &candidates, &|_, _| true, &mut progress, &mut |c, w, record| {
            records.push((c, w, record));
            Ok(())
        })
        .expect_err("stopped");
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    let done: Vec<_> = records.iter().map(|(c, w, _)| (*c, *w)).collect();
    assert_eq!(done, [(0, 0), (0, 1)]);
    // The same runner goes on with what is missing.
    let missing = |c: usize, w: usize| !done.contains(&(c, w));
    let mut rest = Vec::new();
    runner
        .run(&plan, &candidates, &missing, &mut Quiet::default(), &mut |c, w, _| {
            rest.push((c, w));
            Ok(())
        })
        .expect("the rest");
    assert_eq!(rest, [(1, 0), (1, 1)]);
}
