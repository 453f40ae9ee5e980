//! The inspector: facts, history, bits and values of one page.

mod support;

use eframe::egui;
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT, Queryable};
use kvarto::engine::{Event, GroupFacts, PageFacts, SeqId, SequenceRows, Snapshot, StepFacts, Timed, TokenPiece};
use kvarto::format::FormatRegistry;
use kvarto::page::flags;
use kvarto::shape::{PageGeometry, Side};
use kvarto::trace::{GroupHeader, Header, TraceWriter};
use kvarto_viewer::app::App;
use kvarto_viewer::store::Place;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use support::*;

const TOKENS: u32 = 16;
const DIM: usize = 64;

fn place(sequence: u64, row: usize, number: u32) -> Place {
    Place { sequence: SeqId(sequence), group: 0, row, number }
}

fn page(page: u32, row: u32, number: u32, k: &str, v: &str, generation: u32) -> PageFacts {
    PageFacts {
        group: 0,
        page,
        layer: 4 + row / 2,
        kv_head: row % 2,
        number,
        formats: (k.into(), v.into()),
        slots: [page, page + 3],
        segment_group: 1,
        generation,
        flags: if k == "f16" { 0 } else { flags::SEALED },
        bytes: if k == "f16" { 4096 } else { 1200 },
    }
}

/// What a page of `format` holds whose values are a wave.
fn stored(format: &str, side: Side) -> Vec<u8> {
    let formats = FormatRegistry::builtin();
    let geometry = PageGeometry { tokens: TOKENS as usize, head_dim: DIM };
    let codec = formats.by_name(format).unwrap().1.codec(side, geometry).unwrap();
    let values: Vec<f32> = (0..geometry.values()).map(|n| (n as f32 * 0.13).sin() * (1 + n / DIM) as f32).collect();
    let mut words = vec![0; codec.layout().page_words];
    codec.encode(&values, &mut words);
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Events of a sequence of 40 tokens in four lists, a fork of it at 32, conversions, an eviction, bytes and errors.
fn events() -> Vec<Event> {
    let groups = vec![GroupFacts { page_tokens: TOKENS, layers: vec![4, 5], kv_heads: 2 }];
    let snapshot = Snapshot { groups, ..Snapshot::default() };
    let mut events = vec![Event::Resync { dropped: 0, snapshot: Box::new(snapshot) }];
    events.push(Event::SequenceCreated { sequence: SeqId(1) });
    for number in 0..3 {
        for row in 0..4 {
            let page = page(number * 4 + row, row, number, "f16", "f16", 1);
            events.push(Event::PageAllocated { sequence: SeqId(1), page, copy_of: None, reason: "rows".into() });
        }
    }
    let words = ["The", " page", " map", ".\n", " caf", "é", " is", " open"];
    let piece = |n: usize| TokenPiece { id: 100 + n as u32, text: words[n % words.len()].into() };
    events.push(Event::Tokens { sequence: SeqId(1), first_position: 0, tokens: (0..40).map(piece).collect() });
    events.push(step(1, SeqId(1), 0, 40));
    let to = |index: u32, number: u32| page(index, 0, number, "tq4", "tq3", 2);
    let from = (Arc::from("f16"), Arc::from("f16"));
    for (index, number) in [(0, 0), (4, 1)] {
        let (page, from) = (to(index, number), from.clone());
        events.push(Event::PageConverted { page, from, from_bytes: 4096, reason: "sealed".into() });
    }
    events.push(Event::PageError { page: to(0, 0), relative_rms: [0.0712, 0.1625], largest: [0.5, 1.25] });
    let sides = [stored("tq4", Side::K), stored("tq3", Side::V)];
    events.push(Event::PageData { page: to(0, 0), sides });
    events.push(Event::TokensPinned { sequence: SeqId(1), tokens: 4..9, reason: "asked".into() });
    events.push(step(2, SeqId(1), 40, 1));
    events.push(Event::SequenceForked { sequence: SeqId(2), from: SeqId(1), at_tokens: 32 });
    events.push(Event::PageEvicted { sequence: SeqId(1), page: to(4, 1), reason: "cold".into() });
    events.push(step(3, SeqId(1), 41, 1));
    let again = page(0, 0, 0, "tq2", "mine", 3);
    let from = (Arc::from("tq4"), Arc::from("tq3"));
    events.push(Event::PageConverted { page: again, from, from_bytes: 1200, reason: "old".into() });
    events.push(step(4, SeqId(1), 42, 1));
    events
}

fn step(step: u64, sequence: SeqId, first_position: u32, rows: u32) -> Event {
    let sequences = vec![SequenceRows { sequence, first_position, rows, committed: true }];
    Event::StepDone(StepFacts { step, rows, host_ns: 1_000_000, sequences, ..StepFacts::default() })
}

fn header() -> Header {
    let basis = ["hadamard".to_string(), "none".to_string()];
    let (k_dim, v_dim) = (DIM as u32, DIM as u32);
    let group = GroupHeader {
        layers: vec![4, 5],
        page_tokens: TOKENS,
        q_heads: 4,
        kv_heads: 2,
        k_dim,
        v_dim,
        basis,
        ..GroupHeader::default()
    };
    Header { command: "test".into(), groups: vec![group], ..Header::default() }
}

fn written(name: &str, header: &Header, events: Vec<Event>) -> PathBuf {
    let mut writer = TraceWriter::new(Vec::new(), header).unwrap();
    for (at, event) in events.into_iter().enumerate() {
        writer.push(&Timed { ns: 1000 + at as u64 * 1_000_000, event: Arc::new(event) }).unwrap();
    }
    let path = std::env::temp_dir().join(format!("kvarto-inspector-{name}-{}.kvtr", std::process::id()));
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    path
}

fn looking(app: App, place: Place) -> App {
    let mut app = app;
    app.selection.sequence = Some(place.sequence);
    app.selection.page = Some(place);
    app
}

fn made(name: &str, step: u64, at: Place) -> App {
    looking(app(&written(name, &header(), events()), Some(step)), at)
}

fn column(app: &App, name: &str) -> Vec<String> {
    let table = app.table("inspector").expect("a table");
    let at = table.head.iter().position(|head| head == name).expect("a column");
    table.rows.iter().map(|row| row[at].clone()).collect()
}

/// Draws until the page's bytes have come.
fn drawn<'a>(app: App, size: [f32; 2]) -> Harness<'a, App> {
    let mut shown = harness(app, Some("inspector"), size);
    let asked = std::time::Instant::now();
    while shown.state().player.page_data.is_none() && asked.elapsed() < PATIENCE {
        shown.step();
        std::thread::sleep(Duration::from_millis(5));
    }
    shown.run_steps(3);
    shown
}

#[test]
fn a_picture_of_a_page_with_its_values() {
    if can_draw() {
        let mut shown = drawn(made("picture", 2, place(1, 0, 0)), [900.0, 700.0]);
        picture(&mut shown, "inspector");
    }
}

#[test]
fn a_picture_in_light_and_narrow() {
    if can_draw() {
        let mut app = made("light", 2, place(1, 0, 0));
        app.settings.dark = false;
        let mut shown = drawn(app, [400.0, 900.0]);
        picture(&mut shown, "inspector-light-narrow");
    }
}

#[test]
fn a_history_has_what_became_of_the_page_before_and_after() {
    let app = made("history", 2, place(1, 0, 0));
    assert_eq!(column(&app, "change"), ["allocated", "converted", "converted"]);
    assert_eq!(column(&app, "step"), ["1", "2", "4"]);
    assert_eq!(column(&app, "reason"), ["rows", "sealed", "old"]);
    assert_eq!(column(&app, "K"), ["f16", "tq4", "tq2"]);
    let other = looking(app, place(1, 1, 0));
    assert_eq!(column(&other, "change"), ["allocated"]);
}

#[test]
fn a_fork_has_the_history_of_its_origin_and_none_of_what_came_later() {
    let mut app = made("fork", 4, place(1, 0, 1));
    assert_eq!(column(&app, "change"), ["allocated", "converted", "evicted"]);
    app = looking(app, place(2, 0, 1));
    assert_eq!(column(&app, "change"), ["allocated", "converted"]);
    // A shared page's conversion is the fork's as well; the third page is the origin's alone.
    assert_eq!(column(&looking(app, place(2, 0, 0)), "K"), ["f16", "tq4", "tq2"]);
}

#[test]
fn a_click_on_a_line_goes_there() {
    let mut shown = harness(made("click", 4, place(1, 0, 0)), Some("inspector"), [500.0, 800.0]);
    let line = shown
        .get_all_by_role(egui::accesskit::Role::Button)
        .find(|node| node.accesskit_node().label().is_some_and(|label| label.contains("allocated")));
    line.expect("the first line").click();
    shown.run_steps(3);
    let asked = std::time::Instant::now();
    while shown.state().player.store.state.pages.len() != 1 && asked.elapsed() < PATIENCE {
        shown.step();
        std::thread::sleep(Duration::from_millis(5));
    }
    // Its first page has just been allocated.
    assert_eq!(shown.state().player.store.state.pages.len(), 1);
    assert!(shown.state().player.store.page_at(place(1, 0, 0)).is_some());
}

#[test]
fn the_first_page_is_offered_and_neighbours_are_reached() {
    let mut app = made("offer", 2, place(1, 0, 0));
    app.selection.page = None;
    assert!(app.table("inspector").is_none());
    let mut shown = harness(app, Some("inspector"), [500.0, 600.0]);
    shown.get_by_label("Show the first page").click();
    shown.run_steps(3);
    assert_eq!(shown.state().selection.page, Some(place(1, 0, 0)));
    shown.get_by_label(">").click();
    shown.run_steps(3);
    assert_eq!(shown.state().selection.page, Some(place(1, 0, 1)));
    shown.get_by_label("<").click();
    shown.run_steps(3);
    assert_eq!(shown.state().selection.page, Some(place(1, 0, 0)));
}

#[test]
fn words_say_what_there_is_and_what_is_not() {
    let shown = drawn(made("words", 2, place(1, 0, 0)), [500.0, 1200.0]);
    for words in
        ["1,200 B, 4.688 bits a value", "0.0712 relative rms, 0.5000 at most", "pinned (tokens 4 to 8)", "sealed"]
    {
        assert!(shown.query_by_label(words).is_some(), "{words}");
    }
    // Another generation than the one whose bytes are held, and a format that is not built in.
    let shown = harness(made("later", 4, place(1, 0, 0)), Some("inspector"), [500.0, 1200.0]);
    assert!(shown.query_by_label_contains("bytes of generation 2; the page is at generation 3").is_some());
    assert!(shown.query_by_label("exact values not held in this trace").is_some());
    shown.get_by_label("V mine").click();
    let mut shown = shown;
    shown.run_steps(3);
    assert!(shown.query_by_label_contains("mine is no format that comes with the library").is_some());
    let shown = harness(made("gone", 4, place(1, 0, 1)), Some("inspector"), [500.0, 800.0]);
    assert!(shown.query_by_label_contains("was evicted").is_some());
    let without = events().into_iter().filter(|event| !matches!(event, Event::PageData { .. })).collect();
    let app = looking(app(&written("without", &header(), without), Some(2)), place(1, 0, 0));
    let shown = harness(app, Some("inspector"), [500.0, 1200.0]);
    assert!(shown.query_by_label_contains("Bytes of pages: not in this trace").is_some());
}

#[test]
fn damage_is_no_fault_of_the_view() {
    let mut wild = events();
    let mut page = page(0, 0, 0, "tq4", "tq3", 2);
    wild.push(Event::PageData { page: page.clone(), sides: [vec![1, 2, 3], vec![0xff; stored("tq3", Side::V).len()]] });
    (page.bytes, page.flags) = (u64::MAX, u16::MAX);
    let from = (Arc::from(""), Arc::from("tq3"));
    page.generation = u32::MAX;
    wild.push(Event::PageConverted { page: page.clone(), from, from_bytes: 0, reason: "".into() });
    page.formats = ("tq4".into(), "tq3".into());
    let sides = [vec![1, 2, 3], vec![0xff; stored("tq3", Side::V).len()]];
    wild.push(Event::PageError { page: page.clone(), relative_rms: [f32::NAN; 2], largest: [f32::INFINITY; 2] });
    wild.push(Event::PageData { page, sides });
    for (name, header) in [("damaged", header()), ("no-shapes", Header::default())] {
        let path = written(name, &header, wild.clone());
        for at in [place(1, 0, 0), place(1, 9, 0), place(1, 0, u32::MAX), place(77, usize::MAX, 3)] {
            let mut app = app(&path, None);
            app.selection.page = Some(at);
            drop(app.table("inspector"));
            let mut shown = harness(app, Some("inspector"), [300.0, 1600.0]);
            for _ in 0..10 {
                std::thread::sleep(Duration::from_millis(5));
                shown.step();
            }
        }
    }
}
