//! GGUF files as strangers write them: odd ones load, wrong ones are errors that name the key or the tensor.
#![cfg(feature = "cli")]

mod config;
#[path = "../support/gguf_writer.rs"]
mod gguf_writer;

use gguf_writer::{GgufWriter, V, tiny_llama};
use kvarto::model::config::ModelConfig;
use kvarto::model::gguf::{GgmlType, Gguf, dequantize};
use kvarto::{Error, ErrorKind};

/// The file must be refused with `kind`, and the message must hold every one of `words`.
#[track_caller]
fn refused(bytes: Vec<u8>, kind: ErrorKind, words: &[&str]) {
    says(Gguf::parse(bytes).map(|_| ()), kind, words);
}

#[track_caller]
fn config_refused(writer: GgufWriter, kind: ErrorKind, words: &[&str]) {
    let gguf = Gguf::parse(writer.build()).expect("the file itself is well-formed");
    says(ModelConfig::from_gguf(&gguf).map(|_| ()), kind, words);
}

#[track_caller]
fn says(result: Result<(), Error>, kind: ErrorKind, words: &[&str]) {
    let error = result.expect_err("must be refused");
    assert_eq!(error.kind(), kind, "{error}");
    for word in words {
        assert!(error.message().contains(word), "{word:?} is not in {error}");
    }
    assert!(!error.remedy().is_empty(), "no remedy: {error}");
}

fn small() -> GgufWriter {
    GgufWriter::new(3)
        .key("general.architecture", "llama")
        .key("list", V::Strs(vec!["a".into(), String::new()]))
        .tensor_f32("one", &[2, 2], &[1.0, 2.0, 3.0, 4.0])
        .tensor_f32("two", &[8], &[0.5; 8])
}

#[test]
fn reads_what_was_written_in_both_versions() {
    for version in [2, 3] {
        let gguf = Gguf::parse(
            small()
                .key("u8", V::U8(7))
                .key("i64", V::I64(7))
                .key("f64", V::F64(0.5))
                .key("yes", V::Bool(true))
                .key("minus", V::I8(-1))
                .build()
                .tap_version(version),
        )
        .unwrap();
        assert_eq!(gguf.version(), version);
        assert_eq!((gguf.u32("u8").unwrap(), gguf.u32("i64").unwrap()), (7, 7));
        assert_eq!(gguf.f32("f64").unwrap(), 0.5);
        assert!(gguf.bool("yes").unwrap());
        assert_eq!(gguf.array_str("list").unwrap(), ["a", ""]);
        says(gguf.u32("minus").map(|_| ()), ErrorKind::File, &["`minus`", "-1"]);
        says(gguf.u32("none").map(|_| ()), ErrorKind::File, &["`none`", "missing"]);
        says(gguf.str("u8").map(|_| ()), ErrorKind::File, &["`u8`", "string"]);
        let one = gguf.tensor("one").unwrap();
        assert_eq!((one.ty, one.elements(), one.byte_len()), (GgmlType::F32, 4, 16));
        assert_eq!(dequantize(one, gguf.tensor_bytes(one).unwrap()).unwrap(), [1.0, 2.0, 3.0, 4.0]);
        says(gguf.tensor("three").map(|_| ()), ErrorKind::File, &["`three`"]);
    }
}

trait TapVersion {
    fn tap_version(self, version: u32) -> Self;
}

impl TapVersion for Vec<u8> {
    fn tap_version(mut self, version: u32) -> Self {
        self[4..8].copy_from_slice(&version.to_le_bytes());
        self
    }
}

#[test]
fn alignment_is_a_power_of_two_from_eight() {
    for wrong in [0, 3, 1, 4, 24] {
        refused(small().alignment(wrong).build(), ErrorKind::File, &["general.alignment", &wrong.to_string()]);
    }
    for right in [8, 32, 64, 4096] {
        let gguf = Gguf::parse(small().alignment(right).build()).unwrap();
        let two = gguf.tensor("two").unwrap();
        assert_eq!(two.file_offset() % u64::from(right), 0);
        assert_eq!(dequantize(two, gguf.tensor_bytes(two).unwrap()).unwrap(), [0.5; 8]);
    }
    refused(small().key("general.alignment", V::U64(1 << 40)).build(), ErrorKind::File, &["general.alignment"]);
    refused(small().key("general.alignment", "32").build(), ErrorKind::File, &["general.alignment"]);
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let whole = small().build();
    Gguf::parse(whole.clone()).unwrap();
    for length in 0..whole.len() {
        assert!(Gguf::parse(whole[..length].to_vec()).is_err(), "cut at {length} of {}", whole.len());
    }
}

#[test]
fn any_single_wrong_byte_is_an_answer_not_a_panic() {
    let whole = tiny_llama(3).without("tokenizer.ggml.tokens").without("tokenizer.ggml.token_type").build();
    let head = 1600.min(whole.len());
    for at in 0..head {
        for flip in [0x01, 0x80, 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            if let Ok(gguf) = Gguf::parse(bytes) {
                let _ = ModelConfig::from_gguf(&gguf);
                for tensor in gguf.tensors() {
                    let _ = gguf.tensor_bytes(tensor).and_then(|b| dequantize(tensor, b));
                }
            }
        }
    }
}

#[test]
fn names_and_keys_are_unique() {
    refused(small().tensor_f32("one", &[1], &[0.0]).build(), ErrorKind::File, &["tensor `one`", "twice"]);
    refused(small().key("list", V::U8(1)).build(), ErrorKind::File, &["key `list`", "twice"]);
}

#[test]
fn offsets_are_checked_without_overflow() {
    for offset in [u64::MAX, u64::MAX - 31, u64::MAX - 63, 1 << 63, 1 << 40] {
        refused(small().at_offset(offset).build(), ErrorKind::File, &["`two`", &offset.to_string()]);
    }
    refused(small().at_offset(33).build(), ErrorKind::File, &["`two`", "33", "alignment"]);
    let huge = [1 << 32, 1 << 32, 1 << 32];
    refused(small().tensor("huge", 0, &huge, vec![]).build(), ErrorKind::File, &["`huge`"]);
    refused(small().tensor("huge", 0, &[1 << 62], vec![]).build(), ErrorKind::File, &["`huge`"]);
    refused(small().tensor("none", 0, &[0], vec![]).build(), ErrorKind::File, &["`none`"]);
    refused(small().tensor("flat", 0, &[1; 5], vec![0; 4]).build(), ErrorKind::File, &["`flat`", "5 dimensions"]);
    refused(small().tensor("rows", 2, &[33], vec![0; 64]).build(), ErrorKind::File, &["`rows`", "33", "Q4_0"]);
}

#[test]
fn counts_and_lengths_are_held_against_the_file_before_anything_is_allocated() {
    for absurd in [u64::MAX, 1 << 60, 1 << 33] {
        refused(small().claiming(Some(absurd), None).build(), ErrorKind::File, &["tensor table", &absurd.to_string()]);
        refused(small().claiming(None, Some(absurd)).build(), ErrorKind::File, &["metadata", &absurd.to_string()]);
        for element in [0u32, 4, 8, 12] {
            let mut array = element.to_le_bytes().to_vec();
            array.extend(absurd.to_le_bytes());
            let file = small().key("long", V::Raw(9, array)).build();
            refused(file, ErrorKind::File, &["`long`", &absurd.to_string()]);
        }
        let text = V::Raw(8, absurd.to_le_bytes().to_vec());
        refused(small().key("text", text).build(), ErrorKind::File, &["`text`", &absurd.to_string()]);
    }
}

#[test]
fn values_of_no_known_kind_are_named() {
    refused(small().key("odd", V::Raw(13, vec![])).build(), ErrorKind::File, &["`odd`", "13"]);
    refused(small().key("maybe", V::Raw(7, vec![2])).build(), ErrorKind::File, &["`maybe`", "2"]);
    let mut nested = 9u32.to_le_bytes().to_vec();
    nested.extend(1u64.to_le_bytes());
    refused(small().key("nest", V::Raw(9, nested)).build(), ErrorKind::Unsupported, &["`nest`"]);
    let mut text = 2u64.to_le_bytes().to_vec();
    text.extend([0xFF, 0xFE]);
    refused(small().key("latin", V::Raw(8, text)).build(), ErrorKind::File, &["`latin`", "UTF-8"]);
}

#[test]
fn names_cannot_steer_a_terminal() {
    refused(small().tensor_f32("\u{1b}[2J", &[1], &[0.0]).build(), ErrorKind::File, &["tensor 2", "\\u{1b}[2J"]);
    refused(small().key("a\nb", V::U8(0)).build(), ErrorKind::File, &["key 2", "a\\nb"]);
    refused(small().key("", V::U8(0)).build(), ErrorKind::File, &["key 2"]);
}

#[test]
fn the_real_model_is_what_it_says() {
    fn shared<T: Send + Sync + Clone>(_: &T) {}
    let Some(path) = kvarto::model::store::resolve_cached("smollm2-135m") else {
        let required = std::env::var("KVARTO_REQUIRE").is_ok_and(|list| list.split(',').any(|name| name == "model"));
        assert!(!required, "KVARTO_REQUIRE names model, and smollm2-135m is not in the cache");
        eprintln!("skipped: smollm2-135m is not in the cache; run `kvarto models fetch smollm2-135m`");
        return;
    };
    let gguf = Gguf::open(path).unwrap();
    shared(&gguf);
    let config = ModelConfig::from_gguf(&gguf).unwrap();
    assert_eq!((config.layers, config.hidden, config.ffn, config.q_heads, config.kv_heads), (30, 576, 1536, 9, 3));
    assert_eq!((config.head_dim, config.vocab, config.context_length), (64, 49152, 8192));
    assert_eq!((config.tied_output, config.rope.base, config.rope.dim_count), (true, 100_000.0, 64));
    assert_eq!(config.kv_bytes_per_token_f16(), 23_040);
    for tensor in gguf.tensors().iter().take(12) {
        let values = dequantize(tensor, gguf.tensor_bytes(tensor).unwrap()).unwrap();
        assert_eq!(values.len() as u64, tensor.elements());
        assert!(values.iter().all(|x| x.is_finite() && x.abs() < 1e3), "{}", tensor.name);
    }
}

#[test]
fn other_files_are_refused_by_name() {
    refused(b"PK\x03\x04 a zip".to_vec(), ErrorKind::File, &["not a GGUF"]);
    refused(small().build().tap_version(1), ErrorKind::Unsupported, &["version 1"]);
    refused(small().build().tap_version(4), ErrorKind::Unsupported, &["version 4"]);
    refused(small().build().tap_version(3u32.swap_bytes()), ErrorKind::Unsupported, &["big-endian"]);
    for parts in [V::U16(2), V::U32(2), V::I64(2), V::Str("2".into())] {
        refused(small().key("split.count", parts).build(), ErrorKind::Unsupported, &["split", "2"]);
    }
    refused(small().key("split.count", "many").build(), ErrorKind::File, &["split.count", "many"]);
    Gguf::parse(small().key("split.count", V::U16(1)).build()).unwrap();
}

#[test]
fn an_unknown_type_is_refused_only_when_used() {
    let gguf = Gguf::parse(small().tensor("new", 4242, &[3, 5], vec![0; 16]).build()).unwrap();
    let tensor = gguf.tensor("new").unwrap();
    assert_eq!(tensor.ty.to_string(), "unsupported type 4242");
    says(gguf.tensor_bytes(tensor).map(|_| ()), ErrorKind::Unsupported, &["`new`", "4242"]);
    let writer =
        tiny_llama(3).without_tensor("output_norm.weight").tensor("output_norm.weight", 4242, &[16], vec![0; 64]);
    config_refused(writer, ErrorKind::Unsupported, &["output_norm.weight", "4242"]);
}

#[test]
fn a_missing_file_and_a_folder_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    says(Gguf::open(folder.path()).map(|_| ()), ErrorKind::File, &[]);
    says(Gguf::open(folder.path().join("none.gguf")).map(|_| ()), ErrorKind::File, &["none.gguf"]);
    let path = folder.path().join("small.gguf");
    std::fs::write(&path, small().build()).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!(gguf.sha256(), Gguf::parse(small().build()).unwrap().sha256());
    std::fs::write(&path, b"").unwrap();
    says(Gguf::open(&path).map(|_| ()), ErrorKind::File, &["small.gguf"]);
}

#[test]
fn types_that_are_spread_out_at_load_keep_every_value() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/quants.json");
    let golden: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let hex = |text: &serde_json::Value| -> Vec<u8> {
        let digits = text.as_str().unwrap();
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    };
    for (name, code) in [("Q5_0", 6), ("Q5_1", 7), ("Q4_K", 12), ("Q5_K", 13), ("Q6_K", 14)] {
        let blocks = hex(&golden[name]["blocks"]);
        let values: Vec<f32> =
            hex(&golden[name]["values"]).as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
        let file = GgufWriter::new(3).key("general.architecture", "llama").tensor("t", code, &[512], blocks.clone());
        let gguf = Gguf::parse(file.build()).unwrap();
        let tensor = gguf.tensor("t").unwrap();
        let ours = dequantize(tensor, gguf.tensor_bytes(tensor).unwrap()).unwrap();
        assert_eq!(ours.len(), values.len());
        for (at, (ours, wanted)) in ours.iter().zip(&values).enumerate() {
            // Bit for bit, but for the sign of a zero.
            assert!(
                ours.to_bits() == wanted.to_bits() || (*ours == 0.0 && *wanted == 0.0),
                "{name} {at}: {ours} {wanted}"
            );
        }
    }
}
