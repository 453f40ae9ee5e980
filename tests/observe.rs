//! What a watched step hands over: queries, keys and values that give the outputs by attention in f64.
#![cfg(feature = "model")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;

use gguf_writer::tiny_llama_of;
use kvarto::backend::CpuBackend;
use kvarto::conformance::reference::{Query, Token, attend};
use kvarto::engine::Registry;
use kvarto::model::gguf::Gguf;
use kvarto::model::{Answer, LoadOptions, Model, ModelRows, Observed};
use kvarto::profile::Profile;
use kvarto::{Error, ErrorKind};

const LAYERS: usize = 3;
/// The tiny model's query heads, and the size of its heads; it has one KV head.
const Q_HEADS: usize = 2;
const DIM: usize = 8;

fn model() -> Model {
    let gguf = Gguf::parse(tiny_llama_of(3, LAYERS as u32).build()).expect("well-formed");
    let backend = Box::new(CpuBackend::new(1).expect("a backend"));
    let options = LoadOptions { page_tokens: 16, chunk_tokens: 40, context_tokens: 128, ..LoadOptions::default() };
    Model::load(&gguf, backend, Profile::formats("f32", "f32"), Registry::builtin(), &options).expect("loads")
}

fn prompt() -> Vec<u32> {
    (0..65).map(|i| (i * 7 + i * i) % 250).collect()
}

fn wide(row: &[f32]) -> Vec<f64> {
    row.iter().map(|&x| f64::from(x)).collect()
}

#[test]
fn outputs_follow_from_queries_keys_and_values() {
    let mut model = model();
    let seq = model.engine().create().expect("a sequence");
    let mut tokens: Vec<Vec<Token>> = vec![Vec::new(); LAYERS];
    let (mut layers, mut checked) = (Vec::new(), 0);
    for chunk in prompt().chunks(30) {
        let rows = [ModelRows { seq, tokens: chunk, committed: true, answer: Answer::Nothing }];
        let watch = |seen: Observed| {
            layers.push(seen.layer);
            assert_eq!(seen.positions.len(), chunk.len());
            for (at, &position) in seen.positions.iter().enumerate() {
                let of = |rows: &[f32]| wide(&rows[at * DIM..(at + 1) * DIM]);
                let token = Token { position: u64::from(position), key: of(&seen.k), value: of(&seen.v) };
                tokens[seen.layer].push(token);
            }
            let vectors = seen.q.chunks_exact(DIM).zip(seen.output.chunks_exact(DIM));
            for (at, (q, output)) in vectors.enumerate() {
                let (q, position) = (wide(q), u64::from(seen.positions[at / Q_HEADS]));
                let scale = 1.0 / (DIM as f64).sqrt();
                let query = Query { q: &q, position, scale, window: None, softcap: None, sink: None };
                let want = attend(&tokens[seen.layer], &query, DIM);
                for (got, want) in output.iter().zip(want) {
                    assert!((f64::from(*got) - want).abs() < 1e-5, "layer {}, row {at}: {got}, not {want}", seen.layer);
                    checked += 1;
                }
            }
            Ok(())
        };
        model.observe(&rows, watch).expect("runs");
    }
    assert_eq!(layers, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    assert_eq!(checked, prompt().len() * LAYERS * Q_HEADS * DIM);
}

#[test]
fn a_watched_step_answers_like_any_other_and_can_be_refused() {
    let mut model = model();
    let [plain, watched] = [0, 1].map(|_| model.engine().create().expect("a sequence"));
    let prompt = prompt();
    let rows = |seq, answer| [ModelRows { seq, tokens: &prompt[..40], committed: true, answer }];
    let refuse = |seen: Observed| match seen.layer {
        2 => Err(Error::new(ErrorKind::Interrupted, "seen enough", "")),
        _ => Ok(()),
    };
    let error = model.observe(&rows(watched, Answer::Best), refuse).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Interrupted);
    assert_eq!(model.engine().lengths(watched).expect("known").logical, 0);
    let want = model.step(&rows(plain, Answer::LastLogits)).expect("runs");
    let got = model.observe(&rows(watched, Answer::LastLogits), |_| Ok(())).expect("runs");
    assert_eq!(got, want);
    assert_eq!(model.output_projection(1).expect("there").len(), 16 * Q_HEADS * DIM);
    assert!(model.output_projection(LAYERS).is_err());
}
