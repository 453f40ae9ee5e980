//! The examples run to their end.

mod support;

use std::process::{Command, Output};

/// Runs an example: the one that `cargo test` built beside this program, else what cargo builds now. (Cargo run for
/// one package builds wgpu anew where the whole workspace was tested.)
fn run(name: &str) -> Output {
    let built = std::env::current_exe().ok().and_then(|test| {
        let folder = test.parent()?.parent()?.join("examples");
        let program = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        program.is_file().then_some(program)
    });
    if let Some(program) = built {
        return Command::new(program).output().expect("the example starts");
    }
    // The same features as this program's, "default" included: others would build the whole crate anew.
    let features = match (cfg!(feature = "cli"), cfg!(feature = "wgpu")) {
        (true, true) => "default",
        (true, false) => "cli",
        (false, true) => "wgpu",
        (false, false) => "",
    };
    Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--no-default-features", "--features", features, "--example", name])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn host_attention() {
    let output = run("host_attention");
    assert!(output.status.success(), "{}", text(&output));
    let said = text(&output);
    assert!(said.contains("k=fp8,v=tq3") && !said.contains("NaN"), "{said}");
}

#[cfg(feature = "wgpu")]
#[test]
fn own_device() {
    let output = run("own_device");
    match output.status.code() {
        Some(0) => assert!(text(&output).contains("fp8"), "{}", text(&output)),
        Some(3) => support::require_or_skip("vulkan", &text(&output)),
        _ => panic!("{}", text(&output)),
    }
}
