//! Two traces on one clock: figures, the difference map, curves.

mod support;

use eframe::egui;
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use kvarto::engine::{
    Event, GroupFacts, MemoryClasses, PageFacts, SeqId, SequenceRows, SideBytes, Snapshot, StepFacts, Timed,
};
use kvarto::shape::Side;
use kvarto::trace::{GroupHeader, Header, TraceWriter};
use kvarto_viewer::app::App;
use kvarto_viewer::samples;
use kvarto_viewer::store::Place;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::*;

/// What a made-up trace is like.
#[derive(Clone, Copy)]
struct Make {
    layers: u32,
    heads: u32,
    size: u32,
    /// The K format and bytes that every second page is converted to in the second step.
    to: (&'static str, u64),
    pages: u32,
    host_ns: u64,
}

const A: Make = Make { layers: 3, heads: 2, size: 16, to: ("tq4", 700), pages: 12, host_ns: 3_000_000 };

/// `pages` pages in every list after the first step, conversions in the second, then two steps of one row.
fn events(make: Make) -> Vec<Event> {
    let sequence = SeqId(1);
    let Make { layers, heads, size, to, pages, host_ns } = make;
    let groups = vec![GroupFacts { page_tokens: size, layers: (0..layers).collect(), kv_heads: heads }];
    let snapshot = Box::new(Snapshot { groups, ..Snapshot::default() });
    let mut events = vec![Event::Resync { dropped: 0, snapshot }, Event::SequenceCreated { sequence }];
    let facts = |number: u32, row: u32, k: &str, bytes: u64| PageFacts {
        group: 0,
        page: number * layers * heads + row,
        layer: row / heads,
        kv_head: row % heads,
        number,
        formats: (k.into(), "tq3".into()),
        slots: [number; 2],
        segment_group: 0,
        generation: if k == "f16" { 1 } else { 2 },
        flags: 0,
        bytes,
    };
    let all = || (0..pages).flat_map(|number| (0..layers * heads).map(move |row| (number, row)));
    let mut bytes = 0;
    for (number, row) in all() {
        bytes += 1500;
        let page = facts(number, row, "f16", 1500);
        events.push(Event::PageAllocated { sequence, page, copy_of: None, reason: "rows".into() });
    }
    let step = |step: u64, first_position: u32, rows: u32| {
        let sequences = vec![SequenceRows { sequence, first_position, rows, committed: true }];
        Event::StepDone(StepFacts { step, rows, host_ns, sequences, ..StepFacts::default() })
    };
    let used = |bytes: u64| {
        let pages = vec![SideBytes { side: Side::K, format: "f16".into(), bytes }];
        Event::MemoryUsed(MemoryClasses { pages, segment_bytes: bytes, ..MemoryClasses::default() })
    };
    events.extend([used(bytes), step(1, 0, pages * size - 4)]);
    for (number, row) in all().filter(|(number, row)| (number + row) % 2 == 0) {
        bytes -= 1500 - to.1;
        let (page, from) = (facts(number, row, to.0, to.1), ("f16".into(), "tq3".into()));
        events.push(Event::PageConverted { page: page.clone(), from, from_bytes: 1500, reason: "sealed".into() });
        let rms = if to.0 == "tq4" { 0.07 } else { 0.15 };
        events.push(Event::PageError { page, relative_rms: [rms; 2], largest: [1.0; 2] });
    }
    events.extend([used(bytes), step(2, pages * size - 4, 1), step(3, pages * size - 3, 1)]);
    events
}

fn written(name: &str, make: Make, events: Vec<Event>) -> PathBuf {
    let layers = (0..make.layers).collect();
    let (page_tokens, kv_heads) = (make.size, make.heads);
    let group = GroupHeader { layers, page_tokens, kv_heads, k_dim: 64, v_dim: 64, ..GroupHeader::default() };
    let profile = make.to.0.to_string();
    let header = Header { command: "test".into(), profile, groups: vec![group], ..Header::default() };
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    for (at, event) in events.into_iter().enumerate() {
        writer.push(&Timed { ns: 1000 + at as u64 * 1000, event: Arc::new(event) }).unwrap();
    }
    let folder = std::env::temp_dir().join(format!("kvarto-compare-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{name}.kvtr"));
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    path
}

fn made(name: &str, make: Make) -> PathBuf {
    written(name, make, events(make))
}

/// Both at the end of a step.
fn both(a: &Path, b: &Path, step: Option<u64>) -> App {
    let mut app = app(a, step);
    app.compare(b);
    app.settle(step, PATIENCE).expect("traces");
    app
}

fn two(name: &str, make_b: Make, step: u64) -> App {
    both(&made(&format!("{name}-a"), A), &made(&format!("{name}-b"), make_b), Some(step))
}

fn figure(app: &App, name: &str) -> [String; 3] {
    let table = app.table("compare").expect("a table");
    let row = table.rows.iter().find(|row| row[0] == name).expect("a figure");
    [row[1].clone(), row[2].clone(), row[3].clone()]
}

const B: Make = Make { to: ("tq2", 400), host_ns: 2_000_000, ..A };

#[test]
fn a_picture_of_two_traces() {
    if can_draw() {
        let mut shown = harness(two("picture", B, 2), Some("compare"), [1000.0, 700.0]);
        picture(&mut shown, "compare");
    }
}

#[test]
fn a_picture_in_light_and_narrow_with_other_shapes() {
    if can_draw() {
        let mut app = two("narrow", Make { layers: 2, size: 32, pages: 8, ..B }, 3);
        app.settings.dark = false;
        let mut shown = harness(app, Some("compare"), [420.0, 800.0]);
        shown.get_by_label("formats").click();
        shown.run_steps(4);
        picture(&mut shown, "compare-light-narrow");
    }
}

#[test]
fn figures_are_of_both_and_differ() {
    let app = two("figures", B, 3);
    assert_eq!(figure(&app, "Tokens, sequence"), ["190", "190", "the same"]);
    assert_eq!(figure(&app, "Pages"), ["72", "72", "the same"]);
    assert_eq!(figure(&app, "Conversions so far"), ["36", "36", "the same"]);
    // 36 pages of 1 500 bytes and 36 of 700, or 400.
    assert_eq!(figure(&app, "Bytes of pages"), ["77.3 KiB", "66.8 KiB", "+10.5 KiB (+16 %)"]);
    assert_eq!(figure(&app, "Median decode step"), ["3.000 ms", "2.000 ms", "+1.000 ms (+50 %)"]);
    let early = two("early", B, 1);
    assert_eq!(figure(&early, "Conversions so far"), ["0", "0", "the same"]);
    assert_eq!(figure(&early, "Bytes of pages")[2], "the same");
}

#[test]
fn without_a_second_trace_one_is_asked_for() {
    let app = app(&made("ask", A), None);
    assert!(app.table("compare").is_none());
    let mut shown = harness(app, Some("compare"), [700.0, 400.0]);
    let path = made("asked", B);
    let input = egui::accesskit::Role::TextInput;
    shown.get_by_role(input).focus();
    shown.step();
    shown.get_by_role(input).type_text(&path.display().to_string());
    shown.run_steps(2);
    // The tab has the same name.
    shown.get_all_by_label("Compare").last().expect("a button").click();
    shown.run_steps(3);
    assert_eq!(shown.state().other.as_ref().and_then(|other| other.path()), Some(path.as_path()));
    // What it says of the second trace moves its buttons while that is read.
    let end = std::time::Instant::now() + support::PATIENCE;
    while shown.state().other.as_ref().is_some_and(|other| other.waits()) && std::time::Instant::now() < end {
        shown.step();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    shown.run_steps(3);
    shown.get_by_label("End comparison").click();
    shown.run_steps(3);
    assert!(shown.state().other.is_none());
    shown.get_by_label("The sample: a chat with a fork").click();
    shown.run_steps(3);
    let chat = samples::chat().expect("a sample");
    assert_eq!(shown.state().other.as_ref().and_then(|other| other.path()), Some(chat.as_path()));
}

#[test]
fn shapes_that_differ_are_said() {
    let other = Make { layers: 2, size: 32, pages: 6, ..B };
    let shown = harness(two("shapes", other, 2), Some("compare"), [900.0, 700.0]);
    for words in [
        "They differ in layers of the group: A has 3, B has 2.",
        "They differ in tokens of a page: A has 16, B has 32.",
        "Only the 4 lists that both have are shown.",
    ] {
        assert!(shown.query_by_label(words).is_some(), "{words}");
    }
    // Two pages of A stand beside one of B: 1 500 + 700 bytes beside 1 500 or 400.
    assert!(shown.query_by_label("A takes up to 1.76 KiB more").is_some());
}

/// Where the map is: below its line of words.
fn map(shown: &Harness<'_, App>) -> egui::Rect {
    let above = shown.get_by_label_contains("Down: ").rect();
    egui::Rect::from_min_size(above.left_bottom() + egui::vec2(0.0, 3.0), egui::vec2(980.0, 60.0))
}

#[test]
fn the_map_tells_the_page_under_the_pointer_and_selects_it() {
    let mut shown = harness(two("map", B, 2), Some("compare"), [1000.0, 700.0]);
    assert!(shown.query_by_label("A takes up to 300 B more").is_some());
    let map = map(&shown);
    // The fourth list of six, the third page of twelve.
    let at = map.min + egui::vec2(map.width() * 2.5 / 12.0, map.height() * 3.5 / 6.0);
    shown.hover_at(at);
    shown.run_steps(3);
    let place = Place { sequence: SeqId(1), group: 0, row: 3, number: 2 };
    assert_eq!(shown.state().selection.hover, Some(place));
    for pressed in [true, false] {
        let (button, modifiers) = (egui::PointerButton::Primary, egui::Modifiers::NONE);
        shown.event(egui::Event::PointerButton { pos: at, button, pressed, modifiers });
        shown.step();
    }
    shown.run_steps(2);
    assert_eq!(shown.state().selection.page, Some(place));
}

#[test]
fn errors_are_compared_where_both_have_them() {
    let mut shown = harness(two("errors", B, 2), Some("compare"), [1000.0, 700.0]);
    shown.get_by_label("errors").click();
    shown.run_steps(4);
    assert!(shown.query_by_label("A's is up to 0.0800 larger").is_some());
    let without = events(B).into_iter().filter(|event| !matches!(event, Event::PageError { .. })).collect();
    let app = both(&made("errors-a", A), &written("without", B, without), Some(2));
    let mut shown = harness(app, Some("compare"), [1000.0, 700.0]);
    shown.get_by_label("errors").click();
    shown.run_steps(4);
    assert!(shown.query_by_label_contains("Errors of pages: not in both traces").is_some());
}

#[test]
fn damage_is_no_fault_of_the_view() {
    let none = vec![Event::SequenceCreated { sequence: SeqId(9) }];
    let empty = GroupFacts { page_tokens: 0, layers: vec![u32::MAX, 0], kv_heads: u32::MAX };
    let odd = Snapshot { groups: vec![GroupFacts::default(), empty], ..Snapshot::default() };
    let odd = vec![Event::Resync { dropped: u64::MAX, snapshot: Box::new(odd) }];
    let mut wild = events(A);
    let sequences =
        vec![SequenceRows { sequence: SeqId(1), first_position: u32::MAX, rows: u32::MAX, committed: true }];
    wild.push(Event::StepDone(StepFacts {
        step: u64::MAX,
        rows: 1,
        host_ns: u64::MAX,
        sequences,
        ..StepFacts::default()
    }));
    let wild = written("wild", A, wild);
    for (name, events) in [("none", none), ("odd", odd)] {
        let other = written(name, A, events);
        for pair in [[&wild, &other], [&other, &wild]] {
            let mut app = app(pair[0], None);
            app.compare(pair[1]);
            app.selection.group = 1;
            drop(app.table("compare"));
            let mut shown = harness(app, Some("compare"), [300.0, 600.0]);
            for mode in ["formats", "errors", "bytes"] {
                if let Some(mode) = shown.query_by_label(mode) {
                    mode.click();
                }
                shown.run_steps(3);
                shown.hover_at(egui::pos2(100.0, 300.0));
                shown.run_steps(2);
            }
        }
    }
}
