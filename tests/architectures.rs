//! What a file's keys and tensors say of each architecture, and which variants are refused by name.
#![cfg(feature = "model")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;

use gguf_writer::{GgufWriter, V, tiny_llama};
use kvarto::ErrorKind;
use kvarto::model::config::ModelConfig;
use kvarto::model::gguf::Gguf;
use kvarto::num::rope::{Pairing, RopeScaling};

/// The configuration must be refused with `kind`, and the message must hold every one of `words`.
#[track_caller]
fn config_refused(writer: GgufWriter, kind: ErrorKind, words: &[&str]) {
    let gguf = Gguf::parse(writer.build()).expect("the file itself is well-formed");
    let error = ModelConfig::from_gguf(&gguf).expect_err("it is refused");
    assert_eq!(error.kind(), kind, "{error}");
    assert!(words.iter().all(|word| error.message().contains(word)), "{words:?} are not all in {error}");
}

/// A model of `layers` layers as `architecture` wants its tensors, over [`tiny_llama`].
fn family(architecture: &str, layers: usize) -> GgufWriter {
    let mut writer =
        tiny_llama(3).architecture(architecture).set(&format!("{architecture}.block_count"), V::U32(layers as u32));
    for layer in 0..layers {
        let mut added: Vec<(String, Vec<u64>)> = Vec::new();
        let mut add = |name: &str, shape: &[u64]| added.push((format!("blk.{layer}.{name}"), shape.into()));
        if layer > 0 {
            for name in ["attn_norm.weight", "ffn_norm.weight"] {
                add(name, &[16]);
            }
            for (name, shape) in
                [("attn_q", [16, 16]), ("attn_k", [16, 8]), ("attn_v", [16, 8]), ("attn_output", [16, 16])]
            {
                add(&format!("{name}.weight"), &shape);
            }
            for (name, shape) in [("ffn_gate", [16, 24]), ("ffn_up", [16, 24]), ("ffn_down", [24, 16])] {
                add(&format!("{name}.weight"), &shape);
            }
        }
        if architecture == "qwen2" {
            for (name, width) in [("attn_q.bias", 16), ("attn_k.bias", 8), ("attn_v.bias", 8)] {
                add(name, &[width]);
            }
        } else {
            add("attn_q_norm.weight", &[8]);
            add("attn_k_norm.weight", &[8]);
        }
        if architecture == "gemma3" {
            add("post_attention_norm.weight", &[16]);
            add("post_ffw_norm.weight", &[16]);
        }
        for (name, shape) in added {
            writer = writer.tensor_f32(&name, &shape, &vec![1.0; shape.iter().product::<u64>() as usize]);
        }
    }
    writer
}

#[test]
fn variants_that_need_other_arithmetic_are_refused_by_name() {
    for other in ["gemma", "gemma2", "gemma3n", "qwen2moe", "qwen3moe", "qwen2vl", "clip"] {
        config_refused(
            tiny_llama(3).architecture(other),
            ErrorKind::Unsupported,
            &[other, "llama, qwen2, qwen3, gemma3"],
        );
    }
    let read = |writer: GgufWriter| ModelConfig::from_gguf(&Gguf::parse(writer.build()).unwrap()).unwrap();
    for name in ["qwen2", "qwen3", "gemma3"] {
        let with = |key: &str, value: V| family(name, 1).key(&format!("{name}.{key}"), value);
        let config = read(family(name, 1));
        assert_eq!((config.architecture.name, config.rope.pairing), (name, Pairing::HalfSplit));
        assert_eq!((config.sliding, config.attention_scale), (None, 1.0 / 8f32.sqrt()));
        assert_eq!(read(with("attention.scale", V::F32(0.25))).attention_scale, 0.25);
        config_refused(with("expert_count", V::U32(8)), ErrorKind::Unsupported, &["8 experts"]);
        for cap in ["attn_logit_softcapping", "final_logit_softcapping"] {
            config_refused(with(cap, V::F32(30.0)), ErrorKind::Unsupported, &[cap, "30"]);
        }
        let tower = family(name, 1).tensor_f32("v.patch_embd.weight", &[4], &[0.0; 4]);
        config_refused(tower, ErrorKind::Unsupported, &["v.patch_embd.weight", name]);
        let window = |tokens| with("attention.sliding_window", V::U32(tokens));
        if name == "gemma3" {
            assert_eq!(read(window(32)).sliding.unwrap().window, 32);
            assert_eq!(read(window(0)).sliding, None);
        } else {
            config_refused(window(32), ErrorKind::Unsupported, &["sliding_window", "32", name]);
            // A window as long as the context, or none, cuts nothing off.
            assert_eq!((read(window(128)).sliding, read(window(0)).sliding), (None, None));
        }
        let lacking = if name == "qwen2" { "blk.0.attn_k.bias" } else { "blk.0.attn_k_norm.weight" };
        config_refused(family(name, 1).without_tensor(lacking), ErrorKind::File, &[lacking]);
    }
}

#[test]
fn gemmas_layers_scale_and_bases() {
    let read = |writer: GgufWriter| ModelConfig::from_gguf(&Gguf::parse(writer.build()).unwrap()).unwrap();
    let with = |layers| family("gemma3", layers).key("gemma3.attention.sliding_window", V::U32(32));
    let scaled = with(13)
        .key("gemma3.rope.freq_base", V::F32(1e6))
        .key("gemma3.rope.scaling.type", "linear")
        .key("gemma3.rope.scaling.factor", V::F32(8.0));
    let config = read(scaled);
    let full: Vec<usize> = (0..13).filter(|&layer| !config.slides(layer)).collect();
    assert_eq!(full, [5, 11]);
    assert_eq!((config.rope.base, &config.rope.scaling), (1e6, &RopeScaling::Linear { factor: 8.0 }));
    let local = &config.sliding.as_ref().unwrap().rope;
    assert_eq!((local.base, &local.scaling, local.dim_count), (10_000.0, &RopeScaling::None, 8));
    assert_eq!(config.embedding_scale(), 4.0);
    // 11 layers hold 32 tokens, 2 hold the context of 128, at 32 bytes a token and layer.
    assert_eq!(config.kv_bytes_of_context_f16(), 32 * (11 * 32 + 2 * 128));
    let every = read(with(4).key("gemma3.attention.sliding_window_pattern", V::U32(2)));
    assert_eq!([0, 1, 2, 3].map(|layer| every.slides(layer)), [true, false, true, false]);
}
