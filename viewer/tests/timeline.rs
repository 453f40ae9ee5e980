//! The timeline: pictures, zoom and clicks, stalls and kernel times, and traces that are damaged.

mod support;

use eframe::egui;
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use kvarto::engine::{Event, GroupFacts, KernelShare, PageFacts, SeqId, SequenceRows, Snapshot, StepFacts, Timed};
use kvarto::trace::{Header, TraceWriter};
use kvarto_viewer::app::App;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MS: u64 = 1_000_000;

/// A file of events and their times.
fn file(name: &str, header: &Header, events: &[(u64, Event)]) -> PathBuf {
    let mut writer = TraceWriter::new(Vec::new(), header).unwrap();
    for (ns, event) in events {
        writer.push(&Timed { ns: *ns, event: Arc::new(event.clone()) }).unwrap();
    }
    let path = std::env::temp_dir().join(format!("kvarto-timeline-{name}-{}.kvtr", std::process::id()));
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    path
}

fn rows(rows: u32) -> Vec<SequenceRows> {
    vec![SequenceRows { sequence: SeqId(1), first_position: 0, rows, committed: true }]
}

/// A prefill of 64 rows and 99 decoding steps of 10 ms, each beginning where the one before ended: step 31 stalls for
/// 100 ms, steps 41 to 43 leave moves waiting, step 51 converts a page and evicts one.
fn hundred(kernels: bool) -> Vec<(u64, Event)> {
    let group = GroupFacts { page_tokens: 16, layers: vec![0], kv_heads: 1 };
    let snapshot = Snapshot { groups: vec![group], ..Snapshot::default() };
    let page = PageFacts {
        group: 0,
        page: 0,
        layer: 0,
        kv_head: 0,
        number: 0,
        formats: ("f16".into(), "f16".into()),
        slots: [0, 0],
        segment_group: 0,
        generation: 1,
        flags: 0,
        bytes: 4096,
    };
    let (word, sequence) = ("rows".into(), SeqId(1));
    let mut events = vec![
        (0, Event::Resync { dropped: 0, snapshot: Box::new(snapshot) }),
        (0, Event::SequenceCreated { sequence }),
        (0, Event::PageAllocated { sequence, page: page.clone(), copy_of: None, reason: word }),
    ];
    let mut ns = 0;
    for step in 1..=100u64 {
        let host_ns = match step {
            1 => 200 * MS,
            31 => 100 * MS,
            _ => 10 * MS,
        };
        ns += host_ns;
        if step == 51 {
            let from = page.formats.clone();
            let page = PageFacts { generation: 2, bytes: 2048, formats: ("tq4".into(), "tq3".into()), ..page.clone() };
            let reason = "old".into();
            events.push((ns, Event::PageConverted { page: page.clone(), from, from_bytes: 4096, reason }));
            events.push((ns, Event::PageEvicted { sequence, page, reason: "gone".into() }));
        }
        let facts = StepFacts {
            step,
            rows: if step == 1 { 64 } else { 1 },
            read_bytes: if step == 1 { 0 } else { 10_000_000 },
            host_ns,
            moved_bytes: if step == 51 { 6144 } else { 0 },
            policy_ns: 1000 * step,
            waiting_moves: u64::from((41..=43).contains(&step)) * 7,
            splits: 0,
            sequences: rows(if step == 1 { 64 } else { 1 }),
        };
        events.push((ns, Event::StepDone(facts)));
        if kernels {
            let kernel =
                |kernel: &'static str, nanoseconds| KernelShare { kernel: kernel.into(), dispatches: 2, nanoseconds };
            let kernels = vec![kernel("linear", 3 * MS), kernel("decode", 5 * MS)];
            events.push((ns, Event::KernelTimes { step, kernels }));
        }
    }
    events
}

fn lanes(harness: &Harness<'_, App>) -> egui::Rect {
    harness.get_by_label("Steps over time").rect()
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

fn click(harness: &mut Harness<'_, App>, share: f64) {
    let lanes = lanes(harness);
    let at = lanes.left_center() + egui::vec2((f64::from(lanes.width()) * share) as f32, 0.0);
    harness.drag_at(at);
    harness.run_steps(1);
    harness.drop_at(at);
    harness.run_steps(1);
}

/// All takes 200 + 98 × 10 + 100 ms.
const ALL_MS: f64 = 1280.0;

#[test]
fn picture_of_the_sample() {
    if !support::can_draw() {
        return;
    }
    let mut harness = support::harness(support::minima(None), Some("timeline"), [1000.0, 560.0]);
    support::picture(&mut harness, "timeline");
}

#[test]
fn stalls_in_a_narrow_window() {
    if !support::can_draw() {
        return;
    }
    let app = support::app(&file("picture", &Header::default(), &hundred(false)), Some(60));
    let mut harness = support::harness(app, Some("timeline"), [400.0, 760.0]);
    harness.state_mut().settings.dark = false;
    harness.run_steps(4);
    support::picture(&mut harness, "timeline-stalls-narrow-light");
}

#[test]
fn a_click_goes_to_the_step_under_the_pointer() {
    let app = support::app(&file("click", &Header::default(), &hundred(false)), None);
    let mut harness = support::harness(app, Some("timeline"), [1300.0, 500.0]);
    until_step(&mut harness, 100);
    click(&mut harness, 100.0 / ALL_MS);
    until_step(&mut harness, 1);
    // Steps 2 to 30 end at 490 ms; then comes the one that stalls.
    click(&mut harness, 550.0 / ALL_MS);
    until_step(&mut harness, 31);
    harness.get_by_label("stalled");
    click(&mut harness, (590.0 + 5.0) / ALL_MS);
    until_step(&mut harness, 32);
    assert!(harness.query_by_label("stalled").is_none());
}

#[test]
fn the_pointer_is_told_all_of_a_step() {
    let app = support::app(&file("hover", &Header::default(), &hundred(false)), None);
    let mut harness = support::harness(app, Some("timeline"), [1300.0, 500.0]);
    let lanes = lanes(&harness);
    harness.hover_at(lanes.left_center() + egui::vec2(lanes.width() * 550.0 / 1280.0, 0.0));
    harness.run_steps(30);
    harness.get_by_label("Step 31: decode, stalled");
    harness.get_by_label("100 ms");
    harness.get_by_label("31.0 µs");
    harness.get_by_label("sequence 1: 1 row from position 0");
}

#[test]
fn the_wheel_zooms_dragging_moves_and_all_is_all_again() {
    let app = support::app(&file("zoom", &Header::default(), &hundred(false)), None);
    let mut harness = support::harness(app, Some("timeline"), [1300.0, 500.0]);
    let lanes = lanes(&harness);
    let middle = lanes.center();
    harness.hover_at(middle);
    harness.run_steps(1);
    harness.event(egui::Event::MouseWheel {
        unit: egui::MouseWheelUnit::Point,
        delta: egui::vec2(0.0, 600.0),
        source: egui::MouseWheelSource::Wheel,
        phase: egui::TouchPhase::Move,
        modifiers: egui::Modifiers::NONE,
    });
    harness.run_steps(40);
    // The middle stays where it is: 640 ms, where step 36 ends and step 37 begins; far to the left of it is still 30 ms off.
    click(&mut harness, 0.501);
    until_step(&mut harness, 37);
    click(&mut harness, 0.02);
    let end = Instant::now() + Duration::from_secs(10);
    while harness.state().player.store.state.step == 37 {
        assert!(Instant::now() < end);
        harness.run_steps(1);
    }
    let left = harness.state().player.store.state.step;
    assert!((31..37).contains(&left), "step {left}");
    // Drag to the right: earlier steps come in.
    harness.drag_at(middle);
    harness.run_steps(1);
    for part in 1..=10 {
        harness.hover_at(middle + egui::vec2(40.0 * part as f32, 0.0));
        harness.run_steps(1);
    }
    harness.drop_at(middle + egui::vec2(400.0, 0.0));
    harness.run_steps(2);
    assert_eq!(harness.state().player.store.state.step, left, "a drag is no click");
    click(&mut harness, 0.02);
    let end = Instant::now() + Duration::from_secs(10);
    while harness.state().player.store.state.step == left {
        assert!(Instant::now() < end);
        harness.run_steps(1);
    }
    assert!(harness.state().player.store.state.step < left);
    harness.get_by_label("all").click();
    harness.run_steps(2);
    click(&mut harness, 0.9999);
    until_step(&mut harness, 100);
}

#[test]
fn kernel_times_are_summed_up_to_the_cursor() {
    let header = Header { copy_bytes_per_s: Some(4e9), ..Header::default() };
    let app = support::app(&file("kernels", &header, &hundred(true)), None);
    let mut harness = support::harness(app, Some("timeline"), [1300.0, 900.0]);
    harness.get_by_label("62.5 %");
    harness.get_by_label("37.5 %");
    harness.get_by_label("500 ms");
    // 10 MB in 5 ms of `decode`.
    harness.get_by_label("2.00 GB/s = 50.0 % of copy");
    // 99 rows in 98 × 10 + 100 ms.
    harness.get_by_label("91.7 tokens/s");
    harness.get_by_label("100.0 tokens/s");
    click(&mut harness, 100.0 / ALL_MS);
    until_step(&mut harness, 1);
    harness.run_steps(2);
    harness.get_by_label("5.00 ms");
    assert!(harness.query_by_label("500 ms").is_none());
    let app = support::app(&file("none", &header, &hundred(false)), None);
    let harness = support::harness(app, Some("timeline"), [1300.0, 900.0]);
    harness.get_by_label("Kernel times: not in this trace");
    // The same bytes by 10 ms of host time.
    harness.get_by_label("1.00 GB/s = 25.0 % of copy");
}

#[test]
fn a_table_has_all_of_every_step() {
    let app = support::app(&file("table", &Header::default(), &hundred(false)), None);
    let table = app.table("timeline").unwrap();
    assert_eq!(table.rows.len(), 100);
    let column = |name: &str| table.head.iter().position(|head| head == name).unwrap();
    let stalled: Vec<&str> =
        table.rows.iter().filter(|row| row[column("stalled")] == "true").map(|row| &*row[0]).collect();
    assert_eq!(stalled, ["31"]);
    let row = |step: usize, name: &str| table.rows[step - 1][column(name)].as_str();
    assert_eq!([row(1, "kind"), row(2, "kind")], ["prefill", "decode"]);
    assert_eq!(
        [row(51, "converted (pages)"), row(51, "evicted (pages)"), row(50, "converted (pages)")],
        ["1", "1", "0"]
    );
    assert_eq!([row(41, "waiting moves"), row(44, "waiting moves")], ["7", "0"]);
    assert_eq!([row(2, "bandwidth (bytes/s)"), row(1, "bandwidth (bytes/s)")], ["1000000000", ""]);
    assert_eq!(row(1, "end (s)"), "0.200000");
    assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
}

#[test]
fn damaged_traces_are_drawn() {
    let step = |step, rows, host_ns| StepFacts {
        step,
        rows,
        host_ns,
        read_bytes: u64::MAX,
        moved_bytes: u64::MAX,
        policy_ns: u64::MAX,
        waiting_moves: u64::MAX,
        splits: u64::MAX,
        sequences: (0..100)
            .map(|n| SequenceRows { sequence: SeqId(n), first_position: u32::MAX, rows: u32::MAX, committed: false })
            .collect(),
    };
    let share = |n: u64| KernelShare { kernel: format!("k{n}").into(), dispatches: u64::MAX, nanoseconds: u64::MAX };
    let kernels = |step| Event::KernelTimes { step, kernels: (0..500).map(share).collect() };
    let events = [
        (5, Event::StepDone(step(u64::MAX, 0, u64::MAX))),
        (6, kernels(u64::MAX)),
        (7, Event::StepDone(step(3, u32::MAX, 0))),
        (7, kernels(1)),
        (7, Event::StepDone(StepFacts::default())),
        (u64::MAX, Event::StepDone(step(0, 1, 1))),
    ];
    for (name, copy) in [("wild", Some(f64::INFINITY)), ("null", Some(0.0)), ("minus", Some(-1.0))] {
        let header = Header { copy_bytes_per_s: copy, ..Header::default() };
        let app = support::app(&file(name, &header, &events), None);
        let mut harness = support::harness(app, Some("timeline"), [600.0, 500.0]);
        let lanes = lanes(&harness);
        for share in [0.001, 0.3, 0.999] {
            harness.hover_at(lanes.left_center() + egui::vec2(lanes.width() * share, 0.0));
            harness.run_steps(20);
            click(&mut harness, share.into());
        }
        assert_eq!(harness.state().table("timeline").unwrap().rows.len(), 4);
    }
    let app =
        support::app(&file("empty", &Header::default(), &[(1, Event::SequenceCreated { sequence: SeqId(1) })]), None);
    let harness = support::harness(app, Some("timeline"), [600.0, 300.0]);
    harness.get_by_label("Steps: not in this trace");
    assert_eq!(harness.state().table("timeline"), None);
}
