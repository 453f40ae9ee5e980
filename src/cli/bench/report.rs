//! What was measured, as text and as JSON.

use crate::cli::cache_flags::CacheFlags;
use crate::cli::report::figure;
use kvarto::backend::Caps;
use kvarto::bench::{AttentionBench, AttentionReport, GenerationReport, Quantiles, Work};
use kvarto::{Error, ErrorKind};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

fn machine(caps: &Caps) -> Json {
    json!({"backend": caps.api, "adapter": caps.adapter, "driver": caps.driver, "tier": caps.tier})
}

fn cache(flags: &CacheFlags) -> Json {
    json!({
        "kv": flags.kv, "basis": flags.basis, "page_tokens": flags.page_tokens,
        "exact_sink_tokens": flags.exact_sink, "exact_tail_tokens": flags.exact_tail,
    })
}

fn quantiles(q: Option<&Quantiles>, unit: f64) -> Json {
    match q {
        None => Json::Null,
        Some(q) => json!({"p10": q.p10 / unit, "median": q.median / unit, "p90": q.p90 / unit}),
    }
}

fn spread(q: &Quantiles, unit: f64) -> String {
    format!("{} ({} to {})", figure(Some(q.median / unit)), figure(Some(q.p10 / unit)), figure(Some(q.p90 / unit)))
}

/// Of an attention bench.
pub fn attention(
    bench: &AttentionBench,
    shape: &str,
    flags: &CacheFlags,
    caps: &Caps,
    copy_bytes_per_s: f64,
    measured: &AttentionReport,
) -> (Json, String) {
    // Device times where there are any, else the host's.
    let best = measured.kernels_ns.as_ref().unwrap_or(&measured.wall_ns);
    let bytes_per_s = measured.read_bytes as f64 / best.median * 1e9;
    let flops_per_s = measured.flops / best.median * 1e9;
    let pages: Vec<Json> = measured.pages.iter().map(|((k, v), n)| json!({"k": k, "v": v, "pages": n})).collect();
    let by_kernel: Vec<Json> = measured
        .by_kernel
        .iter()
        .map(|(kernel, dispatches, ns)| json!({"kernel": kernel, "dispatches": dispatches, "mean_us": ns / 1e3}))
        .collect();
    let (name, rows) = match bench.work {
        Work::Decode => ("decode", 1),
        Work::Prefill { rows } => ("prefill", rows),
    };
    let quality = measured.quality;
    let json = json!({
        "schema": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "bench": name,
        "machine": machine(caps),
        "shape": shape,
        "batch": bench.batch,
        "context_tokens": bench.context,
        "rows": rows,
        "cache": cache(flags),
        "layers_in_turn": measured.layers,
        "repetitions": bench.repetitions,
        "kernels_us": quantiles(measured.kernels_ns.as_ref(), 1e3),
        "by_kernel": by_kernel,
        "wall_us": quantiles(Some(&measured.wall_ns), 1e3),
        "read_bytes": measured.read_bytes,
        "bytes_per_s": bytes_per_s,
        "copy_bytes_per_s": copy_bytes_per_s,
        "share_of_copy": bytes_per_s / copy_bytes_per_s,
        "flops": measured.flops,
        "flops_per_s": flops_per_s,
        "error_of_exact": {"worst": quality.worst_of_exact, "rms": quality.rms_of_exact},
        "error_of_cpu": quality.worst_of_cpu,
        "pages": pages,
        "resident_bits_per_value": measured.resident_bits_per_value,
        "fill_seconds": measured.fill_seconds,
    });
    let each: Vec<String> = measured
        .by_kernel
        .iter()
        .map(|(kernel, dispatches, ns)| format!("{kernel} {} in {}", figure(Some(ns / 1e3)), figure(Some(*dispatches))))
        .collect();
    let kernels = measured.kernels_ns.as_ref().map_or("no timestamps here".into(), |q| spread(q, 1e3) + " us");
    let kernels = format!("{kernels}; {} dispatches", each.join(", "));
    let of_cpu = quality.worst_of_cpu.map_or(String::new(), |e| format!(", worst of the CPU's {e:.1e}"));
    let text = format!(
        "{name} {shape}, {} x {} tokens, kv {}, {rows} rows\n\
         right     root mean square error of exact values {:.1e}, worst {:.1e}{of_cpu}\n\
         kernels   {kernels}\n\
         wall      {} us\n\
         read      {:.1} MB: {:.1} GB/s, {:.3} of the {:.1} GB/s that copies reach; {:.2} TFLOP/s\n\
         pages     {} bits a value, {} layers in turn\n",
        bench.batch,
        bench.context,
        flags.kv,
        quality.rms_of_exact,
        quality.worst_of_exact,
        spread(&measured.wall_ns, 1e3),
        measured.read_bytes as f64 / 1e6,
        bytes_per_s / 1e9,
        bytes_per_s / copy_bytes_per_s,
        copy_bytes_per_s / 1e9,
        flops_per_s / 1e12,
        figure(measured.resident_bits_per_value),
        measured.layers,
    );
    (json, text)
}

/// Of a model's generation.
pub fn generation(
    model: &str,
    flags: &CacheFlags,
    caps: &Caps,
    tokens: usize,
    measured: &GenerationReport,
) -> (Json, String) {
    let json = json!({
        "schema": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "bench": "generate",
        "machine": machine(caps),
        "model": model,
        "cache": cache(flags),
        "depth_tokens": measured.depth,
        "steps": tokens,
        "prefill_tokens_per_s": measured.prefill_tokens_per_s,
        "decode_tokens_per_s": quantiles(Some(&measured.decode_tokens_per_s), 1.0),
        "resident_bits_per_value": measured.resident_bits_per_value,
        "read_bits_per_value": measured.read_bits_per_value,
    });
    let text = format!(
        "generate {model}, kv {}\n\
         prefill   {} tok/s over {} tokens\n\
         decode    {} tok/s after them\n\
         bits      resident {}, read {} a value\n",
        flags.kv,
        figure(Some(measured.prefill_tokens_per_s)),
        measured.depth,
        spread(&measured.decode_tokens_per_s, 1.0),
        figure(measured.resident_bits_per_value),
        figure(measured.read_bits_per_value),
    );
    (json, text)
}

/// Writes `json` to the first free `NAME-N.json` in `folder`, which is made if it is not there.
pub fn keep(folder: &Path, name: &str, json: &Json) -> kvarto::Result<PathBuf> {
    let fault = |e: std::io::Error| {
        Error::new(ErrorKind::File, format!("--out {}: {e}", folder.display()), "give a folder that can be written to")
    };
    std::fs::create_dir_all(folder).map_err(fault)?;
    for number in 1..=9999 {
        let path = folder.join(format!("{name}-{number}.json"));
        match std::fs::File::create_new(&path) {
            Ok(mut file) => {
                std::io::Write::write_all(&mut file, format!("{json:#}\n").as_bytes()).map_err(fault)?;
                return Ok(path);
            }
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(fault(e)),
        }
    }
    Err(fault(std::io::Error::other("it holds 9999 results of this name")))
}
