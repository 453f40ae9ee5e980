//! The view of memory: pictures, where a click leads, what its table says, and traces that are damaged.

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
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Layers, KV heads and tokens of a page of the traces made here.
const LAYERS: u32 = 2;
const HEADS: u32 = 2;
const TOKENS: u32 = 16;

fn group() -> GroupHeader {
    GroupHeader {
        layers: (0..LAYERS).collect(),
        kind: "full".into(),
        window: None,
        page_tokens: TOKENS,
        q_heads: HEADS,
        kv_heads: HEADS,
        k_dim: 64,
        v_dim: 64,
        basis: ["none".into(), "none".into()],
    }
}

fn header() -> Header {
    let profile_text = kvarto::profile::Profile::dense().to_toml();
    Header { profile: "dense".into(), profile_text, groups: vec![group()], ..Header::default() }
}

/// A file of these events, a millisecond apart.
fn file(name: &str, header: &Header, events: Vec<Event>) -> PathBuf {
    let mut writer = TraceWriter::new(Vec::new(), header).unwrap();
    for (at, event) in events.into_iter().enumerate() {
        writer.push(&Timed { ns: at as u64 * 1_000_000, event: Arc::new(event) }).unwrap();
    }
    let path = std::env::temp_dir().join(format!("kvarto-memory-{name}-{}.kvtr", std::process::id()));
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    path
}

fn memory(pages: u64, bytes: u64, budget: Option<u64>) -> MemoryClasses {
    let side = |side| SideBytes { side, format: "f16".into(), bytes: pages * bytes / 2 };
    MemoryClasses {
        pages: vec![side(Side::K), side(Side::V)],
        segment_bytes: pages.next_multiple_of(64) * bytes,
        table_bytes: 1000,
        descriptor_bytes: 2000,
        basis_bytes: 0,
        side_bytes: 0,
        scratch_bytes: 3000,
        other_bytes: 10 << 20,
        budget_bytes: budget,
    }
}

/// A sequence that gets a page in each list every step.
fn growing(steps: u32, budget: Option<u64>) -> Vec<Event> {
    let bytes = u64::from(TOKENS) * 64 * 2 * 2;
    let facts = GroupFacts { page_tokens: TOKENS, layers: (0..LAYERS).collect(), kv_heads: HEADS };
    let snapshot = Snapshot { groups: vec![facts], ..Snapshot::default() };
    let mut events =
        vec![Event::Resync { dropped: 0, snapshot: Box::new(snapshot) }, Event::SequenceCreated { sequence: SeqId(1) }];
    let mut pages = 0;
    for step in 0..steps {
        for (layer, kv_head) in (0..LAYERS).flat_map(|layer| (0..HEADS).map(move |head| (layer, head))) {
            let page = PageFacts {
                group: 0,
                page: pages,
                layer,
                kv_head,
                number: step,
                formats: ("f16".into(), "f16".into()),
                slots: [pages, pages],
                segment_group: 0,
                generation: 1,
                flags: 0,
                bytes,
            };
            pages += 1;
            events.push(Event::PageAllocated { sequence: SeqId(1), page, copy_of: None, reason: "rows".into() });
        }
        let rows = SequenceRows { sequence: SeqId(1), first_position: step * TOKENS, rows: TOKENS, committed: true };
        let step = u64::from(step) + 1;
        events.push(Event::StepDone(StepFacts { step, rows: TOKENS, sequences: vec![rows], ..StepFacts::default() }));
        events.push(Event::MemoryUsed(memory(u64::from(pages), bytes, budget)));
    }
    events
}

/// Where the areas are drawn.
fn plot(harness: &Harness<'_, App>) -> egui::Rect {
    harness.get_by_label("Memory over time").rect()
}

/// Presses and lets go at a share of the plot's width.
fn click(harness: &mut Harness<'_, App>, share: f32) {
    let plot = plot(harness);
    let at = plot.left_center() + egui::vec2(plot.width() * share, 0.0);
    harness.drag_at(at);
    harness.run_steps(1);
    harness.drop_at(at);
    harness.run_steps(1);
}

/// Draws until the cursor is at a step.
fn until_step(harness: &mut Harness<'_, App>, step: u64) {
    let end = Instant::now() + Duration::from_secs(10);
    while harness.state().player.store.state.step != step {
        assert!(Instant::now() < end, "the cursor is at step {}", harness.state().player.store.state.step);
        std::thread::sleep(Duration::from_millis(5));
        harness.run_steps(1);
    }
}

#[test]
fn pictures() {
    if !support::can_draw() {
        return;
    }
    let mut harness = support::harness(support::minima(None), Some("memory"), [1000.0, 560.0]);
    support::picture(&mut harness, "memory");
    harness.get_by_label("everything").click();
    harness.get_by_label("seconds").click();
    harness.state_mut().settings.dark = false;
    harness.run_steps(4);
    support::picture(&mut harness, "memory-everything-light");
}

#[test]
fn narrow_and_with_other_profiles() {
    if !support::can_draw() {
        return;
    }
    let mut harness = support::harness(support::chat(Some(200)), Some("memory"), [400.0, 1500.0]);
    harness.get_by_label("What if: other profiles").click();
    harness.run_steps(10);
    support::picture(&mut harness, "memory-narrow");
}

#[test]
fn a_click_and_a_drag_go_there() {
    let app = support::app(&file("click", &header(), growing(10, None)), None);
    let mut harness = support::harness(app, Some("memory"), [900.0, 400.0]);
    until_step(&mut harness, 10);
    // Eleven columns: step 0 to 10.
    click(&mut harness, 3.5 / 11.0);
    until_step(&mut harness, 3);
    let store = &harness.state().player.store;
    assert_eq!(store.state.memory.used_slot_bytes(), store.state.page_bytes(), "the bytes told after the step count");
    let plot = plot(&harness);
    harness.drag_at(plot.left_center() + egui::vec2(plot.width() * 4.5 / 11.0, 0.0));
    harness.run_steps(1);
    harness.hover_at(plot.left_center() + egui::vec2(plot.width() * 7.5 / 11.0, 0.0));
    harness.run_steps(2);
    until_step(&mut harness, 7);
    harness.drop_at(plot.left_center() + egui::vec2(plot.width() * 7.5 / 11.0, 0.0));
    harness.run_steps(2);
    harness.get_by_label("seconds").click();
    harness.run_steps(2);
    click(&mut harness, 0.999);
    until_step(&mut harness, 10);
}

#[test]
fn classes_add_up_and_a_difference_is_said() {
    let app = support::app(&file("sums", &header(), growing(10, None)), None);
    let harness = support::harness(app, Some("memory"), [1000.0, 700.0]);
    let bytes = 40 * u64::from(TOKENS) * 64 * 4;
    let words = format!("live pages = slots in use: {} B", kvarto_viewer::units::count(bytes));
    harness.get_by_label(&words);
    let total = harness.state().player.store.state.memory.total();
    let words = format!("classes below, added up = allocator's count: {} B", kvarto_viewer::units::count(total));
    harness.get_by_label(&words);
    harness.get_by_label("160 in 1 sequence");
    // More in use than there is in segments, and than live pages have.
    let mut events = growing(10, None);
    if let Some(Event::MemoryUsed(memory)) = events.last_mut() {
        memory.segment_bytes = 0;
        memory.pages[0].bytes += 1024;
    }
    let harness =
        support::harness(support::app(&file("lies", &header(), events), None), Some("memory"), [1000.0, 700.0]);
    harness.get_by_label_contains("more than the allocator's count");
    let live = harness.get_by_label_contains("1.00 KiB less than the slots in use");
    assert!(!format!("{live:?}").contains("told before"));
}

#[test]
fn a_table_has_every_class_and_the_total() {
    let app = support::app(&file("table", &header(), growing(10, Some(1 << 20))), None);
    let table = app.table("memory").unwrap();
    assert_eq!(table.head[..3], ["step", "seconds", "K in f16 (bytes)"]);
    assert_eq!(table.head.last().unwrap(), "total (bytes)");
    // The first snapshot, and one a step.
    assert_eq!(table.rows.len(), 11);
    let number = |row: usize, column: usize| table.rows[row][column].parse::<u64>().unwrap();
    for row in 0..table.rows.len() {
        assert_eq!(table.rows[row].len(), table.head.len());
        let sum: u64 = (2..table.head.len() - 1).map(|column| number(row, column)).sum();
        assert_eq!(sum, number(row, table.head.len() - 1), "row {row}");
    }
    assert_eq!((number(10, 0), number(10, 2)), (10, 40 * 2048));
    let app = support::minima(None);
    let table = app.table("memory").unwrap();
    let column = table.head.iter().position(|name| name == "V in tq3 (bytes)").unwrap();
    assert_eq!(table.rows.last().unwrap()[column], "6888960");
}

#[test]
fn other_profiles_are_counted_and_refusals_have_reasons() {
    let app = support::app(&file("profiles", &header(), growing(100, None)), None);
    let mut harness = support::harness(app, Some("memory"), [1000.0, 1600.0]);
    assert!(harness.query_by_label("tq4").is_none(), "nothing is counted unless it is asked for");
    harness.get_by_label("What if: other profiles").click();
    harness.run_steps(8);
    for (name, _) in kvarto::profile::builtin::TEXTS {
        harness.get_by_label(name);
    }
    // The dense profile takes what the cache takes.
    assert_eq!(harness.get_all_by_label("100 %").count(), 2);
    // A head size that is no multiple of what formats in blocks of 32 take.
    let mut odd = header();
    odd.groups[0].k_dim = 24;
    odd.groups[0].v_dim = 24;
    let app = support::app(&file("odd", &odd, growing(10, None)), None);
    let mut harness = support::harness(app, Some("memory"), [1000.0, 1600.0]);
    harness.get_by_label("What if: other profiles").click();
    harness.run_steps(8);
    assert!(harness.get_all_by_label("refused").count() > 0);
    harness.get_by_label_contains("q8_0: ");
}

#[test]
fn damaged_traces_are_drawn() {
    let full = MemoryClasses {
        pages: (0..3000)
            .map(|n| SideBytes { side: Side::BOTH[n % 2], format: format!("x{n}").into(), bytes: u64::MAX / 2 })
            .collect(),
        segment_bytes: u64::MAX,
        other_bytes: u64::MAX,
        budget_bytes: Some(u64::MAX),
        ..MemoryClasses::default()
    };
    let step = StepFacts { step: u64::MAX, host_ns: u64::MAX, ..StepFacts::default() };
    let group = GroupFacts { page_tokens: 0, layers: vec![u32::MAX; 3], kv_heads: 0 };
    let snapshot = Snapshot { step: u64::MAX, groups: vec![group], memory: full.clone(), ..Snapshot::default() };
    let events = vec![
        Event::Resync { dropped: u64::MAX, snapshot: Box::new(snapshot) },
        Event::StepDone(step),
        Event::MemoryUsed(full),
        Event::MemoryUsed(MemoryClasses::default()),
    ];
    let wild = GroupHeader { kv_heads: u32::MAX, layers: vec![u32::MAX; 9], window: Some(0), ..GroupHeader::default() };
    for (name, groups) in [("none", vec![]), ("wild", vec![wild]), ("empty", vec![GroupHeader::default()])] {
        let header = Header { groups, kv_budget_bytes: Some(1), ..Header::default() };
        let mut harness =
            support::harness(support::app(&file(name, &header, events.clone()), None), Some("memory"), [600.0, 500.0]);
        harness.get_by_label("everything").click();
        harness.get_by_label("seconds").click();
        harness.get_by_label("What if: other profiles").click();
        harness.run_steps(8);
        click(&mut harness, 0.5);
        assert!(harness.state().table("memory").is_some());
    }
    let created = vec![Event::SequenceCreated { sequence: SeqId(1) }];
    let app = support::app(&file("nothing", &Header::default(), created), None);
    let harness = support::harness(app, Some("memory"), [600.0, 300.0]);
    harness.get_by_label("Bytes of memory: not in this trace");
    assert_eq!(harness.state().table("memory"), None);
}
