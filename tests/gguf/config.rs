//! What a model's keys and tensors say of its shape.

use crate::config_refused;
use crate::gguf_writer::{GgufWriter, V, tiny_llama};
use kvarto::ErrorKind;
use kvarto::model::config::ModelConfig;
use kvarto::model::gguf::Gguf;
use kvarto::num::rope::{Pairing, RopeScaling};

#[test]
fn the_tiny_model_has_the_shape_it_was_given() {
    let config = ModelConfig::from_gguf(&Gguf::parse(tiny_llama(2).build()).unwrap()).unwrap();
    assert_eq!((config.layers, config.hidden, config.ffn, config.q_heads, config.kv_heads), (1, 16, 24, 2, 1));
    assert_eq!((config.head_dim, config.vocab, config.context_length), (8, 260, 128));
    assert!(config.tied_output);
    assert_eq!((config.rope.dim_count, config.rope.base), (8, 10_000.0));
    assert_eq!((config.rope.pairing, &config.rope.scaling), (Pairing::Adjacent, &RopeScaling::None));
    assert_eq!(config.kv_bytes_per_token_f16(), 32);
}

#[test]
fn output_is_tied_only_when_absent() {
    let writer = tiny_llama(3).tensor_f32("output.weight", &[16, 260], &[0.0; 16 * 260]);
    assert!(!ModelConfig::from_gguf(&Gguf::parse(writer.build()).unwrap()).unwrap().tied_output);
    let writer = tiny_llama(3).tensor_f32("output.weight", &[16, 100], &[0.0; 1600]);
    config_refused(writer, ErrorKind::Shape, &["output.weight", "[16, 100]", "[16, 260]"]);
}

#[test]
fn wrong_shapes_and_counts_are_named() {
    let with = |key: &str, value: V| tiny_llama(3).set(key, value);
    config_refused(with("general.architecture", "mamba".into()), ErrorKind::Unsupported, &["mamba", "llama"]);
    config_refused(with("llama.attention.head_count", V::U32(0)), ErrorKind::File, &["head_count", "is 0"]);
    config_refused(with("llama.attention.head_count_kv", V::U32(0)), ErrorKind::File, &["head_count_kv", "is 0"]);
    config_refused(with("llama.attention.head_count", V::U32(3)), ErrorKind::File, &["head_count", "3"]);
    config_refused(with("llama.attention.head_count_kv", V::U32(3)), ErrorKind::File, &["head_count", "multiple"]);
    config_refused(with("llama.attention.key_length", V::U32(1 << 20)), ErrorKind::File, &["key_length"]);
    config_refused(with("llama.attention.key_length", V::U32(4)), ErrorKind::Unsupported, &["4", "8"]);
    config_refused(with("llama.block_count", V::U32(0)), ErrorKind::File, &["block_count"]);
    config_refused(
        with("llama.block_count", V::U32(2)),
        ErrorKind::File,
        &["block_count` 2", "blk.1.attn_norm.weight"],
    );
    config_refused(with("llama.vocab_size", V::U32(999)), ErrorKind::Shape, &["vocab_size", "999", "260"]);
    config_refused(with("llama.expert_count", V::U32(8)), ErrorKind::Unsupported, &["8 experts"]);
    config_refused(with("llama.rope.dimension_count", V::U32(7)), ErrorKind::File, &["dimension_count", "7"]);
    config_refused(with("llama.rope.dimension_count", V::U32(9)), ErrorKind::File, &["dimension_count", "9"]);
    config_refused(with("llama.rope.freq_base", V::F32(f32::NAN)), ErrorKind::File, &["freq_base", "NaN"]);
    config_refused(with("llama.rope.scaling.type", "longrope".into()), ErrorKind::Unsupported, &["longrope"]);
    config_refused(tiny_llama(3).without("llama.block_count"), ErrorKind::File, &["block_count", "missing"]);
    config_refused(tiny_llama(3).without_tensor("blk.0.ffn_up.weight"), ErrorKind::File, &["blk.0.ffn_up.weight"]);
    let bias = tiny_llama(3).tensor_f32("blk.0.attn_q.bias", &[16], &[0.0; 16]);
    config_refused(bias, ErrorKind::Unsupported, &["blk.0.attn_q.bias"]);
}

/// A file with every key of the shape stated; each key, changed alone, must be refused by name with its value.
#[test]
fn no_key_of_the_shape_is_believed_alone() {
    let whole = || {
        tiny_llama(3)
            .key("llama.attention.key_length", V::U32(8))
            .key("llama.attention.value_length", V::U32(8))
            .key("llama.rope.dimension_count", V::U32(8))
            .key("llama.rope.freq_base", V::F32(10_000.0))
            .key("llama.rope.scaling.type", "yarn")
            .key("llama.rope.scaling.factor", V::F32(2.0))
            .key("llama.rope.scaling.original_context_length", V::U32(64))
            .key("llama.vocab_size", V::U32(260))
    };
    let config = ModelConfig::from_gguf(&Gguf::parse(whole().build()).unwrap()).unwrap();
    assert_eq!((config.head_dim, config.rope.dim_count, config.context_length), (8, 8, 128));
    let counts: [(&str, u32, &[u32]); 11] = [
        ("block_count", 1, &[]),
        ("embedding_length", 16, &[]),
        ("feed_forward_length", 24, &[]),
        ("attention.head_count", 2, &[]),
        ("attention.head_count_kv", 1, &[]),
        ("attention.key_length", 8, &[]),
        ("attention.value_length", 8, &[]),
        ("rope.dimension_count", 8, &[]),
        // Fewer tokens than rows are padding, and a shorter context is a choice.
        ("vocab_size", 260, &[0, 1, 130, 258, 259]),
        ("context_length", 128, &[64, 126, 127, 129, 130, 256]),
        ("rope.scaling.original_context_length", 64, &[1, 32, 62, 63, 65, 66, 128]),
    ];
    for (name, right, harmless) in counts {
        let (half, double) = (right / 2, right * 2);
        let near = [right - 1, right + 1, right.saturating_sub(2), right + 2, half, double];
        for value in [0, 1, 1 << 20, 1 << 25, 1 << 31, u32::MAX].into_iter().chain(near) {
            if value == right || harmless.contains(&value) {
                continue;
            }
            let key = format!("llama.{name}");
            let gguf = Gguf::parse(whole().set(&key, V::U32(value)).build()).unwrap();
            let error = ModelConfig::from_gguf(&gguf).expect_err(&format!("{key} {value}"));
            assert!(error.message().contains(&key), "{key} {value}: {error}");
            assert!(error.message().contains(&value.to_string()), "{key} {value}: {error}");
            assert!(!error.remedy().is_empty(), "{error}");
        }
    }
    for (name, value) in [
        ("rope.freq_base", 1.0f32),
        ("rope.freq_base", f32::INFINITY),
        ("rope.scaling.factor", 1e-4),
        ("rope.scaling.factor", -2.0),
        ("attention.layer_norm_rms_epsilon", 0.0),
        ("attention.layer_norm_rms_epsilon", 0.5),
        ("attention.layer_norm_rms_epsilon", -1e-5),
    ] {
        let kind = ErrorKind::File;
        config_refused(
            whole().set(&format!("llama.{name}"), V::F32(value)),
            kind,
            &[&format!("llama.{name}"), "wanted"],
        );
    }
    // A whole block that the count leaves out.
    let more = whole().tensor_f32("blk.1.attn_norm.weight", &[16], &[1.0; 16]);
    config_refused(more, ErrorKind::File, &["blk.1.attn_norm.weight", "llama.block_count` 1"]);
}

#[test]
fn head_counts_may_come_layer_by_layer() {
    let read = |writer: GgufWriter| ModelConfig::from_gguf(&Gguf::parse(writer.build()).unwrap());
    let counts = |kv: Vec<i32>| tiny_llama(3).set("llama.attention.head_count_kv", V::I32s(kv));
    assert_eq!(read(counts(vec![1])).unwrap().kv_heads, 1);
    config_refused(counts(vec![1, 1]), ErrorKind::File, &["head_count_kv", "2 values", "1 layers"]);
    config_refused(counts(vec![-1]), ErrorKind::File, &["head_count_kv"]);
    // Absent: as many KV heads as query heads, so K and V are too narrow here.
    config_refused(tiny_llama(3).without("llama.attention.head_count_kv"), ErrorKind::Shape, &["attn_k"]);
}

#[test]
fn rope_scaling_is_read() {
    let read = |writer: GgufWriter| ModelConfig::from_gguf(&Gguf::parse(writer.build()).unwrap()).unwrap().rope;
    let linear = tiny_llama(3).key("llama.rope.scaling.type", "linear").key("llama.rope.scaling.factor", V::F32(4.0));
    assert_eq!(read(linear).scaling, RopeScaling::Linear { factor: 4.0 });
    let old = tiny_llama(3).key("llama.rope.scale_linear", V::F32(2.0));
    assert_eq!(read(old).scaling, RopeScaling::Linear { factor: 2.0 });
    let llama3 = tiny_llama(3).tensor_f32("rope_freqs.weight", &[4], &[1.0, 1.0, 8.0, 8.0]);
    assert_eq!(read(llama3).scaling, RopeScaling::Llama3 { factors: vec![1.0, 1.0, 8.0, 8.0] });
    let yarn = tiny_llama(3)
        .key("llama.rope.scaling.type", "yarn")
        .key("llama.rope.scaling.factor", V::F32(4.0))
        .key("llama.rope.scaling.original_context_length", V::U32(4096))
        .set("llama.context_length", V::U32(16_384));
    let RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, attn_factor } = read(yarn).scaling else {
        panic!("not yarn")
    };
    assert_eq!((factor, original_context, beta_fast, beta_slow), (4.0, 4096.0, 32.0, 1.0));
    // YaRN's temperature correction, 0.1 ln(factor) + 1, times the file's own factor of 1.
    let attn_factor = attn_factor.expect("the reader fills it in");
    assert!((attn_factor - 1.138_629_4).abs() < 1e-6, "{attn_factor}");
    config_refused(tiny_llama(3).tensor_f32("rope_freqs.weight", &[3], &[1.0; 3]), ErrorKind::Shape, &["rope_freqs"]);
    config_refused(tiny_llama(3).tensor_f32("rope_freqs.weight", &[4], &[0.0; 4]), ErrorKind::File, &["rope_freqs"]);
}
