//! Rates, printed and never asserted: `cargo test --test attention speed -- --ignored --nocapture`.

use crate::cpu;
use kvarto::backend::{Backend, Timing};
use kvarto::conformance::{Case, Kernel};

/// CPU time of the backend's threads, query and merge included, where the system tells: busy machines spoil wall time.
fn pool_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |path: std::path::PathBuf| {
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let time = std::fs::read_to_string(path.join("schedstat")).ok()?;
        let nanoseconds: f64 = time.split(' ').next()?.parse().ok()?;
        name.starts_with("kvarto-").then_some(nanoseconds * 1e-9)
    };
    tasks.filter_map(|task| of(task.path())).sum()
}

fn report(name: &str, case: &Case, repeats: usize) {
    let mut backend = cpu();
    let built = case.build().expect("a case");
    built.run(&mut backend).expect("a run");
    backend.set_timing(Timing::Kernels).expect("timing");
    let before = pool_seconds();
    for _ in 0..repeats {
        built.run(&mut backend).expect("a run");
    }
    let cpu_seconds = (pool_seconds() - before) / repeats as f64;
    let seen: u64 = built
        .row_info
        .iter()
        .map(|&(position, s)| built.tokens[s][0].iter().filter(|t| t.position <= position).count() as u64)
        .sum();
    let flops = 2 * seen * case.q_heads() as u64 * (case.k_dim + case.v_dim) as u64;
    let read: usize = case.sequences.iter().map(|&(len, _)| len * case.kv_heads).sum();
    for time in backend.take_times().expect("times") {
        let seconds = time.nanoseconds as f64 * 1e-9 / repeats as f64;
        if ["decode", "prefill"].contains(&time.kernel) {
            println!(
                "{name}: {:.1} GFLOP/s, {:.1} M (token, KV head)/s, {:.3} ms; a CPU second: {:.1} GFLOP, {:.1} M",
                flops as f64 / seconds * 1e-9,
                read as f64 / seconds * 1e-6,
                seconds * 1e3,
                flops as f64 / cpu_seconds * 1e-9,
                read as f64 / cpu_seconds * 1e-6
            );
        }
    }
}

#[test]
#[ignore = "measures"]
fn speed() {
    let prefill = Case {
        k_dim: 128,
        v_dim: 128,
        group: 4,
        sequences: vec![(2048, 512)],
        row_tile: 64,
        pages_per_item: usize::MAX,
        kernel: Kernel::Prefill,
        ..Case::default()
    };
    let decode =
        Case { sequences: vec![(8192, 1)], row_tile: 1, pages_per_item: 16, kernel: Kernel::Decode, ..prefill.clone() };
    let formats: [(&str, kvarto::conformance::Formats); 10] = [
        ("f32", |_, _| ("f32", "f32")),
        ("f16", |_, _| ("f16", "f16")),
        ("bf16", |_, _| ("bf16", "bf16")),
        ("fp8", |_, _| ("fp8", "fp8")),
        ("tq3", |_, _| ("tq3", "tq3")),
        ("tq2", |_, _| ("tq2", "tq2")),
        ("tq4", |_, _| ("tq4", "tq4")),
        ("q8_0", |_, _| ("q8_0", "q8_0")),
        ("q4_0", |_, _| ("q4_0", "q4_0")),
        ("q3_affine", |_, _| ("q3_affine", "q3_affine")),
    ];
    for (name, formats) in formats {
        report(&format!("prefill 512 rows at 2048, {name}"), &Case { formats, ..prefill.clone() }, 3);
        for group in [1, 4, 8] {
            let case = Case { formats, group, ..decode.clone() };
            report(&format!("decode 1 row of 8192, group {group}, {name}"), &case, 20);
        }
    }
}
