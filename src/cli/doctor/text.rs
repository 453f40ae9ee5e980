//! The report for people.

use super::super::report::bytes;
use super::Examined;
use kvarto::Error;
use kvarto::selftest::{HEAD_SIZES, Support};
use kvarto::shape::Side;
use std::fmt::Write;

/// The whole report; `no_cuda` says why no device of CUDA's is in it.
pub fn of(all: &[Examined], no_cuda: Option<&Error>) -> String {
    let mut rows = vec![["adapter", "name", "type", "tier", "kernels", "self-test", "time"].map(String::from)];
    for e in all {
        let (name, kind) = name_and_type(e);
        rows.push([
            e.word.clone(),
            name,
            kind,
            e.caps.as_ref().map_or("-".into(), |c| c.tier.clone()),
            match kernels(e) {
                (_, 0) => "-".into(),
                (good, all) if good == all => format!("{all}"),
                (good, all) => format!("{good} of {all}"),
            },
            if e.refusal().is_some() {
                "refused".into()
            } else if e.untested.is_some() {
                "not tested".into()
            } else if e.passed() {
                "pass".into()
            } else {
                "FAIL".into()
            },
            format!("{:.1} s", e.time.as_secs_f64()),
        ]);
    }
    let mut out = aligned(&rows, "");
    if let Some(error) = no_cuda {
        let _ = writeln!(out, "{}", error.message());
    }
    for e in all {
        let _ = write!(out, "\n{}", details(e));
    }
    out
}

fn name_and_type(e: &Examined) -> (String, String) {
    match &e.caps {
        Some(caps) => (caps.adapter.clone(), caps.device_type.clone()),
        None => (e.adapter.name().unwrap_or("-").into(), e.adapter.device_type().into()),
    }
}

/// Specialisations that compile, and all that were tried.
fn kernels(e: &Examined) -> (usize, usize) {
    let good = e.kernels.iter().map(|k| k.compiled).sum();
    (good, good + e.kernels.iter().map(|k| k.refused.len()).sum::<usize>())
}

fn details(e: &Examined) -> String {
    let mut out = format!("{}\n", e.word);
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "  {name:<11}{value}");
    };
    let (name, _) = name_and_type(e);
    line("name", name);
    let driver = e.caps.as_ref().map(|c| c.driver.clone()).or(e.adapter.driver());
    line("driver", driver.filter(|d| !d.is_empty()).unwrap_or_else(|| "not stated".into()));
    if let Some(reason) = e.refusal() {
        line("refused", reason.into());
        return out;
    }
    if let Some(c) = &e.caps {
        let number = |n: u32| if n == u32::MAX { "any".into() } else { n.to_string() };
        line("limits", format!("binding {}, buffer {}", bytes(c.max_binding_bytes), bytes(c.max_buffer_bytes)));
        let memory =
            if c.max_workgroup_bytes == u32::MAX { "any".into() } else { bytes(u64::from(c.max_workgroup_bytes)) };
        line(
            "",
            format!(
                "workgroup memory {memory}, invocations {}, storage buffers {}, workgroups a dimension {}",
                number(c.max_invocations),
                c.max_storage_buffers,
                number(c.max_workgroups_per_dimension)
            ),
        );
        let features = if c.features.is_empty() { "none".into() } else { c.features.join(", ") };
        line("features", format!("{features} (in use; nothing optional is required)"));
        if let Some((least, most)) = c.subgroups {
            line("subgroups", if least == most { format!("of {least}") } else { format!("of {least} to {most}") });
        }
        if !c.masked.is_empty() {
            line("masked", c.masked.join(", "));
        }
    }
    if let Some(error) = &e.untested {
        line("untested", format!("{}: what is built in serves, and nothing else can be compiled", error.message()));
        line("", error.remedy().into());
    }
    if !e.kernels.is_empty() {
        let names: Vec<String> = e.kernels.iter().map(|k| format!("{} {}", k.kernel, k.compiled)).collect();
        for (at, part) in names.chunks(6).enumerate() {
            line(if at == 0 { "kernels" } else { "" }, part.join(", "));
        }
    }
    for reason in by_reason(e.kernels.iter().flat_map(|k| &k.refused).map(|(key, error)| (key.clone(), error))) {
        line("refused", reason);
    }
    if let Some(error) = &e.fault {
        line("fault", error.to_string());
    }
    if !e.verdicts.is_empty() {
        let mut rows =
            vec![["self-test", "worst error", "allowed", "rounding", "known for", "time", ""].map(String::from)];
        for v in &e.verdicts {
            let time = format!("{:.2} s", v.time.as_secs_f64());
            let word = if v.passed() { "pass".to_string() } else { "FAIL".into() };
            let fault = v.fault.as_ref().map_or(word.clone(), |error| format!("{word}: {error}"));
            let numbers = [v.worst, v.tolerance, v.nmse, v.known_nmse].map(|x| format!("{x:.1e}"));
            let [worst, allowed, rounding, known] = numbers;
            rows.push([v.format.clone(), worst, allowed, rounding, known, time, fault]);
        }
        out += &aligned(&rows, "  ");
    }
    out + &formats(&e.formats)
}

fn formats(supports: &[Support]) -> String {
    if supports.is_empty() {
        return String::new();
    }
    let mut rows = vec![["format", "side"].into_iter().map(String::from).collect::<Vec<_>>()];
    rows[0].extend(HEAD_SIZES.map(|size| format!("head {size}")));
    let mut reasons = Vec::new();
    for first in supports.iter().filter(|s| s.head_dim == HEAD_SIZES[0]) {
        let side = if first.side == Side::K { "k" } else { "v" };
        let mut row = vec![first.format.clone(), side.into()];
        for size in HEAD_SIZES {
            let found =
                supports.iter().find(|s| s.format == first.format && s.side == first.side && s.head_dim == size);
            row.push(match found {
                None => "-".into(),
                Some(s) => match &s.refusal {
                    None => format!("{:.2} bits", s.bits_per_value),
                    Some(error) => {
                        reasons.push((format!("{} {side}, head {size}", s.format), error));
                        "refused".into()
                    }
                },
            });
        }
        rows.push(row);
    }
    let reasons = by_reason(reasons.into_iter()).into_iter().map(|r| format!("  {:<11}{r}\n", "refused"));
    aligned(&rows, "  ") + &reasons.collect::<String>()
}

/// One line a reason: how many were refused for it, and one of them. A driver that runs no kernel at all says the
/// same of each.
fn by_reason<'a>(refused: impl Iterator<Item = (String, &'a kvarto::Error)>) -> Vec<String> {
    let mut reasons: Vec<(String, String, usize)> = Vec::new();
    for (what, error) in refused {
        // The driver's own words end a message that quotes wgpu's chain of causes.
        let text = error.to_string();
        let reason = text.lines().map(str::trim).rfind(|l| !l.is_empty()).unwrap_or("no reason given").to_string();
        let reason = reason.strip_prefix(&format!("{what}: ")).unwrap_or(&reason).to_string();
        match reasons.iter_mut().find(|(known, ..)| *known == reason) {
            Some((_, _, count)) => *count += 1,
            None => reasons.push((reason, what, 1)),
        }
    }
    let line = |(reason, what, count): (String, String, usize)| match count {
        1 => format!("{what}: {reason}"),
        _ => format!("{what} and {} more: {reason}", count - 1),
    };
    reasons.into_iter().map(line).collect()
}

/// Rows in columns, two blanks apart, without blanks at the ends of lines.
pub fn aligned<R: AsRef<[String]>>(rows: &[R], indent: &str) -> String {
    let columns = rows.iter().map(|r| r.as_ref().len()).max().unwrap_or(0);
    let width = |at: usize| rows.iter().filter_map(|r| r.as_ref().get(at)).map(|c| c.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|at| width(at).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let cells: Vec<String> =
            row.as_ref().iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        let _ = writeln!(out, "{indent}{}", cells.join("  ").trim_end());
    }
    out
}
