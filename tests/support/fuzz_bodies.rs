// What the fuzzers do with bytes from a stranger, but for whole model files (`gguf_body.rs`). Errors are answers; what must
// hold of answers is asserted.

use kvarto::ErrorKind;
use kvarto::backend::CpuBackend;
use kvarto::engine::{Engine, EngineOptions, Input, Output, Registry, SeqId, SeqRows};
use kvarto::format::FormatRegistry;
use kvarto::model::chat_template::{ChatTemplate, Message};
use kvarto::model::tokenizer::Tokenizer;
use kvarto::profile::Profile;
use kvarto::shape::{CacheGroup, CacheShape, GroupKind, KeySpace, VSource};

/// Encodes the text in `data` and back, with special tokens and without.
pub fn tokenizer(tokenizer: &Tokenizer, data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for parse_special in [true, false] {
        let Ok(ids) = tokenizer.encode(&text, parse_special) else { continue };
        assert!(ids.iter().all(|&id| (id as usize) < tokenizer.len()));
        let led = tokenizer.add_bos() && ids.first().copied() == tokenizer.bos();
        let back = tokenizer.decode(&ids[usize::from(led)..]).expect("its own ids");
        assert!(parse_special || back == text, "{text:?} comes back as {back:?}");
        let mut stream = tokenizer.stream();
        let said: String = ids.iter().map(|&id| stream.push(id)).collect();
        assert!(said.len() + stream.finish().len() <= 8 * text.len() + 64);
    }
}

/// Compiles the part of `data` before a zero byte as a chat template and writes the part after it as a message.
pub fn template(data: &[u8]) -> bool {
    let mut parts = data.splitn(2, |byte| *byte == 0).map(String::from_utf8_lossy);
    let (source, content) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let Ok(template) = ChatTemplate::new(&source, "<s>", "</s>") else { return false };
    [true, false].map(|add| template.render(&[Message::new("user", content.as_ref())], add).is_ok()) == [true; 2]
}

/// Reads `data` as the value of `--kv`.
pub fn kv(data: &[u8]) -> bool {
    let formats = FormatRegistry::builtin();
    match Profile::parse_kv(&String::from_utf8_lossy(data), &formats) {
        Ok(profile) => {
            assert!(formats.by_name(&profile.k).is_ok() && formats.by_name(&profile.v).is_ok());
            true
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Usage);
            false
        }
    }
}

/// Longest sequence, and most sequences, of a page table from a stranger.
const MOST_TOKENS: u32 = 300;
const MOST_SEQUENCES: usize = 5;

fn group(layer: usize, kind: GroupKind) -> CacheGroup {
    CacheGroup {
        layers: vec![layer],
        kind,
        page_tokens: 16,
        q_heads: 1,
        kv_heads: 1,
        k_dim: 8,
        v_dim: 8,
        v: VSource::Own,
        key_space: KeySpace::PostRope,
    }
}

/// Takes `data` as calls of an engine, two bytes each, under a budget that some exceed. Lengths are what the calls that
/// were answered make them, and every byte is accounted for. The calls that were refused.
pub fn page_table(data: &[u8]) -> usize {
    let shape = CacheShape { groups: vec![group(0, GroupKind::Full), group(1, GroupKind::Window(20))] };
    let profile = Profile { exact_sink_tokens: 16, exact_tail_tokens: 20, ..Profile::formats("fp8", "f16") };
    let options = EngineOptions { kv_budget_bytes: Some(40_000), rewind_tokens: 9, ..EngineOptions::default() };
    let backend = Box::new(CpuBackend::new(1).expect("a thread"));
    let mut engine = Engine::with_options(backend, shape, profile, Registry::builtin(), options).expect("an engine");
    // Tokens and committed tokens of each sequence.
    let mut held: Vec<(SeqId, u32, u32)> = Vec::new();
    let mut refused = 0;
    for call in data.chunks_exact(2).take(200) {
        let (what, number) = (call[0] & 7, u32::from(call[1]));
        if what == 0 || held.is_empty() {
            if held.len() < MOST_SEQUENCES {
                held.push((engine.create().expect("a sequence"), 0, 0));
            }
            continue;
        }
        let at = usize::from(call[0] >> 3) % held.len();
        let (seq, tokens, committed) = held[at];
        let result = match what {
            1 if held.len() < MOST_SEQUENCES => engine.fork(seq).map(|id| held.push((id, tokens, committed))),
            2 if held.len() < MOST_SEQUENCES => {
                engine.fork_at(seq, number).map(|id| held.push((id, number, committed.min(number))))
            }
            3 => engine.truncate(seq, number).map(|()| held[at] = (seq, number, committed.min(number))),
            4 => engine.commit(seq, number).map(|()| held[at].2 = number),
            5 => engine.release(seq).map(|()| {
                held.remove(at);
            }),
            6 => engine.pin(seq, number / 2..number, "asked for"),
            _ => {
                let (rows, stands) = (number % 40, number < 200);
                if tokens + rows > MOST_TOKENS {
                    continue;
                }
                step(&mut engine, SeqRows { seq, rows, committed: stands }).map(|()| {
                    held[at] = (seq, tokens + rows, if stands && rows > 0 { tokens + rows } else { committed });
                })
            }
        };
        if let Err(error) = result {
            assert!(matches!(error.kind(), ErrorKind::Shape | ErrorKind::OutOfPages), "{error}");
            refused += 1;
        }
        for (seq, tokens, committed) in &held {
            let lengths = engine.lengths(*seq).expect("alive");
            assert_eq!((lengths.logical, lengths.committed), (*tokens, *committed));
        }
        assert_eq!(engine.memory().allocated(), engine.backend().allocated_bytes());
    }
    held.into_iter().for_each(|(seq, ..)| engine.release(seq).expect("alive"));
    assert_eq!(engine.memory().used_slot_bytes, 0);
    refused
}

/// Values that all equal 0.5: so does what attention makes of them.
fn step(engine: &mut Engine, rows: SeqRows) -> kvarto::Result<()> {
    let input = vec![0.5; rows.rows as usize * 8];
    let mut step = engine.begin_step(&[rows])?;
    for layer in 0..2 {
        let mut out = vec![f32::NAN; input.len()];
        step.append(layer, Input::Host(&input), Input::Host(&input))?;
        step.attend(layer, Input::Host(&input), Output::Host(&mut out))?;
        assert!(out.iter().all(|x| (x - 0.5).abs() < 1e-3), "{out:?}");
    }
    step.finish().map(|_| ())
}
