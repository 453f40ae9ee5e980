//! What an embedder builds: the library alone, without the program's dependencies.

use std::process::Command;

/// Names of the packages that the library links with these features. `cargo tree` compiles nothing.
fn packages(features: &[&str]) -> Vec<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo.args(["tree", "-p", "kvarto", "-e", "normal", "--offline", "--prefix", "none", "--format", "{p}"]);
    cargo.args(features);
    let output = cargo.output().expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree {features:?}: {said}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().filter_map(|line| line.split_whitespace().next()).map(String::from).collect()
}

#[track_caller]
fn has(packages: &[String], name: &str, wanted: bool) {
    assert_eq!(packages.iter().any(|p| p == name), wanted, "{name} among {packages:?}");
}

/// Packages that only the program, or only models, may bring.
const PROGRAM: &[&str] = &["clap", "indicatif", "anyhow", "ctrlc", "env_logger", "zip", "plotters"];
const MODEL: &[&str] = &["tokenizers", "safetensors", "minijinja", "serde_json", "sha2", "memmap2", "rand"];
/// Packages that traces bring.
const TRACE: &[&str] = &["zstd", "postcard", "csv"];

#[test]
fn an_embedder_gets_neither_program_nor_tokenizer() {
    let found = packages(&["--no-default-features", "--features", "wgpu"]);
    has(&found, "kvarto", true);
    has(&found, "wgpu", true);
    PROGRAM.iter().chain(MODEL).chain(TRACE).for_each(|name| has(&found, name, false));
}

#[test]
fn the_bare_library_has_no_gpu_code() {
    let found = packages(&["--no-default-features"]);
    has(&found, "kvarto", true);
    has(&found, "wgpu", false);
    has(&found, "naga", false);
    PROGRAM.iter().chain(MODEL).for_each(|name| has(&found, name, false));
}

#[test]
fn models_come_without_the_program() {
    let found = packages(&["--no-default-features", "--features", "model"]);
    MODEL.iter().for_each(|name| has(&found, name, true));
    PROGRAM.iter().for_each(|name| has(&found, name, false));
    has(&found, "wgpu", false);
}

#[test]
fn traces_come_without_the_program_and_without_models() {
    let found = packages(&["--no-default-features", "--features", "trace"]);
    TRACE.iter().for_each(|name| has(&found, name, true));
    PROGRAM.iter().chain(&["tokenizers", "minijinja", "memmap2", "wgpu"]).for_each(|name| has(&found, name, false));
}

#[test]
fn the_program_has_all_of_it() {
    let found = packages(&[]);
    PROGRAM.iter().chain(MODEL).chain(TRACE).chain(&["wgpu"]).for_each(|name| has(&found, name, true));
}

#[test]
fn machine_code_comes_where_it_is_wanted() {
    let without = packages(&["--no-default-features", "--features", "cuda"]);
    has(&without, "cudarc", true);
    has(&without, "zstd", false);
    let with = packages(&["--no-default-features", "--features", "prebuilt"]);
    has(&with, "cudarc", true);
    has(&with, "zstd", true);
    PROGRAM.iter().chain(MODEL).for_each(|name| has(&with, name, false));
}
