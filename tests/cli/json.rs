//! `generate --json`: every key of the documented output, with its type, over many settings of the cache.

use super::gguf_writer::{GgufWriter, tiny_llama_of};
use super::{Said, generate, golden_prompt, support};
use serde_json::Value;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    Whole,
    /// Null when there is nothing to state.
    WholeOrNull,
    NumberOrNull,
    List,
    /// Null, of a run that does without.
    Nothing,
    Object(&'static [(&'static str, Kind)]),
}
use Kind::*;

const KEYS: &[(&str, Kind)] = &[
    ("schema", Whole),
    ("version", Text),
    ("model", Object(&[("name", Text), ("sha256", Text), ("architecture", Text)])),
    ("text", Text),
    ("token_ids", List),
    ("finish_reason", Text),
    ("seed", Whole),
    ("backend", Text),
    ("adapter", Text),
    ("tier", Text),
    ("masked", List),
    ("profile", Text),
    ("kv", Object(&[("k", Text), ("v", Text)])),
    ("basis", Object(&[("k", Text), ("v", Text)])),
    ("basis_ids", Object(&[("k", Text), ("v", Text)])),
    ("page_tokens", Whole),
    ("exact_sink_tokens", Whole),
    ("exact_tail_tokens", Whole),
    ("prompt_tokens", Whole),
    ("new_tokens", Whole),
    ("prefill_tokens_per_s", NumberOrNull),
    ("decode_tokens_per_s", NumberOrNull),
    ("resident_bits_per_value", NumberOrNull),
    ("read_bits_per_value", NumberOrNull),
    ("metadata_bits_per_value", NumberOrNull),
    ("total_bits_per_value", NumberOrNull),
    ("kv_bytes", Object(&[("device", Whole), ("host", Whole), ("disk", Whole)])),
    ("allocator_bytes", Whole),
    ("reserved_bytes", Whole),
    ("peak_host_bytes", WholeOrNull),
    ("peak_device_bytes", WholeOrNull),
    ("pages", List),
    ("routes", List),
    (
        "moves",
        Object(&[
            ("conversions", Whole),
            ("bytes", Whole),
            ("policy_conversions", Whole),
            ("policy_bytes", Whole),
            ("evicted", Whole),
            ("put_off", Whole),
            ("policy_host_s", NumberOrNull),
        ]),
    ),
    ("fallbacks", List),
    ("trace", Nothing),
];

#[track_caller]
fn check(value: &Value, keys: &[(&str, Kind)]) {
    let object = value.as_object().expect("an object");
    for (key, kind) in keys {
        let value = object.get(*key).unwrap_or_else(|| panic!("key {key} is missing: {value:#}"));
        let right = match kind {
            Text => value.is_string(),
            Whole => value.is_u64(),
            WholeOrNull => value.is_u64() || value.is_null(),
            NumberOrNull => value.is_null() || value.as_f64().is_some_and(|x| x.is_finite() && x >= 0.0),
            List => value.is_array(),
            Nothing => value.is_null(),
            Object(keys) => {
                check(value, keys);
                true
            }
        };
        assert!(right, "{key} is {value}, {kind:?} is wanted");
    }
    let known: Vec<&str> = keys.iter().map(|(key, _)| *key).collect();
    assert!(object.keys().all(|key| known.contains(&key.as_str())), "a key without a test: {value:#}");
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let Said { out, .. } = generate(&[arguments, &["--json", "--temperature", "0"]].concat());
    let value: Value = serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"));
    check(&value, KEYS);
    let count = value["token_ids"].as_array().expect("a list").len() as u64;
    assert_eq!(value["new_tokens"].as_u64(), Some(count));
    value
}

#[test]
fn has_every_key_of_its_type() {
    if support::model::path().is_none() {
        return;
    }
    let (prompt, answer) = golden_prompt("plain");
    let value = json(&[&prompt, "--max-tokens", "64"]);
    assert_eq!(value["schema"], 1);
    assert_eq!(value["text"], answer);
    assert_eq!(value["finish_reason"], "length");
    assert_eq!(value["model"]["name"], support::model::NAME);
    assert_eq!(value["model"]["architecture"], "llama");
    assert_eq!(value["model"]["sha256"].as_str().map(str::len), Some(64));
    assert_eq!((value["prompt_tokens"].as_u64(), value["new_tokens"].as_u64()), (Some(20), Some(64)));
    assert_eq!(value["backend"], "cpu");
    assert_eq!(value["fallbacks"], serde_json::json!([]));
    assert_eq!(value["peak_device_bytes"], Value::Null);
    assert!(value["allocator_bytes"].as_u64() <= value["reserved_bytes"].as_u64());
    // 83 tokens lie in two 64-token pages of 16 bits.
    let resident = value["resident_bits_per_value"].as_f64().expect("a number");
    assert!((resident - 16.0 * 128.0 / 83.0).abs() < 1e-6, "{resident}");
    let total = value["total_bits_per_value"].as_f64().expect("a number");
    assert!((total - resident - value["metadata_bits_per_value"].as_f64().expect("a number")).abs() < 1e-9);

    // One token leaves no rate of decoding to state.
    let one = json(&[&prompt, "--max-tokens", "1"]);
    assert_eq!((one["new_tokens"].as_u64(), &one["decode_tokens_per_s"]), (Some(1), &Value::Null));
    assert_eq!(one["read_bits_per_value"], Value::Null);

    let stopped = json(&[&prompt, "--max-tokens", "64", "--stop", "beam"]);
    assert_eq!(stopped["finish_reason"], "stop");
    assert_eq!(stopped["text"], answer[..answer.find("beam").expect("in the text")]);
    let chat = json(&["--chat", "Say hello.", "--max-tokens", "64"]);
    assert_eq!(chat["finish_reason"], "stop");
}

/// The list is what the model recorded: empty where projections run as one product, filled where they cannot.
#[test]
fn tells_what_falls_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let half = |name: &str, shape: &[u64]| {
        let count: u64 = shape.iter().product();
        let bytes = (0..count).flat_map(|i| if i % 2 == 0 { [0, 0x30] } else { [0, 0xb0] }).collect();
        tiny_llama_of(3, 2).without_tensor(name).tensor(name, 1, shape, bytes)
    };
    let said = |name: &str, file: GgufWriter| {
        let path = folder.path().join(name);
        std::fs::write(&path, file.build()).expect("written");
        json(&["ab", "--max-tokens", "2", "--model", path.to_str().expect("UTF-8")])["fallbacks"].clone()
    };
    assert_eq!(said("alike.gguf", tiny_llama_of(3, 2)), serde_json::json!([]));
    // A type of its own is no fallback where nothing is shared.
    assert_eq!(said("down.gguf", half("blk.1.ffn_down.weight", &[24, 16])), serde_json::json!([]));
    let reason = "the file stores them in unlike types";
    let record = |format: &str, wanted: &str, used: &str| {
        serde_json::json!([{"layer": 1, "kernel": "linear",
        "format": format, "wanted": wanted, "used": used, "reason": reason}])
    };
    let q = said("q.gguf", half("blk.1.attn_q.weight", &[16, 16]));
    assert_eq!(q, record("F16, F32, F32", "one product for Q, K and V", "3 products"));
    let up = said("up.gguf", half("blk.1.ffn_up.weight", &[16, 24]));
    assert_eq!(up, record("F32, F16", "one product for gate and up", "2 products"));
}

#[test]
fn says_what_the_cache_was_told() {
    if support::model::path().is_none() {
        return;
    }
    let (prompt, _) = golden_prompt("code");
    let cases: [(&[&str], [&str; 4], [u64; 3]); 9] = [
        (&["--kv", "k=fp8,v=tq3"], ["fp8", "tq3", "none", "hadamard"], [64, 64, 128]),
        (
            &["--kv", "tq3", "--exact-sink", "0", "--exact-tail", "0"],
            ["tq3", "tq3", "hadamard", "hadamard"],
            [64, 0, 0],
        ),
        (&["--kv", "tq3", "--basis", "mean", "--exact-tail", "0"], ["tq3", "tq3", "mean", "mean"], [64, 64, 0]),
        (&["--kv", "f32", "--page-tokens", "16"], ["f32", "f32", "none", "none"], [16, 64, 128]),
        (&["--kv", "v=fp8", "--page-tokens", "128", "--exact-tail", "0"], ["f16", "fp8", "none", "none"], [128, 64, 0]),
        (&["--kv", "k=tq4,v=tq2"], ["tq4", "tq2", "hadamard", "hadamard"], [64, 64, 128]),
        (&["--kv", "k=q8_0,v=q4_0", "--exact-tail", "0"], ["q8_0", "q4_0", "none", "none"], [64, 64, 0]),
        (&["--kv", "q3_affine", "--exact-tail", "0"], ["q3_affine", "q3_affine", "none", "none"], [64, 64, 0]),
        (&["--basis", "hadamard"], ["f16", "f16", "hadamard", "hadamard"], [64, 64, 128]),
    ];
    let mut bits = Vec::new();
    for (arguments, [k, v, k_basis, v_basis], [page, sink, tail]) in cases {
        let value = json(&[&[prompt.as_str(), "--max-tokens", "4"], arguments].concat());
        let said = [&value["kv"]["k"], &value["kv"]["v"], &value["basis"]["k"], &value["basis"]["v"]];
        assert_eq!(said, [k, v, k_basis, v_basis], "{arguments:?}");
        let said = ["page_tokens", "exact_sink_tokens", "exact_tail_tokens"].map(|key| value[key].as_u64());
        assert_eq!(said, [Some(page), Some(sink), Some(tail)], "{arguments:?}");
        bits.push(value["resident_bits_per_value"].as_f64().expect("a number"));
    }
    // 188 tokens in 64-token pages: with no exact tokens two of three are sealed, with the default none is.
    let [default, sealed] = [bits[0], bits[1]];
    assert!(sealed < 0.6 * default, "resident bits: {bits:?}");
}

#[test]
fn a_profile_moves_pages_and_every_format_is_read_by_its_own_kernel() {
    if support::model::path().is_none() {
        return;
    }
    let (prompt, _) = golden_prompt("code");
    let flags = ["--profile", "minima-kv-paper", "--page-tokens", "16", "--set", "policy.recent_tokens=32"];
    let value = json(&[&["--max-tokens", "12", prompt.as_str()], &flags[..]].concat());
    assert_eq!((&value["profile"], &value["exact_tail_tokens"]), (&Value::from("minima-kv-paper"), &Value::from(0)));
    let formats = |list: &Value, count: &str| -> Vec<String> {
        let entries = list.as_array().expect("a list").iter();
        let used = entries.filter(|e| e[count].as_u64().expect("a count") > 0);
        used.map(|e| format!("{}/{}", e["k"].as_str().expect("a name"), e["v"].as_str().expect("a name"))).collect()
    };
    assert_eq!(formats(&value["pages"], "pages"), ["f16/f16", "fp8/fp8", "tq3/tq3"], "{value:#}");
    assert_eq!(formats(&value["routes"], "decode"), ["f16/f16", "fp8/fp8", "tq3/tq3"], "{value:#}");
    assert_eq!(value["fallbacks"], serde_json::json!([]));
    let (moves, old) = (&value["moves"], &value["pages"][2]["pages"]);
    assert_eq!(&moves["policy_conversions"], old, "{value:#}");
    assert!(moves["bytes"].as_u64() > moves["policy_bytes"].as_u64() && moves["evicted"] == 0, "{value:#}");
}
