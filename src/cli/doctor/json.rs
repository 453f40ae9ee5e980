//! The report for programs.

use super::Examined;
use kvarto::Error;
use serde_json::{Value, json};

/// The whole report; `no_cuda` says why no device of CUDA's is in it.
pub fn of(all: &[Examined], no_cuda: Option<&Error>) -> Value {
    let mut report = json!({
        "passed": all.iter().all(Examined::passed),
        "adapters": all.iter().map(adapter).collect::<Vec<_>>(),
    });
    if let Some(fault) = no_cuda {
        report["cuda"] = error(fault);
    }
    report
}

fn error(error: &Error) -> Value {
    json!({"kind": error.kind().as_str(), "message": error.message(), "remedy": error.remedy()})
}

/// A number, or null for one that JSON cannot say.
fn number(x: f64) -> Value {
    serde_json::Number::from_f64(x).map_or(Value::Null, Value::Number)
}

fn adapter(e: &Examined) -> Value {
    let limits = e.caps.as_ref().map(|c| {
        json!({
            "binding_bytes": c.max_binding_bytes,
            "buffer_bytes": c.max_buffer_bytes,
            "workgroup_bytes": c.max_workgroup_bytes,
            "invocations": c.max_invocations,
            "storage_buffers": c.max_storage_buffers,
            "workgroups_per_dimension": c.max_workgroups_per_dimension,
            "offset_alignment": c.offset_alignment,
        })
    });
    let kernels = e.kernels.iter().map(|k| {
        let refused = k.refused.iter().map(|(key, e)| json!({"key": key, "error": error(e)}));
        json!({
            "kernel": k.kernel,
            "compiled": k.compiled,
            "seconds": k.time.as_secs_f64(),
            "refused": refused.collect::<Vec<_>>(),
        })
    });
    let formats = e.formats.iter().map(|s| {
        json!({
            "format": s.format,
            "side": s.side.as_str(),
            "head_dim": s.head_dim,
            "bits_per_value": number(s.bits_per_value),
            "refusal": s.refusal.as_ref().map(error),
        })
    });
    let tests = e.verdicts.iter().map(|v| {
        json!({
            "k": v.format,
            "v": v.format,
            "passed": v.passed(),
            "worst_error": number(v.worst),
            "allowed": v.tolerance,
            "nmse": number(v.nmse),
            "known_nmse": v.known_nmse,
            "seconds": v.time.as_secs_f64(),
            "fault": v.fault.as_ref().map(error),
        })
    });
    let caps = e.caps.as_ref();
    let report = e.adapter.report();
    json!({
        "adapter": e.word,
        "name": caps.map(|c| c.adapter.as_str()).or(e.adapter.name()),
        "driver": caps.map(|c| c.driver.clone()).or(e.adapter.driver()),
        "device_type": caps.map_or(e.adapter.device_type(), |c| &c.device_type),
        "software": caps.map(|c| c.software).or(report.map(|r| r.software)),
        "tier": caps.map(|c| &c.tier),
        "limits": limits,
        "f16": caps.map(|c| c.f16),
        "subgroups": caps.and_then(|c| c.subgroups).map(|(least, most)| [least, most]),
        "masked": caps.map(|c| &c.masked),
        "features_in_use": caps.map(|c| &c.features),
        "features_offered": report.map(|r| &r.features),
        "refusal": e.refusal(),
        "untested": e.untested.as_ref().map(error),
        "fault": e.fault.as_ref().map(error),
        "kernels": kernels.collect::<Vec<_>>(),
        "formats": formats.collect::<Vec<_>>(),
        "self_tests": tests.collect::<Vec<_>>(),
        "passed": e.passed(),
        "seconds": e.time.as_secs_f64(),
    })
}
