//! What was measured, as text and as JSON.

use crate::cli::cache_flags::CacheFlags;
use crate::cli::report::figure;
use kvarto::backend::Caps;
use kvarto::bench::{AttentionBench, AttentionReport, Fill, GenerationBench, GenerationReport, Quantiles, Work};
use kvarto::profile::Profile;
use kvarto::{Error, ErrorKind};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

/// Of the machine: what every result is under.
pub fn machine(caps: &Caps) -> Json {
    json!({
        "backend": caps.api, "adapter": caps.adapter, "driver": caps.driver, "tier": caps.tier, "masked": caps.masked,
    })
}

fn cache(flags: &CacheFlags, profile: &Profile) -> Json {
    let kv = match &flags.profile {
        Some(_) => format!("k={},v={}", profile.k, profile.v),
        None => flags.asked().into(),
    };
    json!({
        "profile": profile.name, "kv": kv, "basis": profile.k_basis, "page_tokens": profile.page_tokens,
        "exact_sink_tokens": profile.exact_sink_tokens, "exact_tail_tokens": profile.exact_tail_tokens,
        "set": flags.set,
    })
}

fn quantiles(q: Option<&Quantiles>, unit: f64) -> Json {
    match q {
        None => Json::Null,
        Some(q) => {
            json!({"least": q.least / unit, "p10": q.p10 / unit, "median": q.median / unit, "p90": q.p90 / unit})
        }
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
    // Pages are counted for rows that read them each for itself; a prefill's tiles share them.
    let reads = measured.read_bytes > 0;
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
        "cache": cache(flags, &bench.profile),
        "layers_in_turn": measured.layers,
        "repetitions": bench.repetitions,
        "kernels_us": quantiles(measured.kernels_ns.as_ref(), 1e3),
        "by_kernel": by_kernel,
        "wall_us": quantiles(Some(&measured.wall_ns), 1e3),
        "read_bytes": reads.then_some(measured.read_bytes),
        "bytes_per_s": reads.then_some(bytes_per_s),
        "copy_bytes_per_s": copy_bytes_per_s,
        "share_of_copy": reads.then_some(bytes_per_s / copy_bytes_per_s),
        "basis": {"k": measured.bases.0, "v": measured.bases.1},
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
    let gigabytes = |rate: f64| figure(Some(rate / 1e9));
    let read = match reads {
        true => format!(
            "read      {} MB: {} GB/s, {:.3} of the {} GB/s that copies reach",
            figure(Some(measured.read_bytes as f64 / 1e6)),
            gigabytes(bytes_per_s),
            bytes_per_s / copy_bytes_per_s,
            gigabytes(copy_bytes_per_s)
        ),
        false => format!("copies    {} GB/s", gigabytes(copy_bytes_per_s)),
    };
    let text = format!(
        "{name} {shape}, {} x {} tokens, kv {}, {rows} rows\n\
         right     root mean square error of exact values {:.1e}, worst {:.1e}{of_cpu}\n\
         kernels   {kernels}\n\
         wall      {} us\n\
         {read}; {} GFLOP/s\n\
         pages     {} bits a value, bases {} (K) and {} (V), {} layers in turn\n",
        bench.batch,
        bench.context,
        flags.asked(),
        quality.rms_of_exact,
        quality.worst_of_exact,
        spread(&measured.wall_ns, 1e3),
        figure(Some(flops_per_s / 1e9)),
        figure(measured.resident_bits_per_value),
        measured.bases.0,
        measured.bases.1,
        measured.layers,
    );
    (json, text)
}

/// Of a model's generation.
pub fn generation(
    model: &str,
    (flags, profile): (&CacheFlags, &Profile),
    caps: &Caps,
    bench: &GenerationBench,
    measured: &GenerationReport,
) -> (Json, String) {
    let token_us = 1e6 / measured.decode_tokens_per_s.median;
    let device_us = measured.device_ns.as_ref().map(|q| q.median / 1e3);
    let by_kernel: Vec<Json> = measured
        .by_kernel
        .iter()
        .map(|(kernel, dispatches, ns)| json!({"kernel": kernel, "dispatches": dispatches, "mean_us": ns / 1e3}))
        .collect();
    let json = json!({
        "schema": 1,
        "version": env!("CARGO_PKG_VERSION"),
        "bench": "generate",
        "machine": machine(caps),
        "model": model,
        "cache": cache(flags, profile),
        "depth_tokens": measured.depth,
        "filled_by": if bench.fill == Fill::Rows { "rows" } else { "prefill" },
        "steps": bench.steps,
        "prefill_tokens_per_s": measured.prefill_tokens_per_s,
        "decode_tokens_per_s": quantiles(Some(&measured.decode_tokens_per_s), 1.0),
        "token_us": token_us,
        "device_us": quantiles(measured.device_ns.as_ref(), 1e3),
        "host_us": device_us.map(|us| token_us - us),
        "by_kernel": by_kernel,
        "resident_bits_per_value": measured.resident_bits_per_value,
        "read_bits_per_value": measured.read_bits_per_value,
    });
    let filled = match measured.prefill_tokens_per_s {
        Some(speed) => format!("{} tok/s over {} tokens", figure(Some(speed)), measured.depth),
        None => format!("none: {} random rows", measured.depth),
    };
    let all: f64 = measured.by_kernel.iter().map(|k| k.2).sum();
    let each: Vec<String> = measured
        .by_kernel
        .iter()
        .map(|(kernel, dispatches, ns)| {
            let share = figure(Some(ns * 100.0 / all));
            format!("{kernel} {share} % ({} us in {})", figure(Some(ns / 1e3)), figure(Some(*dispatches)))
        })
        .collect();
    let device = device_us.map_or("no timestamps here".into(), |us| {
        format!("{} us on the device, {} us the host's", figure(Some(us)), figure(Some(token_us - us)))
    });
    let text = format!(
        "generate {model}, kv {}\n\
         prefill   {filled}\n\
         decode    {} tok/s after them\n\
         token     {} us: {device}\n\
         kernels   {} us one by one: {}\n\
         bits      resident {}, read {} a value\n",
        flags.asked(),
        spread(&measured.decode_tokens_per_s, 1.0),
        figure(Some(token_us)),
        figure(Some(all / 1e3)),
        each.join(", "),
        figure(measured.resident_bits_per_value),
        figure(measured.read_bits_per_value),
    );
    (json, text)
}

/// A new file for a result.
pub struct Place {
    path: PathBuf,
    file: Option<std::fs::File>,
}

impl Place {
    /// The first free `NAME-N.json` in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// `File` where none can be made.
    pub fn reserve(folder: &Path, name: &str) -> kvarto::Result<Self> {
        std::fs::create_dir_all(folder).map_err(|e| fault(folder, &e))?;
        for number in 1..=9999 {
            let path = folder.join(format!("{name}-{number}.json"));
            match std::fs::File::create_new(&path) {
                Ok(file) => return Ok(Place { path, file: Some(file) }),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(fault(folder, &e)),
            }
        }
        Err(fault(folder, &std::io::Error::other("it holds 9999 results of this name")))
    }

    /// Writes the result.
    ///
    /// # Errors
    /// `File` where it cannot be written.
    pub fn keep(mut self, json: &Json) -> kvarto::Result<PathBuf> {
        if let Some(mut file) = self.file.take() {
            std::io::Write::write_all(&mut file, format!("{json:#}\n").as_bytes())
                .map_err(|e| fault(&self.path, &e))?;
        }
        Ok(std::mem::take(&mut self.path))
    }
}

impl Drop for Place {
    /// A place that no result came to is given back.
    fn drop(&mut self) {
        if self.file.take().is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn fault(place: &Path, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::File, format!("--out {}: {error}", place.display()), "give a folder that can be written to")
}
