//! The sparsity mask in a window.

mod support;

use eframe::egui::accesskit::Role;
use eframe::egui::{self, Modifiers, PointerButton, Pos2, pos2, vec2};
use egui_kittest::kittest::Queryable;
use egui_kittest::{Harness, SnapshotResults};
use kvarto::engine::Timed;
use kvarto::engine::{
    Event, GroupFacts, PageFacts, PageSet, ReadFacts, Reads, SeqId, SequenceRows, Snapshot, StepFacts,
};
use kvarto::trace::{Header, TraceWriter};
use kvarto_viewer::app::App;
use kvarto_viewer::store::Place;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const STEPS: u32 = 60;
const LISTS: u32 = 4;
const SIZE: [f32; 2] = [760.0, 620.0];
/// Upper left corner of the mask in the window, and sides of what a step read of a page.
const CORNER: Pos2 = pos2(66.0, 135.0);
const CELL: egui::Vec2 = vec2(504.0 / STEPS as f32, 6.0);

fn page(row: u32, number: u32) -> PageFacts {
    PageFacts {
        group: 0,
        page: number * LISTS + row,
        layer: row / 2,
        kv_head: row % 2,
        number,
        formats: ("f16".into(), "f16".into()),
        slots: [number, number],
        segment_group: 0,
        generation: 1,
        flags: 1,
        bytes: 64,
    }
}

/// A step a page: all pages are read at first, then a window and a sink, then other pages in each list; from step 30 on
/// two pages are gone.
fn events() -> Vec<Event> {
    let sequence = SeqId(1);
    let group = GroupFacts { page_tokens: 16, layers: vec![0, 1], kv_heads: 2 };
    let snapshot = Snapshot { groups: vec![group], ..Snapshot::default() };
    let mut events =
        vec![Event::Resync { dropped: 0, snapshot: Box::new(snapshot) }, Event::SequenceCreated { sequence }];
    for step in 1..=STEPS {
        for row in 0..LISTS {
            let page = page(row, step - 1);
            events.push(Event::PageAllocated { sequence, page, copy_of: None, reason: "rows".into() });
            if step == 30 {
                for number in 3..9 {
                    events.push(Event::PageEvicted {
                        sequence,
                        page: self::page(row, number),
                        reason: "window".into(),
                    });
                }
            }
        }
        let read = match step {
            1..=20 => Reads::All,
            21..=40 => Reads::Same(PageSet::from_ranges(vec![0..1, step - 6..step]).unwrap()),
            _ => Reads::Rows((0..LISTS).map(|row| list(step, row)).collect()),
        };
        let visible = 0..step;
        let step = u64::from(step);
        events.push(Event::UnitsRead(ReadFacts { step, sequence, group: 0, unit_tokens: 16, visible, read }));
        if step > 20 && step.is_multiple_of(2) {
            for row in 0..LISTS {
                let (layer, kv_head) = (row / 2, row % 2);
                let (mass_kept, recall) = (1.0 - 0.1 * row as f32, 0.5);
                events.push(Event::SelectionQuality { step, sequence, layer, kv_head, mass_kept, recall });
            }
        }
        let first_position = (step as u32 - 1) * 16;
        let rows = vec![SequenceRows { sequence, first_position, rows: 16, committed: true }];
        let read_bytes = 1000 * step;
        events.push(Event::StepDone(StepFacts { step, rows: 16, read_bytes, sequences: rows, ..StepFacts::default() }));
    }
    events
}

/// What a list reads in the last steps: list 0 a dyadic pattern, the others some pages.
fn list(step: u32, row: u32) -> PageSet {
    match row {
        0 => PageSet::of([0, 1, 2, 4, 8, 16, 32].map(|distance| step - 1 - distance).to_vec()),
        row => PageSet::of((0..step).filter(|number| (number * 7 + row) % 5 == 0).collect()),
    }
}

fn written(name: &str, events: Vec<Event>) -> PathBuf {
    let header = Header { command: "made".into(), profile: "made".into(), ..Header::default() };
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    for (at, event) in events.into_iter().enumerate() {
        writer.push(&Timed { ns: 1_000_000 * at as u64, event: Arc::new(event) }).unwrap();
    }
    let folder = std::env::temp_dir().join(format!("kvarto-mask-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{name}.kvtr"));
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    path
}

fn made(name: &str, row: Option<usize>) -> Harness<'static, App> {
    let mut app = support::app(&written(name, events()), None);
    app.selection.row = row;
    support::harness(app, Some("mask"), SIZE)
}

/// The middle of what step `step` did with a page.
fn spot(step: u32, number: u32) -> Pos2 {
    CORNER + vec2(CELL.x * (number as f32 + 0.5), CELL.y * (step as f32 - 0.5))
}

fn go(harness: &mut Harness<'_, App>, pos: Pos2) {
    harness.event(egui::Event::PointerMoved(pos));
    harness.run_steps(2);
}

fn click(harness: &mut Harness<'_, App>, pos: Pos2) {
    go(harness, pos);
    for pressed in [true, false] {
        let (button, modifiers) = (PointerButton::Primary, Modifiers::NONE);
        harness.event(egui::Event::PointerButton { pos, button, pressed, modifiers });
        harness.run_steps(2);
    }
}

fn says(harness: &Harness<'_, App>, words: &str) -> bool {
    harness.query_all_by_label_contains(words).next().is_some()
}

#[test]
fn pictures() {
    if !support::can_draw() {
        return;
    }
    let mut results = SnapshotResults::new();
    for (name, row, light, size) in [
        ("mask_mean", None, false, SIZE),
        ("mask_dyadic_light", Some(0), true, SIZE),
        ("mask_narrow", Some(2), false, [420.0, 400.0]),
    ] {
        let mut app = support::app(&written(name, events()), None);
        app.settings.dark = !light;
        app.selection.row = row;
        let mut harness = support::harness(app, Some("mask"), size);
        go(&mut harness, if light { pos2(1.0, 1.0) } else { spot(50, 7) });
        support::picture(&mut harness, name);
        results.extend(harness.take_snapshot_results());
    }
}

#[test]
fn the_head_line_names_closed_forms() {
    for (step, row, words) in [
        (20, None, "Step 20: all 20 visible pages are read"),
        (40, None, "Step 40: a window of 6 pages and 1 sink"),
        (60, Some(0), "Step 60: dyadic: gaps double, after a window of 3 pages"),
        (60, Some(1), "Step 60: 12 of 60 visible pages read"),
        (60, None, "of 60 visible pages read, the mean of 4 lists"),
    ] {
        let mut app = support::app(&written(&format!("head{step}"), events()), Some(step));
        app.selection.row = row;
        let harness = support::harness(app, Some("mask"), SIZE);
        assert!(says(&harness, words), "{words}");
    }
    let harness = support::harness(support::minima(None), Some("mask"), SIZE);
    assert!(says(&harness, "all 64 visible pages are read"));
}

#[test]
fn a_tooltip_says_what_a_step_read() {
    let mut harness = made("tip", None);
    go(&mut harness, spot(36, 20));
    assert!(says(&harness, "7 of 36 visible pages (19.4 %), the mean of 4 lists"));
    assert!(says(&harness, "36,000 bytes"));
    assert!(says(&harness, "85.0 % of the attention mass") && says(&harness, "50.0 % of the pages with most mass"));
    assert!(says(&harness, "20: not read"));
    assert_eq!(harness.state().selection.hover.map(|place| place.number), Some(20));
    go(&mut harness, spot(36, 5));
    assert!(says(&harness, "5: evicted before"));
    go(&mut harness, spot(25, 5));
    assert!(says(&harness, "5: not read"), "it was evicted later");
    go(&mut harness, spot(36, 50));
    assert!(says(&harness, "not visible to the step"));
    go(&mut harness, spot(60, 59));
    assert!(says(&harness, "59: read by 1 of 4 lists") || says(&harness, "59: read by 2 of 4 lists"));
}

#[test]
fn clicks_select_pages_and_go_to_steps() {
    let mut harness = made("clicks", Some(3));
    click(&mut harness, spot(55, 11));
    let place = Place { sequence: SeqId(1), group: 0, row: 3, number: 11 };
    assert_eq!(harness.state().selection.page, Some(place));
    click(&mut harness, pos2(40.0, spot(25, 0).y));
    let start = Instant::now();
    while harness.state().player.store.state.step != 25 {
        assert!(start.elapsed() < support::PATIENCE, "step {}", harness.state().player.store.state.step);
        std::thread::sleep(Duration::from_millis(2));
        harness.run_steps(1);
    }
    harness.run_steps(2);
    assert!(says(&harness, "Step 25: a window of 6 pages and 1 sink"));
}

#[test]
fn combos_choose_a_list() {
    let mut harness = made("combos", None);
    harness.get_by_role_and_label(Role::ComboBox, "Layer").click();
    harness.run_steps(4);
    harness.get_by_label("layer 1").click();
    harness.run_steps(4);
    assert_eq!(harness.state().selection.row, Some(2));
    harness.get_by_role_and_label(Role::ComboBox, "KV head").click();
    harness.run_steps(4);
    harness.get_by_label("1").click();
    harness.run_steps(4);
    assert_eq!(harness.state().selection.row, Some(3));
}

#[test]
fn the_table_has_a_row_a_step_and_list() {
    let harness = made("table", Some(1));
    let table = harness.state().table("mask").unwrap();
    assert_eq!(table.rows.len(), STEPS as usize);
    assert_eq!(table.rows[19], ["20", "0", "1", "20", "20", "100.00", "", ""]);
    assert_eq!(table.rows[21], ["22", "0", "1", "7", "22", "31.82", "90.00", "50.00"]);
    assert_eq!(table.rows[59], ["60", "0", "1", "12", "60", "20.00", "90.00", "50.00"]);
    let harness = made("table-all", None);
    let table = harness.state().table("mask").unwrap();
    assert_eq!(table.rows.len(), (STEPS * LISTS) as usize);
    assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
}

#[test]
fn damaged_reads_are_drawn_somehow() {
    let sequence = SeqId(1);
    let sets = [
        Reads::All,
        Reads::Rows(vec![]),
        Reads::Rows(vec![PageSet::from_ranges(vec![0..1, 7..u32::MAX]).unwrap(); 9]),
        Reads::Same(PageSet::of(vec![u32::MAX - 1])),
    ];
    let ranges = [0..0, Range { start: 9, end: 3 }, 0..u32::MAX, u32::MAX..u32::MAX];
    for (number, group) in [
        GroupFacts { page_tokens: 0, layers: vec![], kv_heads: 0 },
        GroupFacts { page_tokens: 1, layers: vec![7, 7], kv_heads: 3 },
    ]
    .into_iter()
    .enumerate()
    {
        let snapshot = Snapshot { groups: vec![group], ..Snapshot::default() };
        let mut events =
            vec![Event::Resync { dropped: 0, snapshot: Box::new(snapshot) }, Event::SequenceCreated { sequence }];
        for read in &sets {
            for visible in &ranges {
                let (read, visible) = (read.clone(), visible.clone());
                events.push(Event::UnitsRead(ReadFacts {
                    step: u64::MAX,
                    sequence,
                    group: 0,
                    unit_tokens: 0,
                    visible,
                    read,
                }));
            }
        }
        let (mass_kept, recall) = (f32::NAN, f32::INFINITY);
        events.push(Event::SelectionQuality { step: u64::MAX, sequence, layer: 7, kv_head: 0, mass_kept, recall });
        let app = support::app(&written(&format!("damaged{number}"), events), None);
        let mut harness = support::harness(app, Some("mask"), [500.0, 300.0]);
        for at in 0..20 {
            go(&mut harness, pos2(24.0 * at as f32, 90.0 + 9.0 * at as f32));
        }
        harness.state_mut().selection.brush = Some(Range { start: 7, end: 2 });
        for row in [None, Some(0), Some(usize::MAX)] {
            harness.state_mut().selection.row = row;
            harness.run_steps(2);
            let _ = harness.state().table("mask");
        }
    }
}

#[test]
fn a_trace_without_reads_says_so() {
    let without = events().into_iter().filter(|event| !matches!(event, Event::UnitsRead(_))).collect();
    let harness = support::harness(support::app(&written("without", without), None), Some("mask"), SIZE);
    assert!(says(&harness, "Reads of pages: not in this trace"));
}
