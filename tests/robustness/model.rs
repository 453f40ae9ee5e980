//! A model whose allocations are refused, at load and while it runs.

use crate::hooked::Hooked;
use crate::refusals::Handle;
use crate::script::cpu;
use kvarto::backend::Backend;
use kvarto::engine::{Registry, SeqId};
use kvarto::model::gguf::Gguf;
use kvarto::model::{Answer, LoadOptions, Model, ModelRows};
use kvarto::profile::Profile;
use kvarto::{ErrorKind, Result};

/// A tiny model of random weights.
pub fn gguf(name: &str) -> Gguf {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/families");
    Gguf::open(folder.join(format!("{name}.gguf"))).expect("the tiny model opens")
}

/// Loads it with coded pages from the first token on.
pub fn load(gguf: &Gguf, backend: Box<dyn Backend>) -> Result<Model> {
    let profile = Profile { exact_sink_tokens: 0, exact_tail_tokens: 0, ..Profile::formats("fp8", "fp8") };
    let options = LoadOptions { page_tokens: 16, chunk_tokens: 200, context_tokens: 256, ..LoadOptions::default() };
    Model::load(gguf, backend, profile, Registry::builtin(), &options)
}

pub fn prompt(tokens: usize) -> Vec<u32> {
    (0..tokens as u32).map(|i| 3 + (i * 31 + i * i * 7) % 290).collect()
}

/// One step that answers with logits.
pub fn step(model: &mut Model, seq: SeqId, tokens: &[u32]) -> Result<Vec<f32>> {
    let rows = [ModelRows { seq, tokens, committed: true, answer: Answer::LastLogits }];
    model.step(&rows).map(|answers| answers.logits)
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|x| x.to_bits()).collect()
}

/// The largest difference of a logit when pages that are due wait a step to be rounded to `fp8`.
const DEFERRED: f32 = 0.5;

#[test]
fn any_allocation_of_a_model_may_be_refused() {
    let (gguf, prompt) = (gguf("gemma3"), prompt(150));
    let pieces: Vec<&[u32]> = vec![&prompt[..60], &prompt[60..61], &prompt[61..148], &prompt[148..149], &prompt[149..]];
    let (mut want, mut at_load, mut in_steps, mut untold) = (Vec::new(), 0, 0, 0);
    for refused in 0.. {
        let handle = Handle::default();
        handle.refuse(refused..refused + u64::from(refused > 0));
        let hooked = Box::new(Hooked::new(cpu(), handle.clone()));
        let mut model = match load(&gguf, hooked) {
            Ok(model) => model,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                assert!(!handle.refused().is_empty());
                at_load += 1;
                continue;
            }
        };
        let seq = model.engine().create().expect("a sequence");
        let (mut said, mut length, mut errors, mut deferred) = (Vec::new(), 0u32, 0, 0);
        for piece in &pieces {
            let logits = step(&mut model, seq, piece).or_else(|error| {
                assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                errors += 1;
                let lengths = model.engine().lengths(seq).expect("alive");
                assert_eq!((lengths.logical, lengths.committed), (length, length), "after {error}");
                step(&mut model, seq, piece)
            });
            length += piece.len() as u32;
            let stats = model.engine().stats();
            deferred += stats.deferred;
            // Pages that wait to be sealed are read exact, and what comes after them may lie in other segments.
            said.push((logits.expect("the second try"), deferred));
        }
        if refused == 0 {
            want = said;
            continue;
        }
        for (at, ((said, deferred), (want, _))) in said.iter().zip(&want).enumerate() {
            let near = said.iter().zip(want).all(|(a, b)| (a - b).abs() <= DEFERRED);
            let same = if *deferred == 0 { bits(said) == bits(want) } else { near };
            assert!(same, "allocation {refused}: step {at} said something else");
        }
        in_steps += errors;
        untold += u64::from(errors == 0 && deferred > 0);
        if handle.refused().is_empty() {
            println!("{at_load} refused at load, {in_steps} in steps, {untold} only put off the sealing of pages");
            break;
        }
        assert!(errors > 0 || deferred > 0, "allocation {refused} was refused, and nobody was told");
    }
    assert!(want.iter().all(|(logits, deferred)| !logits.is_empty() && *deferred == 0));
    assert!(at_load > 40 && in_steps > 3, "{at_load}, {in_steps}");
}
