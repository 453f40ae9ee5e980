//! `--limits` and `--without` on the commands that open an adapter.

use crate::support::{gpu, require_or_skip};
use kvarto::backend::wgpu::OpenOptions;
use serde_json::{Value, json};
use std::process::{Command, Output};

/// Runs the program with its words; one that finds no model.
fn kvarto(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvarto"));
    let folder = tempfile::tempdir().expect("a folder");
    command.args(words).env("KVARTO_CACHE", folder.path()).env_remove("RUST_LOG");
    command.output().expect("the program starts")
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// What is said to be wrong, with its exit code.
fn refusal(words: &[&str]) -> (Option<i32>, String) {
    let output = kvarto(&[words, &["--json"]].concat());
    let error = &json_of(&output)["error"];
    (output.status.code(), format!("{}: {} ({})", error["kind"], error["message"], error["remedy"]))
}

/// Whether there is a Vulkan adapter, or why not.
fn vulkan() -> bool {
    gpu::open("vulkan", &OpenOptions::default()).inspect_err(|e| require_or_skip("vulkan", &e.to_string())).is_ok()
}

#[test]
fn doctor_plays_a_poorer_adapter_and_says_so() {
    if !vulkan() {
        return;
    }
    let masks = ["--limits", "webgpu-default,max_binding_bytes=1MiB", "--without", "f16,subgroups"];
    let output = kvarto(&[&["doctor", "--json", "--adapter", "vulkan"], &masks[..]].concat());
    let report = json_of(&output);
    assert_eq!((output.status.code(), &report["passed"]), (Some(0), &json!(true)), "{report:#}");
    let adapter = &report["adapters"][0];
    let limits = json!({
        "binding_bytes": 1 << 20, "buffer_bytes": 256 << 20, "workgroup_bytes": 16384, "invocations": 256,
        "storage_buffers": 8, "workgroups_per_dimension": 65535, "offset_alignment": 256,
    });
    assert_eq!(adapter["limits"], limits);
    assert_eq!(
        (&adapter["tier"], &adapter["f16"], &adapter["subgroups"]),
        (&json!("floor"), &json!(false), &Value::Null)
    );
    let words = ["limits=webgpu-default", "max_binding_bytes=1048576", "without f16", "without subgroups"];
    assert_eq!(adapter["masked"], json!(words));
    let features = adapter["features_in_use"].as_array().expect("a list");
    assert!(!features.contains(&json!("shader_f16")) && !features.contains(&json!("subgroup")), "{features:?}");
}

#[test]
fn a_conformance_report_says_what_was_masked() {
    if !vulkan() {
        return;
    }
    // On WebGPU's defaults, and with bindings of 1 MiB: what the cases bind is less.
    let words = ["conformance", "--quick", "--backend", "vulkan", "--limits", "webgpu-default", "--without"];
    let output = kvarto(&[&words[..], &["f16,subgroups,timestamps", "--json"]].concat());
    let report = json_of(&output);
    assert_eq!((output.status.code(), &report["passed"]), (Some(0), &json!(true)), "{report:#}");
    let backend = &report["backends"][0];
    assert_eq!((&backend["tier"], &backend["features"]), (&json!("floor"), &json!([])));
    assert_eq!(backend["limits"]["workgroup_bytes"], 16384);
    assert_eq!(backend["masked"][0], "limits=webgpu-default");
    assert_eq!(backend["masked"].as_array().map(Vec::len), Some(4));
}

#[test]
fn what_cannot_be_meant_is_told_before_any_work() {
    let all = [&["generate", "hello"][..], &["bench", "decode"], &["conformance"], &["doctor"]];
    for words in all {
        let with = |flags: &[&str]| refusal(&[words, flags].concat());
        let (code, said) = with(&["--limits", "webgpu-defaults"]);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains("--limits") && said.contains("did you mean `webgpu-default`?"), "{words:?}: {said}");
        let (code, said) = with(&["--without", "subgroup"]);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains("--without") && said.contains("did you mean `subgroups`?"), "{words:?}: {said}");
        let (code, said) = with(&["--limits", "max_invocations=1"]);
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains("max_invocations=1") && said.contains("at least 256"), "{words:?}: {said}");
        let cpu: &[&str] = if words == ["doctor"] { &["--adapter", "cpu"] } else { &["--backend", "cpu"] };
        let (code, said) = with(&[cpu, &["--without", "f16"]].concat());
        assert_eq!(code, Some(2), "{words:?}: {said}");
        assert!(said.contains("--without") && said.contains("CPU"), "{words:?}: {said}");
    }
    // `chat` has no JSON.
    let output = kvarto(&["chat", "--limits", "max_binding_bytes=1TB"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("1TB") && said.contains("MiB"), "{said}");
}

#[test]
fn a_limit_above_the_adapters_is_refused_with_both_values() {
    if !vulkan() {
        return;
    }
    let most = kvarto::backend::wgpu::adapters().into_iter().find(|r| r.api == "vulkan" && r.index == 0);
    let most = most.expect("the adapter").limits.max_compute_workgroup_storage_size;
    let flag = format!("max_workgroup_bytes={}", most + 1);
    let (code, said) = refusal(&["conformance", "--backend", "vulkan", "--limits", &flag]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains(&flag) && said.contains(&format!("has {most}")), "{said}");
    // Without a name each adapter is looked at: that one fails by name.
    let output = kvarto(&["doctor", "--json", "--adapter", "vulkan", "--limits", &flag]);
    let fault = &json_of(&output)["adapters"][0]["fault"];
    assert_eq!((output.status.code(), &fault["kind"]), (Some(1), &json!("unsupported")), "{fault}");
    assert!(fault["message"].as_str().is_some_and(|m| m.contains(&flag)), "{fault}");
}
