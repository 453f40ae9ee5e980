//! The view of the device: what a header says, endings and faults, and a look at this machine.

mod support;

use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use kvarto::engine::{Event, GroupFacts, SeqId, Snapshot, Timed};
use kvarto::trace::{GroupHeader, Header, ModelHeader, TraceWriter};
use kvarto_viewer::app::App;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A file with these bytes.
fn written(name: &str, bytes: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("kvarto-device-{name}-{}.kvtr", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    path
}

fn bytes(header: &Header, events: Vec<Event>) -> Vec<u8> {
    let mut writer = TraceWriter::new(Vec::new(), header).unwrap();
    for (at, event) in events.into_iter().enumerate() {
        writer.push(&Timed { ns: at as u64, event: Arc::new(event) }).unwrap();
    }
    writer.finish().unwrap()
}

fn value(app: &App, name: &str) -> String {
    let table = app.table("device").unwrap();
    let row = table.rows.iter().find(|row| row[0] == name);
    row.unwrap_or_else(|| panic!("no row {name} in {table:?}"))[1].clone()
}

/// Draws until `done`.
fn until(harness: &mut Harness<'_, App>, what: &str, done: impl Fn(&Harness<'_, App>) -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !done(harness) {
        assert!(Instant::now() < end, "{what} did not come");
        std::thread::sleep(Duration::from_millis(20));
        harness.run_steps(1);
    }
}

#[test]
fn picture() {
    if !support::can_draw() {
        return;
    }
    let mut app = support::minima(None);
    // The file's place differs from machine to machine.
    app.player.store.name = "minima-kv.kvtr".into();
    let mut harness = support::harness(app, Some("device"), [760.0, 1150.0]);
    support::picture(&mut harness, "device");
}

#[test]
fn damage_in_a_narrow_window() {
    if !support::can_draw() {
        return;
    }
    let whole = std::fs::read(kvarto_viewer::samples::chat().unwrap()).unwrap();
    let mut app = support::app(&written("cut", &whole[..whole.len() * 2 / 3]), None);
    app.player.store.name = "cut.kvtr".into();
    app.messages.clear();
    let mut harness = support::harness(app, Some("device"), [400.0, 700.0]);
    harness.state_mut().settings.dark = false;
    harness.state_mut().messages.clear();
    harness.run_steps(4);
    support::picture(&mut harness, "device-cut-narrow-light");
}

#[test]
fn a_table_says_what_the_header_says() {
    let app = support::minima(None);
    assert_eq!(value(&app, "Trace: started"), "2026-11-30 18:29:16 UTC");
    assert_eq!(value(&app, "Trace: ending"), "finished, with its index");
    assert_eq!(value(&app, "Trace: holds"), "16,542 events, 207 steps, 30.0 s");
    assert_eq!(value(&app, "Model: architecture"), "llama");
    assert!(value(&app, "Cache: group 0").starts_with("30 layers attending to all tokens: 9 query and 3 KV heads"));
    assert_eq!(value(&app, "Device: copies"), "72.8 GB/s read and written");
    assert!(value(&app, "Kernels and routes: kernels that ran").contains("convert, decode, embed"));
    let pages = value(&app, "Kernels and routes: pages at the cursor");
    assert!(pages.contains("tq4 / tq3") && pages.contains("fp8 / fp8"), "{pages}");
    assert!(value(&app, "Cache: text of the profile").contains("age-anchor"));
    let start = support::minima(Some(1));
    assert!(!value(&start, "Kernels and routes: pages at the cursor").contains("tq4"));
}

#[test]
fn a_trace_that_says_nothing_is_told_so() {
    let snapshot = Snapshot { groups: vec![GroupFacts::default()], ..Snapshot::default() };
    let resync = Event::Resync { dropped: 12, snapshot: Box::new(snapshot) };
    let events = vec![Event::SequenceCreated { sequence: SeqId(1) }, resync];
    let app = support::app(&written("bare", &bytes(&Header::default(), events.clone())), None);
    for name in ["Trace: command", "Trace: started", "Device: adapter", "Cache: groups", "Cache: profile"] {
        assert_eq!(value(&app, name), "not in this trace", "{name}");
    }
    assert_eq!(value(&app, "Trace: events lost"), "12");
    assert!(value(&app, "Kernels and routes: kernels that ran").starts_with("not in this trace"));
    let wild = Header {
        started_unix_ms: u64::MAX,
        command: "x".repeat(5000),
        groups: vec![GroupHeader { layers: vec![u32::MAX], kv_heads: u32::MAX, ..GroupHeader::default() }; 100],
        copy_bytes_per_s: Some(-1.0),
        model: Some(ModelHeader { weight_bytes: u64::MAX, ..ModelHeader::default() }),
        profile_text: "\u{0}\n".repeat(2000),
        ..Header::default()
    };
    let app = support::app(&written("wild", &bytes(&wild, events)), None);
    assert_eq!(value(&app, "Cache: groups"), "68 more");
    let mut harness = support::harness(app, Some("device"), [400.0, 500.0]);
    harness.run_steps(2);
}

#[test]
fn a_cut_trace_says_where() {
    let whole = std::fs::read(kvarto_viewer::samples::chat().unwrap()).unwrap();
    let app = support::app(&written("where", &whole[..whole.len() * 2 / 3]), None);
    let ending = value(&app, "Trace: ending");
    assert!(ending.starts_with("cut: chunk ") && ending.contains("offset"), "{ending}");
    let harness = support::harness(app, Some("device"), [900.0, 900.0]);
    harness.get_by_label(&ending);
}

#[test]
fn this_machine_is_looked_at_beside_the_window() {
    let mut harness = support::harness(support::chat(None), Some("device"), [900.0, 2400.0]);
    assert!(harness.query_by_label("this machine's processor").is_none(), "nothing is asked of the machine unasked");
    harness.get_by_label("Look at this machine").click();
    harness.run_steps(2);
    until(&mut harness, "the list of adapters", |harness| harness.query_by_label("this machine's processor").is_some());
    harness.get_by_label("Stop");
    // The processor is the first that is looked at.
    until(&mut harness, "what came of the processor", |harness| harness.query_by_label("details of cpu").is_some());
    let row = value(harness.state(), "This machine: cpu");
    assert!(row.contains("pass: native tier") && row.contains("11 of 11 formats pass"), "{row}");
    harness.get_by_label("details of cpu").click();
    harness.run_steps(20);
    harness.get_by_label("q4_0");
    if let Some(stop) = harness.query_by_label("Stop") {
        stop.click();
    }
    until(&mut harness, "the end", |harness| harness.query_by_label("Look at this machine").is_some());
}
