//! A prefill that is stopped: soon, and with every sequence as usable as before.
#![cfg(feature = "model")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;

use gguf_writer::tiny_llama_of;
use kvarto::ErrorKind;
use kvarto::backend::{Backend, CpuBackend};
use kvarto::engine::{Registry, SeqId};
use kvarto::model::gguf::Gguf;
use kvarto::model::{Answer, LoadOptions, Model, ModelRows};
use kvarto::profile::Profile;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const LAYERS: usize = 3;
const CHUNK: usize = 40;

fn model(basis: &str) -> Model {
    let gguf = Gguf::parse(tiny_llama_of(3, LAYERS as u32).build()).expect("well-formed");
    let profile = Profile {
        exact_sink_tokens: 0,
        exact_tail_tokens: 0,
        k_basis: Some(basis.into()),
        v_basis: Some(basis.into()),
        ..Profile::formats("fp8", "fp8")
    };
    let backend: Box<dyn Backend> = Box::new(CpuBackend::new(1).expect("a backend"));
    let options = LoadOptions { page_tokens: 16, chunk_tokens: CHUNK, context_tokens: 256, ..LoadOptions::default() };
    Model::load(&gguf, backend, profile, Registry::builtin(), &options).expect("loads")
}

fn prompt() -> Vec<u32> {
    (0..110).map(|i| (i * 7 + i * i) % 250).collect()
}

/// The logits after the prompt and after each of three more tokens.
fn go_on(model: &mut Model, seq: SeqId, rest: &[u32]) -> Vec<f32> {
    let mut logits = model.prefill(seq, rest, Answer::LastLogits, |_| false).expect("runs").logits;
    for token in [3, 1, 4] {
        let rows = [ModelRows { seq, tokens: &[token], committed: true, answer: Answer::LastLogits }];
        logits.extend(model.step(&rows).expect("runs").logits);
    }
    logits
}

#[test]
fn a_stop_at_any_moment_leaves_whole_steps() {
    for basis in ["none", "hadamard", "mean"] {
        let (mut model, prompt) = (model(basis), prompt());
        let other = model.engine().create().expect("a sequence");
        model.prefill(other, &prompt[..50], Answer::Nothing, |_| false).expect("runs");
        let fresh = model.engine().create().expect("a sequence");
        let want = go_on(&mut model, fresh, &prompt);
        model.engine().release(fresh).expect("released");
        let pages = model.engine().stats().pages;
        let mut stopped = 0;
        loop {
            let seq = model.engine().create().expect("a sequence");
            let mut asked = 0;
            let result = model.prefill(seq, &prompt, Answer::Nothing, |_| {
                asked += 1;
                asked > stopped
            });
            let cached = model.engine().lengths(seq).expect("alive").cached as usize;
            let Err(error) = result else {
                assert_eq!(cached, prompt.len());
                break;
            };
            assert_eq!((error.kind(), asked), (ErrorKind::Interrupted, stopped + 1), "{error}");
            assert_eq!(cached, stopped / (2 * LAYERS + 1) * CHUNK, "stopped at question {stopped}");
            // The sequence goes on as if nothing had been: where its means are not those of a cut step, to the bit.
            let got = go_on(&mut model, seq, &prompt[cached..]);
            assert_eq!(got.len(), want.len());
            let tolerance = if basis == "mean" { 0.05 } else { 0.0 };
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() <= tolerance, "{basis}, stopped at question {stopped}: {got}, not {want}");
            }
            model.engine().release(seq).expect("released");
            assert_eq!(model.engine().stats().pages, pages);
            stopped += 1;
        }
        // Before each of the three steps, and twice a layer within it.
        assert_eq!(stopped, 3 * (2 * LAYERS + 1));
        let lengths = model.engine().lengths(other).expect("alive");
        assert_eq!((lengths.cached, lengths.committed), (50, 50));
    }
}

#[test]
fn a_flag_of_another_thread_is_seen_within_the_step() {
    let mut model = model("none");
    let seq = model.engine().create().expect("a sequence");
    let flag = Arc::new(AtomicBool::new(false));
    let mut asked = 0;
    let result = model.prefill(seq, &prompt()[..CHUNK], Answer::Best, |done| {
        assert_eq!(done, 0);
        asked += 1;
        if asked == 2 {
            // Somebody presses the key while the first layer runs.
            let flag = flag.clone();
            std::thread::spawn(move || flag.store(true, Ordering::SeqCst)).join().expect("sets the flag");
        }
        flag.load(Ordering::SeqCst)
    });
    assert_eq!(result.expect_err("stopped").kind(), ErrorKind::Interrupted);
    assert_eq!((asked, model.engine().lengths(seq).expect("alive").cached), (2, 0));
}
