//! What a trace says of where it was made, how it ends, and what ran, as names and values.

use crate::store::Store;
use crate::units;
use kvarto::trace::{Ending, GroupHeader};
use std::collections::BTreeSet;

/// A heading and what stands under it.
pub type Section = (&'static str, Vec<(String, String)>);

/// Cache groups, kernels, pairs of formats, faults that are listed.
const MOST: usize = 32;

/// All sections. `kernels` are the names of kernels that ran.
pub fn sections(store: &Store, kernels: &BTreeSet<String>) -> Vec<Section> {
    vec![
        ("Trace", trace(store)),
        ("Model", model(store)),
        ("Cache", cache(store)),
        ("Device", device(store)),
        ("Kernels and routes", routes(store, kernels)),
    ]
}

/// Adds the names of the kernels of a trace's times from place `from` on.
pub fn add_kernels(names: &mut BTreeSet<String>, store: &Store, from: usize) {
    let samples = store.chronicle.kernels.samples();
    for share in samples.iter().skip(from).flat_map(|sample| sample.what.kernels.iter()) {
        if names.len() < MOST && !names.contains(share.kernel.as_ref()) {
            names.insert(share.kernel.to_string());
        }
    }
}

fn or_not(text: &str) -> String {
    if text.is_empty() { "not in this trace".into() } else { text.into() }
}

fn line(name: &str, value: impl Into<String>) -> (String, String) {
    (name.into(), value.into())
}

fn trace(store: &Store) -> Vec<(String, String)> {
    let (header, chronicle) = (&store.header, &store.chronicle);
    let started = match header.started_unix_ms {
        0 => "not in this trace".into(),
        ms => utc(ms),
    };
    let ns = chronicle.end.ns.saturating_sub(chronicle.start_ns.unwrap_or(0));
    let counts = [
        units::counted(chronicle.events, "event", "events"),
        units::counted(chronicle.last_step, "step", "steps"),
        units::nanoseconds(ns),
    ];
    let ending = match &store.ending {
        None => "not known yet".into(),
        Some(Ending::Finished) => "finished, with its index".into(),
        Some(Ending::Unfinished) => "no index: it is still being written, or the program ended first".into(),
        Some(Ending::Cut(why)) => format!("cut: {why}"),
        Some(Ending::Damaged(why)) => format!("damaged: {why}"),
    };
    let by = if header.version.is_empty() { or_not("") } else { format!("kvarto {}", header.version) };
    let lost: u64 = chronicle.lost.items().iter().fold(0, |sum, lost| sum.saturating_add(lost.what));
    let mut lines = vec![
        line("source", or_not(&store.name)),
        line("written by", by),
        line("command", or_not(&header.command)),
        line("started", started),
        line("holds", counts.join(", ")),
        line("ending", ending),
        line("events lost", units::count(lost)),
    ];
    lines.extend(store.faults.iter().take(MOST).map(|fault| line("fault", fault.as_str())));
    lines
}

fn model(store: &Store) -> Vec<(String, String)> {
    let Some(model) = &store.header.model else { return vec![line("model", "none ran, or it is not in this trace")] };
    vec![
        line("name", or_not(&model.name)),
        line("architecture", or_not(&model.architecture)),
        line("SHA-256", or_not(&model.sha256)),
        line("weights", units::bytes(model.weight_bytes)),
    ]
}

fn cache(store: &Store) -> Vec<(String, String)> {
    let header = &store.header;
    let group = |(at, group): (usize, &GroupHeader)| {
        let kind = match group.window {
            Some(tokens) => format!("attending to {} tokens", units::count(tokens.into())),
            None => "attending to all tokens".into(),
        };
        let layers = units::counted(group.layers.len() as u64, "layer", "layers");
        let heads = format!("{} query and {} KV heads", group.q_heads, group.kv_heads);
        let shape =
            format!("K of {} and V of {} channels, pages of {} tokens", group.k_dim, group.v_dim, group.page_tokens);
        let [k, v] = &group.basis;
        line(&format!("group {at}"), format!("{layers} {kind}: {heads}, {shape}; basis of K {k}, of V {v}"))
    };
    let mut lines: Vec<_> = header.groups.iter().enumerate().take(MOST).map(group).collect();
    if header.groups.is_empty() {
        lines.push(line("groups", "not in this trace"));
    } else if header.groups.len() > MOST {
        lines.push(line("groups", format!("{} more", header.groups.len() - MOST)));
    }
    lines.push(line("profile", or_not(&header.profile)));
    lines.push(line("budget", header.kv_budget_bytes.map_or("none".into(), units::bytes)));
    lines
}

fn device(store: &Store) -> Vec<(String, String)> {
    let header = &store.header;
    let rate = header.copy_bytes_per_s.map(|rate| format!("{} read and written", units::bandwidth(rate)));
    vec![
        line("backend", or_not(&header.backend)),
        line("adapter", or_not(&header.adapter)),
        line("kernel tier", or_not(&header.tier)),
        line("timing", or_not(&header.timing)),
        line("copies", rate.unwrap_or_else(|| "not measured".into())),
    ]
}

fn routes(store: &Store, kernels: &BTreeSet<String>) -> Vec<(String, String)> {
    let ran = match kernels.is_empty() {
        true => "not in this trace (record with --timing kernels)".into(),
        false => kernels.iter().cloned().collect::<Vec<_>>().join(", "),
    };
    let pages = &store.state.pages;
    let held = pages.formats().iter().enumerate().filter(|(at, _)| pages.count_of(*at) > 0);
    let pairs: Vec<String> = held.take(MOST).map(|(_, (k, v))| format!("{k} / {v}")).collect();
    let read = match pairs.is_empty() {
        true => "no pages at the cursor".into(),
        false => format!("{}: attention reads each pair (K / V) as it is stored", pairs.join(", ")),
    };
    vec![line("kernels that ran", ran), line("pages at the cursor", read)]
}

/// A moment as date and time, UTC.
fn utc(unix_ms: u64) -> String {
    let (days, second) = (unix_ms / 86_400_000, unix_ms / 1000 % 86_400);
    // Years that begin in March have their leap day at the end; 719,468 days lie before 1970 in that calendar.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(951_868_799_999), "2000-02-29 23:59:59 UTC");
        assert_eq!(utc(1_796_063_356_198), "2026-11-30 18:29:16 UTC");
        assert_eq!(utc(4_102_444_800_000), "2100-01-01 00:00:00 UTC");
        assert!(utc(u64::MAX).ends_with(" UTC"));
    }
}
