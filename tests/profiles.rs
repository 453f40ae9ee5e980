//! Profiles as files: those that come with the crate, what is refused and where, and what `plan` counts under them.

use kvarto::ErrorKind;
use kvarto::engine::Registry;
use kvarto::footprint::{Estimator, NamedShape};
use kvarto::parameters::Value;
use kvarto::profile::{Draft, Profile, Setting, builtin};

fn load(word: &str) -> Profile {
    Profile::load(word, &Registry::builtin().names()).unwrap_or_else(|e| panic!("{word}: {e}"))
}

#[test]
fn every_profile_reads_prints_and_reads_back() {
    let registry = Registry::builtin();
    assert!(builtin::TEXTS.len() >= 13);
    for (name, _) in builtin::TEXTS {
        let profile = load(name);
        assert_eq!(profile.name, *name);
        assert!(!profile.summary.is_empty() && !profile.source.is_empty(), "{name}");
        let again = Profile::parse(&profile.to_toml(), "printed", &registry.names()).unwrap();
        assert_eq!(again, profile, "{name}");
        let exact = (profile.exact_sink_tokens, profile.exact_tail_tokens);
        assert_eq!(exact, if name.ends_with("-paper") { (0, 0) } else { (64, 128) }, "{name}");
    }
    let shape = NamedShape::parse("qwen3-0.6b", 64).unwrap().shape;
    let bits = |name: &str| {
        let estimator = Estimator::new(&shape, &load(name), &registry).unwrap();
        estimator.at(1 << 20).resident_bits_per_value().unwrap()
    };
    // Layout arithmetic at a head size of 128: codes and scales by value, 1 MiB tokens, so that the tail hardly counts.
    for (name, wanted) in [
        ("dense", 16.0),
        ("fp8", 8.0 + 16.0 * 8.0 / (64.0 * 128.0)),
        ("tq4", 4.125),
        ("tq3", 3.125),
        ("tq2", 2.125),
        ("k4v3", 3.625),
        ("q8_0", 8.5),
        ("q4_0", 4.5),
        ("q3_affine", 3.25),
    ] {
        assert!((bits(name) - wanted).abs() < 0.02, "{name}: {} bits, {wanted} wanted", bits(name));
    }
    let k8v3 = load("k8v3");
    assert_eq!((k8v3.k.as_str(), k8v3.v.as_str()), ("fp8", "tq3"));
}

#[test]
fn odd_texts_print_and_read_back() {
    let names = Registry::builtin();
    let mut profile = Profile::formats("fp8", "tq3");
    profile.name = "a \"b\" \\ \u{7f}\n\té".into();
    profile.summary = "'''".into();
    (profile.k_basis, profile.v_basis) = (Some("mean".into()), None);
    let again = Profile::parse(&profile.to_toml(), "printed", &names.names()).unwrap();
    assert_eq!(again, profile);
}

const GOOD: &str = r#"schema = 1
name = "mine"
[kv]
k = "fp8"
v = "tq3"
[policy]
name = "age-anchor"
recent_tokens = 640
[[override]]
layers = "0..2,-2.."
kv.k = "f16"
[[override]]
layers = "*"
heads = "0"
kv = { v = "fp8" }
"#;

#[track_caller]
fn refused(text: &str, place: &str, words: &[&str]) {
    let error = Profile::parse(text, "mine.toml", &Registry::builtin().names()).expect_err(text);
    assert_eq!(error.kind(), ErrorKind::Usage);
    let whole = error.to_string();
    assert!(error.message().starts_with(&format!("mine.toml:{place}: ")), "{whole}");
    words.iter().for_each(|word| assert!(whole.contains(word), "{word:?} in {whole}"));
    assert!(!error.remedy().is_empty(), "{whole}");
}

#[test]
fn faults_name_file_line_column_and_the_nearest_word() {
    let profile = Profile::parse(GOOD, "mine.toml", &Registry::builtin().names()).unwrap();
    let recent = profile.policy_parameters.iter().find(|(name, _)| *name == "recent_tokens");
    assert_eq!(recent, Some(("recent_tokens", &Value::Integer(640))));
    let with = |from: &str, to: &str| {
        assert!(GOOD.contains(from), "{from}");
        GOOD.replacen(from, to, 1)
    };
    refused(&with("k = \"fp8\"", "k = \"fp9\""), "4:5", &["fp9", "did you mean `fp8`"]);
    refused(&with("v = \"tq3\"", "v = 3"), "5:5", &["a whole number"]);
    refused(&with("v = \"tq3\"", "v = \"tq3\"\npage_tokns = 64"), "6:1", &["did you mean `page_tokens`"]);
    refused(&with("v = \"tq3\"", "v = \"tq3\"\npage_tokens = 48"), "6:15", &["48", "16, 32, 64 or 128"]);
    refused(&with("v = \"tq3\"", "v = \"tq3\"\nexact_tail_tokens = -1"), "6:21", &["-1"]);
    refused(&with("v = \"tq3\"", "v = \"tq3\"\nbasis = \"hadamart\""), "6:9", &["did you mean `hadamard`"]);
    refused(&with("age-anchor", "age-ancor"), "7:8", &["did you mean `age-anchor`"]);
    refused(&with("recent_tokens", "recent_token"), "8:16", &["recent_token", "did you mean `recent_tokens`"]);
    refused(&with("640", "-640"), "8:17", &["recent_tokens of policy age-anchor", "-640"]);
    refused(&with("640", "640\nold_k = \"tq9\""), "9:9", &["old_k", "tq9"]);
    refused(&with("[policy]", "[selector]\nname = \"dens\"\n[policy]"), "7:8", &["did you mean `dense`"]);
    refused(&with("[policy]", "[selector]\nname = \"dense\"\nx = 1\n[policy]"), "8:5", &["no parameter \"x\""]);
    refused(&with("0..2,-2..", "0..2,b"), "10:10", &["not a range"]);
    refused(&with("kv.k = \"f16\"", "kv.q = \"f16\""), "11:4", &["\"q\""]);
    refused(&with("kv.k = \"f16\"", ""), "9:1", &["changes nothing"]);
    refused(&with("schema = 1", "schema = 2"), "1:10", &["schema = 1"]);
    refused(&with("name = \"mine\"\n", ""), "1:1", &["name is missing"]);
    refused(&with("[kv]", "[kw]"), "3:2", &["did you mean `kv`"]);
    refused(&with("k = \"fp8\"", "k = "), "4:5", &[]);
    refused(&with("k = \"fp8\"", "k = \"fp8\"\nk = \"fp8\""), "5:1", &[]);
    refused("", "1:1", &["schema"]);
}

#[test]
fn settings_are_toml_or_bare_words() {
    let registry = Registry::builtin();
    let set = |texts: &[&str]| {
        let mut draft = Draft::load("minima-kv")?;
        texts.iter().try_for_each(|text| draft.set(&Setting::parse(text)?))?;
        draft.read(&registry.names())
    };
    let p =
        set(&["kv.k=k16", "kv.k=tq4", "kv.exact_tail_tokens=0", "policy.recent_tokens = 1024", "name='x y'"]).unwrap();
    assert_eq!((p.k.as_str(), p.exact_tail_tokens, p.name.as_str()), ("tq4", 0, "x y"));
    // Another policy does not take over the parameters of the one before.
    let p = set(&["policy.name=streaming", "policy.recent_tokens=512"]).unwrap();
    let given: Vec<_> = p.policy_parameters.iter().collect();
    assert_eq!(given, [("sink_tokens", &Value::Integer(64)), ("recent_tokens", &Value::Integer(512))]);
    for (text, words) in [
        ("policy.recent_tokens=", "no TOML value"),
        ("policy.recent_tokens", "no = in it"),
        ("kv.k=a b", "quote"),
        ("=1", "no key"),
        ("kv=1", "a table"),
        ("policy.recent_token=1", "did you mean `recent_tokens`"),
        ("policy.recent_tokens=many", "a text stands there"),
        ("kv.k=fp9", "did you mean `fp8`"),
        ("name.x=1", "not a table"),
        ("policy.young_share=nan", "out of range"),
        ("policy.anchor_stride=2", "young_share"),
    ] {
        let error = set(&[text]).expect_err(text).to_string();
        assert!(error.contains(words) && error.contains("--set"), "{text}: {error}");
    }
}

#[test]
fn files_are_read_and_missing_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, GOOD).unwrap();
    assert_eq!(load(path.to_str().unwrap()).name, "mine");
    let names = Registry::builtin();
    let error = Profile::load("nowhere.toml", &names.names()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::File);
    let error = Profile::load("minima-kw", &names.names()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.remedy().contains("did you mean `minima-kv`"), "{error}");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert_eq!(Profile::load(path.to_str().unwrap(), &names.names()).unwrap_err().kind(), ErrorKind::File);
}

/// arXiv 2608.23834's figures at 2 x 59,008 tokens of Qwen3.6-27B, whose 16 attention layers take 64 KiB a token at 16
/// bits.
#[test]
fn the_published_bytes_a_token_are_reached() {
    let (registry, shape) = (Registry::builtin(), NamedShape::parse("qwen3.6-27b", 64).unwrap().shape);
    let each = |name: &str, tokens: u64| {
        let footprint = Estimator::new(&shape, &load(name), &registry).unwrap().at(tokens);
        (footprint.slot_bytes() as f64 / tokens as f64 / 1024.0, footprint.share_of("fp8"))
    };
    let (kib, share) = each("minima-kv-paper", 59_008);
    assert!(share <= 0.3056 && share > 0.305, "{share}");
    assert_eq!(format!("{kib:.2} {:.2} {:.2}", 64.0 / kib, 32.0 / kib), "18.29 3.50 1.75");
    let exact = Profile { exact_sink_tokens: 64, exact_tail_tokens: 128, ..load("minima-kv-paper") };
    let footprint = Estimator::new(&shape, &exact, &registry).unwrap().at(59_008);
    let kib = footprint.slot_bytes() as f64 / 59_008.0 / 1024.0;
    assert!(footprint.share_of("fp8") <= 0.3056);
    assert!(kib <= 18.5 && 64.0 / kib >= 3.46, "{kib}");
    // Streaming does not grow.
    assert_eq!(each("streaming", 1 << 20).0 * (1 << 20) as f64, each("streaming", 1 << 16).0 * (1 << 16) as f64);
}
