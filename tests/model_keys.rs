//! A model's cache knows its tokens: pages of equal prompts have equal content keys, whatever the formats.
#![cfg(feature = "model")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;

use gguf_writer::{V, tiny_llama};
use kvarto::backend::CpuBackend;
use kvarto::engine::{Registry, SeqId};
use kvarto::model::generate::{GenerateOptions, generate};
use kvarto::model::gguf::Gguf;
use kvarto::model::llama::{LoadOptions, Model};
use kvarto::model::sampler::SamplerOptions;
use kvarto::model::tokenizer::Tokenizer;
use kvarto::page::ContentKey;
use kvarto::profile::Profile;

fn model(gguf: &Gguf, kv: &str) -> Model {
    let none = || Some("none".into());
    let profile = Profile { k_basis: none(), v_basis: none(), ..Profile::formats(kv, kv) };
    let options = LoadOptions { page_tokens: 16, chunk_tokens: 24, ..LoadOptions::default() };
    let backend = Box::new(CpuBackend::new(1).expect("a thread"));
    Model::load(gguf, backend, profile, Registry::builtin(), &options).expect("the model loads")
}

/// Generates `max_tokens` after `prompt`: keys, and all tokens in the cache.
fn run(
    model: &mut Model,
    gguf: &Gguf,
    prompt: &[u32],
    max_tokens: usize,
) -> (SeqId, Vec<Option<ContentKey>>, Vec<u32>) {
    let tokenizer = Tokenizer::from_gguf(gguf).expect("a tokenizer");
    let seq = model.engine().create().expect("a sequence");
    let sampler = SamplerOptions { temperature: 0.0, ..SamplerOptions::default() };
    let options = GenerateOptions { max_tokens, sampler, stop: Vec::new() };
    let made = generate(model, &tokenizer, seq, prompt, &options, |_| {}, || false).expect("an answer");
    // The last token was not fed back.
    let mut tokens = prompt.to_vec();
    tokens.extend(&made.token_ids[..made.token_ids.len() - 1]);
    assert_eq!(model.engine().lengths(seq).expect("known").logical as usize, tokens.len());
    (seq, model.content_keys(seq).expect("known"), tokens)
}

#[test]
fn generated_tokens_are_in_the_keys() {
    let gguf = Gguf::parse(tiny_llama(3).build()).expect("a model");
    let prompt: Vec<u32> = (0..40).map(|i| i * 3 % 200).collect();
    let mut exact = model(&gguf, "f32");
    let (_, keys, tokens) = run(&mut exact, &gguf, &prompt, 20);
    let whole = tokens.len() / 16;
    assert!(whole > prompt.len() / 16, "a page with generated tokens: {} tokens", tokens.len());
    assert!(keys[..whole].iter().all(Option::is_some) && keys[whole..].iter().all(Option::is_none), "{keys:?}");
    // The keys are those of the tokens themselves, under the hash of the file.
    let mut parent = None;
    for (ids, key) in tokens.chunks_exact(16).zip(&keys) {
        parent = Some(ContentKey::of(parent, ids, gguf.sha256(), "none/none"));
        assert_eq!(*key, parent);
    }
    // Another format and another engine, the same tokens as one prompt.
    let mut coded = model(&gguf, "fp8");
    assert_eq!(run(&mut coded, &gguf, &tokens, 1).1, keys);
    // Other weights, or another word, another key.
    let other = Gguf::parse(tiny_llama(3).set("general.name", V::Str("other".into())).build()).expect("a model");
    let mut renamed = model(&other, "f32");
    assert!(run(&mut renamed, &other, &tokens, 1).1.iter().zip(&keys).all(|(a, b)| a.is_none() || a != b));
    let mut changed = tokens.clone();
    changed[20] += 1;
    let theirs = run(&mut coded, &gguf, &changed, 1).1;
    assert!(theirs[0] == keys[0] && theirs[1].is_some() && theirs[1] != keys[1] && theirs[2] != keys[2]);
}
