//! A device lost in the middle of a generation: an error and no token; then the model is built anew in the same process,
//! fed the same tokens, and goes on to the very tokens of an undisturbed run.

use crate::hooked::{Hooked, Hooks};
use crate::model::{gguf, load, prompt};
use crate::support::{gpu, require_or_skip};
use kvarto::backend::wgpu::OpenOptions;
use kvarto::backend::{Backend, BufferId, ReadFuture, Recording, SubmissionId};
use kvarto::engine::SeqId;
use kvarto::model::{Answer, Model, ModelRows};
use kvarto::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex};

/// A call of the backend, before or after which the device goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Poll,
    Write,
    BeforeSubmit,
    AfterSubmit,
    BeforeRead,
    /// The copy is under way, and nobody waits for it yet.
    AfterRead,
}

/// Loses the device at the `n`th such call from now on; `None` for never.
#[derive(Clone, Default)]
struct Losing(Arc<Mutex<Option<(Call, usize)>>>);

impl Losing {
    fn at(&self, call: Call, n: usize) {
        *self.0.lock().expect("no panic") = Some((call, n));
    }

    fn reached(&self, inner: &mut dyn Backend, call: Call) {
        let mut due = self.0.lock().expect("no panic");
        if let Some((_, left)) = due.as_mut().filter(|(of, _)| *of == call) {
            *left -= 1;
            if *left == 0 {
                *due = None;
                inner.as_wgpu().expect("wgpu").lose_for_test();
            }
        }
    }

    /// Whether the device is lost, or was never to be.
    fn is_done(&self) -> bool {
        self.0.lock().expect("no panic").is_none()
    }
}

impl Hooks for Losing {
    fn poll(&mut self, inner: &mut dyn Backend) -> Result<SubmissionId> {
        self.reached(inner, Call::Poll);
        inner.poll()
    }

    fn write(&mut self, inner: &mut dyn Backend, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.reached(inner, Call::Write);
        inner.write(buffer, offset, bytes)
    }

    fn submit(&mut self, inner: &mut dyn Backend, recording: Recording) -> Result<SubmissionId> {
        self.reached(inner, Call::BeforeSubmit);
        let id = inner.submit(recording)?;
        self.reached(inner, Call::AfterSubmit);
        Ok(id)
    }

    fn read(&mut self, inner: &mut dyn Backend, buffer: BufferId, offset: u64, bytes: u64) -> Result<ReadFuture> {
        self.reached(inner, Call::BeforeRead);
        let read = inner.read(buffer, offset, bytes)?;
        self.reached(inner, Call::AfterRead);
        Ok(read)
    }
}

const PROMPT: usize = 37;
const NEW: usize = 10;

/// Greedy tokens after `fed`, until there are [`NEW`] of them or an error ends it.
fn generate(model: &mut Model, seq: SeqId, fed: &[u32], said: &mut Vec<u32>) -> Result<()> {
    let mut answers = model.prefill(seq, fed, Answer::Best, |_| false)?;
    loop {
        let [token] = answers.best[..] else { panic!("one answer: {answers:?}") };
        said.push(token);
        if said.len() == NEW {
            return Ok(());
        }
        let rows = [ModelRows { seq, tokens: &[token], committed: true, answer: Answer::Best }];
        answers = model.step(&rows)?;
    }
}

fn expect_loss(error: &Error, what: &str) {
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{what}: {error}");
    assert!(error.remedy().contains("build the engine anew"), "{what}: {error}");
}

#[test]
fn a_generation_goes_on_after_its_device_was_lost() {
    let (gguf, prompt) = (gguf("qwen3"), prompt(PROMPT));
    let fresh = || -> Result<(Model, Losing)> {
        let losing = Losing::default();
        let backend = gpu::open("vulkan", &OpenOptions::default())?;
        let model = load(&gguf, Box::new(Hooked::new(backend, losing.clone()))).expect("the model loads");
        Ok((model, losing))
    };
    let (mut model, mut losing) = match fresh() {
        Ok(made) => made,
        Err(error) => return require_or_skip("vulkan", &error.to_string()),
    };
    let seq = model.engine().create().expect("a sequence");
    let mut want = Vec::new();
    generate(&mut model, seq, &prompt, &mut want).expect("an undisturbed run");
    assert_eq!(want.len(), NEW);
    let mut distinct = want.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert!(distinct.len() > 2, "tokens that say something: {want:?}");
    let mut most = 0;
    // In the prefill, which a software adapter takes in parts; in steps, at their beginnings and ends; and with the answer
    // under way.
    for (call, n) in [
        (Call::Write, 3),
        (Call::Write, 40),
        (Call::Poll, 4),
        (Call::BeforeSubmit, 3),
        (Call::BeforeSubmit, 11),
        (Call::AfterSubmit, 12),
        (Call::BeforeRead, 13),
        (Call::AfterRead, 14),
    ] {
        let what = format!("{call:?} {n}");
        let seq = model.engine().create().expect("a sequence");
        losing.at(call, n);
        let mut said = Vec::new();
        let error = generate(&mut model, seq, &prompt, &mut said).expect_err("the device is gone");
        assert!(losing.is_done(), "{what} never came");
        expect_loss(&error, &what);
        // What was said before is whole, and the step that failed said nothing.
        assert_eq!(said, want[..said.len()], "{what}");
        assert!(said.len() < NEW, "{what}");
        let held = model.engine().lengths(seq).expect("alive").logical as usize;
        assert_eq!(held, if said.is_empty() { 0 } else { PROMPT + said.len() - 1 }, "{what}");
        let rows = [ModelRows { seq, tokens: &[5], committed: true, answer: Answer::Best }];
        expect_loss(&model.step(&rows).expect_err("no step on a lost device"), &what);
        // The same process, another device: the prompt and what was said are fed again, as they were.
        drop(model);
        (model, losing) = fresh().expect("a fresh device");
        let seq = model.engine().create().expect("a sequence");
        let mut again = Vec::new();
        generate(&mut model, seq, &prompt, &mut again).expect("the second time");
        assert_eq!(again, want, "{what}");
        most = most.max(said.len());
        println!("{what}: lost after {} of {NEW} tokens, and all of them again", said.len());
    }
    assert!(most > 3, "no loss came late: {most} tokens at most");
}
