//! `kvarto calibrate` and what it is for: the program on a small model, and the error of attention on a real one.
#![cfg(feature = "cli")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;
mod support;

use gguf_writer::tiny_llama_of;
use kvarto::backend::CpuBackend;
use kvarto::basis::{Calibration, CalibrationSource};
use kvarto::calibration::{CalibrateOptions, measure};
use kvarto::conformance::reference::{Query, Token, attend};
use kvarto::engine::Registry;
use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use kvarto::model::{Answer, LoadOptions, Model, ModelRows, Observed};
use kvarto::profile::Profile;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

/// A folder with two tiny models, a text, and a place for the user's data.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a temporary folder"));
        for (name, layers) in [("tiny.gguf", 2), ("other.gguf", 3)] {
            std::fs::write(place.path(name), tiny_llama_of(3, layers).build()).expect("written");
        }
        let text: String = (0..90).map(|i| format!("{} is the square of {i}. ", i * i)).collect();
        std::fs::write(place.path("text.txt"), text).expect("written");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvarto"));
        command.args(arguments).current_dir(self.0.path()).env_remove("RUST_LOG").stdin(Stdio::null());
        command.env("KVARTO_DATA", self.path("data")).output().expect("the program starts")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn generate(&self, arguments: &[&str]) -> Value {
        let all = ["generate", "square of", "--model", "tiny.gguf", "--backend", "cpu", "--max-tokens", "20"];
        self.json(&[&all[..], &["--temperature", "0", "--page-tokens", "16", "--exact-sink", "0"], arguments].concat())
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str], code: i32, words: &[&str]) {
        let output = self.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        words.iter().for_each(|word| assert!(said.contains(word), "{arguments:?}: {word:?} is not in {said}"));
    }
}

const CALIBRATE: [&str; 7] = ["calibrate", "--model", "tiny.gguf", "--text", "text.txt", "--backend", "cpu"];

#[test]
fn the_program_calibrates_and_its_file_serves() {
    let place = Place::new();
    let made = place.json(&[&CALIBRATE[..], &["-o", "sub/x.kvcal", "--tokens", "700"]].concat());
    let header = &made["calibration"];
    // The tiny model has a context of 128 tokens.
    assert_eq!(
        (&header["window_tokens"], &header["windows"], &header["tokens"]),
        (&128.into(), &5.into(), &640.into())
    );
    assert_eq!(header["skipped_tokens"], 32);
    let bytes = std::fs::read(place.path("sub/x.kvcal")).expect("written");
    assert_eq!(made["sha256"], kvarto::calibration::sha256(&bytes));
    let again = place.json(&[&CALIBRATE[..], &["-o", "y.kvcal", "--tokens", "700"]].concat());
    assert_eq!(made["sha256"], again["sha256"], "the same text and model give the same file");
    let kept = place.json(&[&CALIBRATE[..], &["-o", "z.kvcal", "--moments"]].concat());
    assert!(kept["bytes"].as_u64() > made["bytes"].as_u64());

    let plain = place.generate(&["--kv", "f32", "--basis", "none"]);
    for (word, name) in [("sub/x.kvcal", "map"), ("mean:sub/x.kvcal", "mean"), ("map:z.kvcal", "map")] {
        let said = place.generate(&["--kv", "f32", "--basis", word]);
        assert_eq!(said["token_ids"], plain["token_ids"], "{word}");
        assert_eq!((&said["basis"]["k"], &said["basis"]["v"]), (&name.into(), &name.into()));
        let hash = if word.ends_with("x.kvcal") { &made["sha256"] } else { &kept["sha256"] };
        assert_eq!(said["basis_ids"]["k"], format!("{name}:{}", hash.as_str().expect("a hash")));
        assert!(said["metadata_bits_per_value"].as_f64() > plain["metadata_bits_per_value"].as_f64());
    }
    place.generate(&["--kv", "tq3", "--exact-tail", "0", "--basis", "sub/x.kvcal"]);
    place.generate(&["--kv", "tq3", "--set", "kv.basis.k=\"sub/x.kvcal\"", "--set", "kv.basis.v=\"none\""]);

    // `map` is the model's own, once there is one.
    let own: Vec<&str> =
        ["generate", "x", "--model", "tiny.gguf", "--backend", "cpu", "--max-tokens", "3", "--basis", "map"].into();
    place.refused(&own, 1, &["no calibration yet", "kvarto calibrate"]);
    place.json(&CALIBRATE);
    assert_eq!(place.generate(&["--kv", "f32", "--basis", "map"])["token_ids"], plain["token_ids"]);
    let profile = "schema = 1\nname = \"mine\"\n[kv]\nk = \"tq4\"\nv = \"tq3\"\nbasis = \"map\"\n";
    std::fs::write(place.path("mine.toml"), profile).expect("written");
    let said = place.json(&[&own[..8], &["--profile", "mine.toml"]].concat());
    assert_eq!(said["basis"]["v"], "map");
}

#[test]
fn foreign_damaged_and_missing_calibrations_are_refused() {
    let place = Place::new();
    place.json(&[&CALIBRATE[..], &["-o", "x.kvcal"]].concat());
    let with = |model: &'static str, file: &'static str| {
        ["generate", "x", "--model", model, "--backend", "cpu", "--max-tokens", "1", "--basis", file]
    };
    let hash = |name: &str| Gguf::open(place.path(name)).expect("a model").sha256().to_string();
    place.refused(&with("other.gguf", "x.kvcal"), 1, &[&hash("tiny.gguf"), &hash("other.gguf"), "x.kvcal"]);
    place.refused(&with("tiny.gguf", "none.kvcal"), 1, &["none.kvcal"]);
    let bytes = std::fs::read(place.path("x.kvcal")).expect("there");
    std::fs::write(place.path("cut.kvcal"), &bytes[..bytes.len() / 2]).expect("written");
    place.refused(&with("tiny.gguf", "cut.kvcal"), 1, &["cut.kvcal", "calibrate the model again"]);
    let mut flipped = bytes.clone();
    flipped[bytes.len() - 5] ^= 1;
    std::fs::write(place.path("flipped.kvcal"), flipped).expect("written");
    place.refused(&with("tiny.gguf", "mean:flipped.kvcal"), 1, &["flipped.kvcal", "checksum"]);
    std::fs::write(place.path("text.kvcal"), "not at all").expect("written");
    place.refused(&with("tiny.gguf", "text.kvcal"), 1, &["text.kvcal"]);

    std::fs::write(place.path("short.txt"), "too short").expect("written");
    let short = ["calibrate", "--model", "tiny.gguf", "--text", "short.txt", "--backend", "cpu", "-o", "y.kvcal"];
    place.refused(&short, 2, &["too few", "longer text"]);
    place.refused(&[&CALIBRATE[..], &["-o", "y.safetensors"]].concat(), 2, &[".kvcal"]);
    place.refused(&["calibrate", "--model", "tiny.gguf", "--text", "gone.txt"], 1, &["gone.txt"]);
    assert!(!place.path("y.kvcal").exists());
    let bench = ["bench", "decode", "--backend", "cpu", "--shape", "q2k1d16", "--context", "40", "--basis", "map"];
    place.refused(&bench, 2, &["calibration"]);
}

#[test]
fn plan_counts_maps_once() {
    let place = Place::new();
    let metadata = |basis: &str, batch: &str| {
        let said =
            place.json(&["plan", "--shape", "q2k1d16l3", "--basis", basis, "--context", "300", "--batch", batch]);
        said["contexts"][0]["metadata_bytes"].as_u64().expect("bytes")
    };
    // A mean and two matrices of 16 channels a side, in whole 256 bytes.
    let maps = 3 * 2 * (16 + 2 * 256_u64).next_multiple_of(64) * 4;
    assert_eq!(metadata("map", "1") - metadata("hadamard", "1"), maps);
    assert_eq!(metadata("map", "5") - metadata("hadamard", "5"), maps);
    assert_eq!(metadata("mean:x.kvcal", "2") - metadata("hadamard", "2"), 3 * 2 * 64 * 4);
}

/// Rows that the error of attention is taken over.
const ASKED: usize = 48;

/// How far attention is from attention in f64 over the exact rows, in the newest [`ASKED`] rows.
struct Found {
    /// By layer, root mean square as a fraction of the outputs'.
    outputs: Vec<f64>,
    /// The same behind the output projection: what the layer adds to the residual stream.
    added: Vec<f64>,
    /// After the last row.
    logits: Vec<f32>,
}

fn wide(row: &[f32]) -> Vec<f64> {
    row.iter().map(|&x| f64::from(x)).collect()
}

fn square(row: &[f64]) -> f64 {
    row.iter().map(|x| x * x).sum()
}

fn find(gguf: &Gguf, registry: Registry, profile: Profile, tokens: &[u32]) -> Found {
    let backend = Box::new(CpuBackend::new(2).expect("threads"));
    let options = LoadOptions { context_tokens: tokens.len(), chunk_tokens: 64, ..LoadOptions::default() };
    let mut model = Model::load(gguf, backend, profile, registry, &options).expect("loads");
    let config = model.config().clone();
    let (dim, group, width) = (config.head_dim, config.q_heads / config.kv_heads, config.q_heads * config.head_dim);
    let projections: Vec<Vec<f32>> =
        (0..config.layers).map(|layer| model.output_projection(layer).expect("there")).collect();
    let project = |layer: usize, row: &[f64]| -> Vec<f64> {
        let products = projections[layer].chunks_exact(width);
        products.map(|weights| weights.iter().zip(row).map(|(&w, x)| f64::from(w) * x).sum()).collect()
    };
    let mut held: Vec<Vec<Vec<Token>>> = vec![vec![Vec::new(); config.kv_heads]; config.layers];
    // Squares of errors and of outputs, then of what they add.
    let mut sums = vec![[0.0; 4]; config.layers];
    let seq = model.engine().create().expect("a sequence");
    let mut logits = Vec::new();
    for chunk in tokens.chunks(64) {
        let rows = [ModelRows { seq, tokens: chunk, committed: true, answer: Answer::LastLogits }];
        let watch = |seen: Observed| {
            for (row, &position) in seen.positions.iter().enumerate() {
                for head in 0..config.kv_heads {
                    let of = |rows: &[f32]| wide(&rows[(row * config.kv_heads + head) * dim..][..dim]);
                    let token = Token { position: position.into(), key: of(&seen.k), value: of(&seen.v) };
                    held[seen.layer][head].push(token);
                }
                if (position as usize) < tokens.len() - ASKED {
                    continue;
                }
                let (q, got) = (wide(&seen.q[row * width..][..width]), wide(&seen.output[row * width..][..width]));
                let of_head = |(head, q): (usize, &[f64])| {
                    let scale = f64::from(config.attention_scale);
                    let query = Query { q, position: position.into(), scale, window: None, softcap: None, sink: None };
                    attend(&held[seen.layer][head / group], &query, dim)
                };
                let want: Vec<f64> = q.chunks_exact(dim).enumerate().flat_map(of_head).collect();
                let error: Vec<f64> = got.iter().zip(&want).map(|(a, b)| a - b).collect();
                let found = [&error, &want, &project(seen.layer, &error), &project(seen.layer, &want)];
                sums[seen.layer].iter_mut().zip(found).for_each(|(sum, row)| *sum += square(row));
            }
            Ok(())
        };
        logits = model.observe(&rows, watch).expect("runs").logits;
    }
    let ratio = |at: usize| sums.iter().map(|sum| (sum[at] / sum[at + 1]).sqrt()).collect();
    Found { outputs: ratio(0), added: ratio(2), logits }
}

fn words(name: &str, gguf: &Gguf) -> Vec<u32> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("there");
    Tokenizer::from_gguf(gguf).expect("a tokenizer").encode(&text, false).expect("tokens")
}

#[test]
fn a_calibrated_map_lowers_the_error_of_attention_and_leaves_dense_results() {
    let Some(gguf) = support::model::open() else { return };
    // A text that nobody edits.
    let text = words("LICENSE-APACHE", &gguf);
    let options = CalibrateOptions { tokens: 768, window_tokens: 384 };
    let backend = Box::new(CpuBackend::new(2).expect("threads"));
    let load = LoadOptions { context_tokens: 384, ..LoadOptions::default() };
    let mut model = Model::load(&gguf, backend, Profile::dense(), Registry::builtin(), &load).expect("loads");
    let measured = measure(&mut model, &text[..1100], &options, |_, _| false).expect("runs");
    drop(model);
    let maps = measured.calibrator.maps().expect("maps");
    let calibration = Arc::new(Calibration::new("test", maps).expect("safe maps"));
    let file = CalibrationSource::File("x.kvcal".into());
    let registry = Registry::builtin()
        .with_calibration(CalibrationSource::OfModel, calibration.clone())
        .with_calibration(file, calibration);

    let tokens = &text[1100..1420];
    let under = |kv: &str, basis: &str| {
        let (k_basis, v_basis) = (Some(basis.to_string()), Some(basis.to_string()));
        let profile = Profile { exact_tail_tokens: 0, k_basis, v_basis, ..Profile::formats(kv, kv) };
        find(&gguf, registry.clone(), profile, tokens)
    };
    let mean = |errors: &[f64]| errors.iter().sum::<f64>() / errors.len() as f64;
    let [rotated, about, mapped] = ["hadamard", "mean:x.kvcal", "map"].map(|basis| under("tq3", basis));
    let better = rotated.added.iter().zip(&mapped.added).filter(|(a, b)| b < a).count();
    let both = |found: &Found| format!("{:.4} and {:.4}", mean(&found.outputs), mean(&found.added));
    let said = format!(
        "errors of outputs and of what they add: hadamard {}, calibrated means {}, map {}; better in {better} of {} layers",
        both(&rotated),
        both(&about),
        both(&mapped),
        rotated.added.len()
    );
    println!("{said}");
    assert!(mean(&mapped.outputs) < 0.9 * mean(&rotated.outputs), "{said}");
    assert!(mean(&mapped.added) < 0.9 * mean(&rotated.added), "{said}");
    assert!(mean(&about.added) < mean(&rotated.added), "{said}");
    assert!(better * 3 > rotated.added.len() * 2, "{said}");

    for (kv, error, difference) in [("f32", 1e-5, 2e-3), ("f16", 2e-3, 0.2)] {
        let (plain, mapped) = (under(kv, "none"), under(kv, "map"));
        let most = mapped.outputs.iter().copied().fold(0.0, |a: f64, b| if b <= a { a } else { b });
        let apart = plain.logits.iter().zip(&mapped.logits).map(|(a, b)| (a - b).abs());
        let off = apart.fold(0.0, |a: f32, b| if b <= a { a } else { b });
        println!(
            "{kv}: error {:.1e} without, {most:.1e} at most in the map; logits {off:.1e} apart",
            mean(&plain.outputs)
        );
        assert!(most <= error && off <= difference, "{kv}: {most} {off}");
    }
}
