//! The page map in a window.

mod support;

use eframe::egui::accesskit::Role;
use eframe::egui::{self, Modifiers, PointerButton, Pos2, pos2, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use kvarto::engine::{Event, GroupFacts, HeldPages, MassFacts, MemoryClasses, PageFacts, PageSet, ReadFacts, Reads};
use kvarto::engine::{SeqId, SequenceFacts, SequenceRows, Snapshot, StepFacts, Timed, TokenPiece};
use kvarto::trace::{GroupHeader, Header, TraceWriter};
use kvarto_viewer::app::App;
use kvarto_viewer::store::Place;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

const LAYERS: u32 = 3;
const HEADS: u32 = 2;
const PAGE: u32 = 16;

/// A page of the first sequence: its index follows from its place.
fn page(layer: u32, kv_head: u32, number: u32, formats: (&str, &str), generation: u32) -> PageFacts {
    PageFacts {
        group: 0,
        page: number * LAYERS * HEADS + layer * HEADS + kv_head,
        layer,
        kv_head,
        number,
        formats: (formats.0.into(), formats.1.into()),
        slots: [number, number],
        segment_group: 0,
        generation,
        flags: 1,
        bytes: 1024,
    }
}

/// Events of a sequence with `pages` pages a list in as many steps: a fork, anchors, pins, conversions, evictions, reads,
/// masses, errors.
fn events(pages: u32) -> Vec<Event> {
    let sequence = SeqId(1);
    let group = GroupFacts { page_tokens: PAGE, layers: (0..LAYERS).collect(), kv_heads: HEADS };
    let snapshot = Snapshot { groups: vec![group], ..Snapshot::default() };
    let mut events =
        vec![Event::Resync { dropped: 0, snapshot: Box::new(snapshot) }, Event::SequenceCreated { sequence }];
    let lists = || (0..LAYERS).flat_map(|layer| (0..HEADS).map(move |head| (layer, head)));
    for number in 0..pages {
        for (layer, head) in lists() {
            let page = page(layer, head, number, ("f16", "f16"), 1);
            events.push(Event::PageAllocated { sequence, page, copy_of: None, reason: "rows".into() });
            if number >= 4 && layer > 0 {
                let page = self::page(layer, head, number - 4, ("fp8", "tq3"), 2);
                let (from, reason) = (("f16".into(), "f16".into()), "aged".into());
                events.push(Event::PageConverted { page, from, from_bytes: 1024, reason });
            }
            if number >= 12 && layer == 2 && number % 3 == 0 {
                let page = self::page(layer, head, number - 10, ("fp8", "tq3"), 2);
                events.push(Event::PageEvicted { sequence, page, reason: "window".into() });
            }
        }
        let piece = |at: u32| TokenPiece { id: at, text: format!("word{at} ").into_bytes() };
        let first_position = number * PAGE;
        let tokens = (first_position..first_position + PAGE).map(piece).collect();
        events.push(Event::Tokens { sequence, first_position, tokens });
        let read = Reads::Same(PageSet::from_ranges(vec![number.saturating_sub(6)..number + 1]).unwrap());
        let step = u64::from(number) + 1;
        let visible = 0..number + 1;
        events.push(Event::UnitsRead(ReadFacts { step, sequence, group: 0, unit_tokens: PAGE, visible, read }));
        for layer in 0..LAYERS {
            let shares = vec![(0..=number).map(|n| 1.0 / (1.0 + n as f32)).collect(); HEADS as usize];
            events.push(Event::AttentionMass(MassFacts { step, sequence, group: 0, layer, first_page: 0, shares }));
        }
        let rows = vec![SequenceRows { sequence, first_position, rows: PAGE, committed: true }];
        events.push(Event::StepDone(StepFacts { step, rows: PAGE, sequences: rows, ..StepFacts::default() }));
    }
    events.push(Event::TokensAnchored { sequence, tokens: 0..PAGE });
    events.push(Event::TokensPinned { sequence, tokens: 5 * PAGE..7 * PAGE, reason: "kept".into() });
    let error = |number| Event::PageError {
        page: page(1, 0, number, ("fp8", "tq3"), 2),
        relative_rms: [0.01, f32::NAN],
        largest: [0.5, 0.5],
    };
    events.extend((0..pages.min(8)).map(error));
    let fork = SeqId(2);
    events.push(Event::SequenceForked { sequence: fork, from: sequence, at_tokens: 8 * PAGE });
    events.push(Event::MemoryUsed(MemoryClasses::default()));
    events
}

/// A trace of these events in a folder for temporary files.
fn written(name: &str, events: Vec<Event>) -> PathBuf {
    let group = GroupHeader {
        layers: (0..LAYERS).collect(),
        kind: "full".into(),
        page_tokens: PAGE,
        q_heads: 2 * HEADS,
        kv_heads: HEADS,
        k_dim: 32,
        v_dim: 32,
        ..GroupHeader::default()
    };
    let header = Header { command: "made".into(), profile: "made".into(), groups: vec![group], ..Header::default() };
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    for (at, event) in events.into_iter().enumerate() {
        writer.push(&Timed { ns: 1_000_000 * at as u64, event: Arc::new(event) }).unwrap();
    }
    let folder = std::env::temp_dir().join(format!("kvarto-page-map-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{name}.kvtr"));
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    path
}

/// The map of a made trace at its end, alone in a window of [`SIZE`].
fn made(name: &str) -> Harness<'static, App> {
    let app = support::app(&written(name, events(24)), None);
    support::harness(app, Some("page-map"), SIZE)
}

const SIZE: [f32; 2] = [760.0, 420.0];
/// Upper left corner of the picture in the window, and sides of a cell, which are as pleasant as they get.
const CORNER: Pos2 = pos2(66.0, 104.0);
const CELL: egui::Vec2 = vec2(22.0, 26.0);

/// The middle of a page.
fn spot(row: usize, number: u32) -> Pos2 {
    CORNER + vec2(CELL.x * (number as f32 + 0.5), CELL.y * (row as f32 + 0.5))
}

fn go(harness: &mut Harness<'_, App>, pos: Pos2) {
    harness.event(egui::Event::PointerMoved(pos));
    harness.run_steps(2);
}

fn press(harness: &mut Harness<'_, App>, pos: Pos2, pressed: bool, modifiers: Modifiers) {
    harness.event(egui::Event::PointerButton { pos, button: PointerButton::Primary, pressed, modifiers });
    harness.run_steps(2);
}

fn click(harness: &mut Harness<'_, App>, pos: Pos2) {
    go(harness, pos);
    press(harness, pos, true, Modifiers::NONE);
    press(harness, pos, false, Modifiers::NONE);
}

fn place(row: usize, number: u32) -> Place {
    Place { sequence: SeqId(1), group: 0, row, number }
}

#[test]
fn pictures_of_the_sample() {
    if !support::can_draw() {
        return;
    }
    let mut results = egui_kittest::SnapshotResults::new();
    for (name, light, step, size) in [
        ("page_map", false, None, [1000.0, 560.0]),
        ("page_map_light_early", true, Some(4), [1000.0, 560.0]),
        ("page_map_narrow", false, Some(100), [420.0, 400.0]),
    ] {
        let mut app = support::minima(step);
        app.settings.dark = !light;
        let mut harness = support::harness(app, Some("page-map"), size);
        support::picture(&mut harness, name);
        results.extend(harness.take_snapshot_results());
    }
}

#[test]
fn a_picture_of_marks_and_of_what_a_tooltip_says() {
    if !support::can_draw() {
        return;
    }
    let mut harness = made("marks");
    harness.state_mut().selection.brush = Some(18..21);
    click(&mut harness, spot(3, 5));
    go(&mut harness, spot(4, 9));
    support::picture(&mut harness, "page_map_marks");
}

#[test]
fn a_click_selects_the_page_under_the_pointer_and_the_pointer_hovers_it() {
    let mut harness = made("click");
    go(&mut harness, spot(2, 7));
    assert_eq!(harness.state().selection.hover, Some(place(2, 7)));
    assert!(harness.query_by_label_contains("layer 1 · KV head 0 · page 7").is_some());
    assert!(harness.query_by_label_contains("K fp8 · V tq3").is_some());
    assert!(harness.query_by_label_contains("128.00 bits").is_none());
    assert!(harness.query_by_label_contains("8.00 bits a value").is_some(), "1024 bytes of 16 × 64 values");
    assert!(harness.query_by_label_contains("word112 word113").is_some());
    assert!(harness.query_by_label_contains("2 sequences, shared").is_some());
    click(&mut harness, spot(5, 20));
    assert_eq!(harness.state().selection.page, Some(place(5, 20)));
    go(&mut harness, spot(4, 2));
    assert!(harness.query_by_label_contains("evicted").is_some());
    // Beside the map: nothing.
    click(&mut harness, pos2(CORNER.x + 300.0, CORNER.y + 26.0 * 6.0 + 60.0));
    assert_eq!(harness.state().selection.page, None);
}

#[test]
fn shift_and_drag_brush_pages_and_drags_pan() {
    let mut harness = made("brush");
    go(&mut harness, spot(1, 4));
    harness.event(egui::Event::PointerMoved(spot(1, 4)));
    harness.event(egui::Event::ModifiersChanged(Modifiers::SHIFT));
    press(&mut harness, spot(1, 4), true, Modifiers::SHIFT);
    for number in 5..9 {
        go(&mut harness, spot(1, number));
    }
    press(&mut harness, spot(1, 8), false, Modifiers::SHIFT);
    assert_eq!(harness.state().selection.brush, Some(4..9));
    harness.event(egui::Event::ModifiersChanged(Modifiers::NONE));
    // Near, then one page to the right: the pointer is over the page before.
    go(&mut harness, spot(1, 10));
    for _ in 0..3 {
        let (unit, phase) = (egui::MouseWheelUnit::Point, egui::TouchPhase::Move);
        let (delta, modifiers) = (vec2(0.0, 300.0), Modifiers::NONE);
        let source = egui::MouseWheelSource::Wheel;
        harness.event(egui::Event::MouseWheel { unit, delta, modifiers, phase, source });
        harness.run_steps(12);
    }
    assert_eq!(harness.state().selection.hover, Some(place(1, 10)), "zooming keeps what is under the pointer");
    let at = spot(1, 10);
    press(&mut harness, at, true, Modifiers::NONE);
    go(&mut harness, at + vec2(80.0, 0.0));
    go(&mut harness, at + vec2(160.0, 0.0));
    press(&mut harness, at + vec2(160.0, 0.0), false, Modifiers::NONE);
    assert_eq!(harness.state().selection.hover, Some(place(1, 10)), "what is held stays under the pointer");
    go(&mut harness, at);
    assert_ne!(harness.state().selection.hover, Some(place(1, 10)));
    harness.get_by_label("See all").click();
    harness.run_steps(3);
    go(&mut harness, at);
    assert_eq!(harness.state().selection.hover, Some(place(1, 10)));
}

#[test]
fn rows_fold_and_a_label_chooses_a_list() {
    let mut harness = made("fold");
    click(&mut harness, pos2(30.0, spot(3, 0).y));
    assert_eq!(harness.state().selection.row, Some(3));
    click(&mut harness, pos2(30.0, spot(3, 0).y));
    assert_eq!(harness.state().selection.row, None);
    harness.get_by_label("layers").click();
    harness.run_steps(3);
    go(&mut harness, spot(2, 20));
    assert_eq!(harness.state().selection.hover, Some(place(4, 20)), "layer 2 begins with list 4");
    harness.get_by_label("all").click();
    harness.run_steps(3);
    go(&mut harness, spot(0, 20));
    assert_eq!(harness.state().selection.hover, Some(place(0, 20)));
}

#[test]
fn brightness_says_what_is_not_in_the_trace() {
    let without: Vec<Event> =
        events(24).into_iter().filter(|event| !matches!(event, Event::PageError { .. })).collect();
    let mut harness = support::harness(support::app(&written("bare", without), None), Some("page-map"), SIZE);
    harness.get_by_role_and_label(Role::ComboBox, "Brightness").click();
    harness.run_steps(6);
    assert!(harness.query_by_label("error · not in this trace").is_some());
    assert!(harness.query_by_label("attention mass").is_some());
    let mut harness = made("brightness");
    for word in ["attention mass", "reads", "age", "error"] {
        harness.get_by_role_and_label(Role::ComboBox, "Brightness").click();
        harness.run_steps(3);
        harness.get_by_label(word).click();
        harness.run_steps(4);
        if support::can_draw() && word == "reads" {
            support::picture(&mut harness, "page_map_reads");
        }
    }
}

#[test]
fn the_table_has_runs_of_equal_pages() {
    let harness = made("table");
    let table = harness.state().table("page-map").unwrap();
    let row = |layer: &str, head: &str| -> Vec<&[String]> {
        table.rows.iter().filter(|row| row[0] == layer && row[1] == head).map(|row| &row[2..]).collect()
    };
    let first = row("0", "1");
    assert_eq!(first[0], ["0", "0", "f16", "f16", "1024", "1024", "yes", "no", "2"]);
    assert_eq!(first[1], ["1", "4", "f16", "f16", "1024", "4096", "no", "no", "2"]);
    assert_eq!(first[2], ["5", "6", "f16", "f16", "1024", "2048", "no", "yes", "2"]);
    assert_eq!(first.last().unwrap()[..2], ["8", "23"]);
    let last = row("2", "0");
    assert_eq!(last[1], ["1", "1", "fp8", "tq3", "1024", "1024", "no", "no", "2"]);
    assert_eq!(last[2], ["2", "2", "evicted", "evicted", "0", "0", "no", "no", "0"]);
    for (layer, head) in [("0", "0"), ("1", "1"), ("2", "1")] {
        let mut next = 0;
        for run in row(layer, head) {
            assert_eq!(run[0], next.to_string(), "runs follow each other");
            next = run[1].parse::<u32>().unwrap() + 1;
        }
        assert_eq!(next, 24);
    }
}

#[test]
fn damaged_states_are_drawn_somehow() {
    let sequence = SeqId(9);
    let held = |rows| SequenceFacts {
        sequence,
        logical: u32::MAX,
        committed: 0,
        groups: vec![HeldPages { first: u32::MAX - 2, rows }, HeldPages::default()],
        pins: vec![Range { start: 9, end: 3 }, 0..u32::MAX],
        anchors: vec![u32::MAX - 1..u32::MAX],
    };
    let odd = PageFacts { number: u32::MAX, bytes: u64::MAX, flags: u16::MAX, ..page(7, 9, 3, ("", "?"), 0) };
    let states = [
        (GroupFacts { page_tokens: 0, layers: vec![], kv_heads: 0 }, vec![]),
        (GroupFacts { page_tokens: 0, layers: vec![1, 1], kv_heads: 0 }, vec![vec![Some(9), None, Some(u32::MAX)]; 5]),
        (GroupFacts { page_tokens: u32::MAX, layers: vec![u32::MAX], kv_heads: u32::MAX }, vec![vec![], vec![None; 9]]),
    ];
    for (number, (group, rows)) in states.into_iter().enumerate() {
        let snapshot = Snapshot {
            groups: vec![group, GroupFacts::default()],
            sequences: vec![held(rows)],
            pages: vec![odd.clone()],
            ..Snapshot::default()
        };
        let shares = vec![vec![f32::NAN, -1.0, f32::INFINITY]; 3];
        let mass = MassFacts { step: 0, sequence, group: 0, layer: 1, first_page: u32::MAX, shares };
        let events = vec![
            Event::Resync { dropped: 3, snapshot: Box::new(snapshot) },
            Event::AttentionMass(mass),
            Event::PageEvicted { sequence, page: odd.clone(), reason: "odd".into() },
        ];
        let app = support::app(&written(&format!("damaged{number}"), events), None);
        let mut harness = support::harness(app, Some("page-map"), [500.0, 300.0]);
        for x in 0..25 {
            go(&mut harness, pos2(20.0 * x as f32, 100.0 + 7.0 * x as f32));
        }
        for group in [0, 1, 7] {
            harness.state_mut().selection.group = group;
            harness.state_mut().selection.hover = Some(place(usize::MAX, u32::MAX));
            harness.state_mut().selection.brush = Some(Range { start: 7, end: 2 });
            harness.run_steps(2);
            let _ = harness.state().table("page-map");
        }
    }
}
