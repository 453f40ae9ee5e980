//! The window as a whole: ways in, transport, messages, damaged files.

mod support;

use eframe::egui::{self, Key, Pos2};
use egui_kittest::kittest::Queryable;
use kvarto::engine::{Event, GroupFacts, MemoryClasses, PageFacts, SeqId, Snapshot, StepFacts, Timed};
use kvarto::trace::{Header, TraceWriter};
use kvarto_viewer::app::{App, Opening};
use kvarto_viewer::player::Speed;
use kvarto_viewer::samples;
use kvarto_viewer::settings::Settings;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{PATIENCE, app, can_draw, chat, harness, minima, picture};

const SIZE: [f32; 2] = [1280.0, 800.0];

/// A window without a rasteriser: frames are laid out and thrown away.
struct Bare {
    context: egui::Context,
    app: App,
    frames: u32,
}

impl Bare {
    fn new(app: App) -> Self {
        Bare { context: egui::Context::default(), app, frames: 0 }
    }

    fn frame(&mut self) {
        let input = egui::RawInput {
            screen_rect: Some(egui::Rect::from_min_size(Pos2::ZERO, SIZE.into())),
            time: Some(f64::from(self.frames) / 60.0),
            ..Default::default()
        };
        self.frames += 1;
        let Bare { context, app, .. } = self;
        let mut output = context.run_ui(input, |ui| app.ui(ui));
        output.textures_delta.clear();
        let _ = context.tessellate(output.shapes, output.pixels_per_point);
    }

    /// Frames until something is true.
    fn until(&mut self, what: &str, mut done: impl FnMut(&App) -> bool) {
        let start = Instant::now();
        while !done(&self.app) {
            assert!(start.elapsed() < PATIENCE, "{what}: {:?}", self.app.messages);
            self.frame();
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn empty() -> App {
    App::new(&egui::Context::default(), Settings::default(), None)
}

fn bytes(path: Result<PathBuf, String>) -> Vec<u8> {
    std::fs::read(path.expect("a sample")).expect("it can be read")
}

fn temporary(bytes: &[u8]) -> tempfile::NamedTempFile {
    let file = tempfile::Builder::new().suffix(".kvtr").tempfile().expect("a temporary file");
    std::fs::write(file.path(), bytes).expect("it can be written");
    file
}

#[test]
fn a_newcomer_sees_a_cache_breathe_within_two_seconds() {
    let mut bare = Bare::new(empty());
    bare.app.open_sample(samples::minima(), Opening::Play);
    let start = Instant::now();
    bare.until("pages", |app| app.player.store.state.pages.len() > 100);
    let first = bare.app.player.store.state.clone();
    bare.until("a change", |app| app.player.store.state.pages != first.pages);
    assert!(bare.app.messages.is_empty(), "{:?}", bare.app.messages);
    println!("changing pages after {:.2} s", start.elapsed().as_secs_f64());
}

#[test]
fn the_first_picture() {
    if can_draw() {
        let mut harness = harness(minima(Some(150)), None, SIZE);
        picture(&mut harness, "window-dark");
        harness.state_mut().settings.dark = false;
        harness.run_steps(3);
        picture(&mut harness, "window-light");
    }
}

#[test]
fn keys_play_step_and_show_help() {
    if !can_draw() {
        return;
    }
    let mut app = minima(Some(20));
    app.player.speed = Speed::Most;
    let mut harness = harness(app, None, SIZE);
    let step = |harness: &egui_kittest::Harness<'_, App>| harness.state().player.store.state.step;
    let wait = |harness: &mut egui_kittest::Harness<'_, App>, wanted: u64| {
        let start = Instant::now();
        while step(harness) != wanted {
            assert!(start.elapsed() < PATIENCE, "step {} in place of {wanted}", step(harness));
            harness.step();
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    assert_eq!(step(&harness), 20);
    harness.key_press(Key::ArrowRight);
    wait(&mut harness, 21);
    harness.key_press(Key::ArrowLeft);
    wait(&mut harness, 20);
    harness.key_press_modifiers(egui::Modifiers::SHIFT, Key::ArrowRight);
    wait(&mut harness, 30);
    harness.key_press(Key::End);
    wait(&mut harness, 207);
    harness.key_press(Key::Home);
    wait(&mut harness, 0);
    harness.key_press(Key::Space);
    wait(&mut harness, 207);
    harness.step();
    assert!(!harness.state().player.playing, "it stops at the end");
    harness.key_press(Key::H);
    harness.run_steps(3);
    assert!(harness.query_by_label("play or pause").is_some());
    harness.key_press(Key::H);
    harness.run_steps(3);
    assert!(harness.query_by_label("play or pause").is_none());
    harness.key_press(Key::Minus);
    harness.step();
    assert_eq!(harness.state().player.speed, Speed::Time(4.0));
}

#[test]
fn the_list_of_keys() {
    if can_draw() {
        let mut harness = harness(minima(Some(150)), None, SIZE);
        harness.key_press(Key::H);
        harness.run_steps(40);
        picture(&mut harness, "help");
    }
}

#[test]
fn scrubbing_seeks() {
    if !can_draw() {
        return;
    }
    let mut harness = harness(minima(None), None, SIZE);
    let line = harness.get_by_label("Scrub").rect();
    let at = Pos2::new(line.left() + line.width() * 0.5, line.center().y);
    harness.hover_at(at);
    harness.step();
    harness.drag_at(at);
    harness.step();
    harness.drop_at(at);
    let (start, all) = (Instant::now(), harness.state().player.store.chronicle.events);
    while harness.state().player.store.events_done() == all && start.elapsed() < PATIENCE {
        harness.step();
        std::thread::sleep(Duration::from_millis(1));
    }
    let done = harness.state().player.store.events_done() as f64 / all as f64;
    assert!((done - 0.5).abs() < 0.02, "{done}");
}

#[derive(Debug)]
struct Dropped(PathBuf);

impl egui::DroppedFile for Dropped {
    fn path(&self) -> &Path {
        &self.0
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        std::fs::read(&self.0).map_err(|e| e.to_string())
    }
}

#[test]
fn files_are_dropped_and_damaged_ones_give_a_message() {
    if !can_draw() {
        return;
    }
    let mut harness = harness(minima(None), None, SIZE);
    let damaged = temporary(b"KVTRand nothing that is a trace");
    harness.input_mut().dropped_files.push(Arc::new(Dropped(damaged.path().into())));
    let start = Instant::now();
    while harness.state().messages.is_empty() && start.elapsed() < PATIENCE {
        harness.step();
        std::thread::sleep(Duration::from_millis(1));
    }
    let said = harness.state().messages.join("\n");
    assert!(said.contains(&damaged.path().display().to_string()), "{said}");
    harness.run_steps(2);
    assert!(
        harness.query_by_label_contains("checksum").is_some() || harness.query_by_label_contains("header").is_some()
    );
    // The program goes on: a good file works as before.
    let good = samples::chat().expect("a sample");
    harness.input_mut().dropped_files.push(Arc::new(Dropped(good)));
    let start = Instant::now();
    while harness.state().player.store.state.pages.is_empty() && start.elapsed() < PATIENCE {
        harness.step();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!harness.state().player.store.state.pages.is_empty());
}

#[test]
fn traces_that_cannot_be_read_give_messages() {
    let mut newer = bytes(samples::chat());
    newer[4] = 99;
    let foreign = b"\x89PNG\r\n\x1a\n and so on, for a while".to_vec();
    let cases =
        [(Vec::new(), "cut short"), (foreign, "no trace"), (newer, "version 99"), (b"KVT".to_vec(), "cut short")];
    for (content, wanted) in cases {
        let file = temporary(&content);
        let mut bare = Bare::new(empty());
        bare.app.open(file.path(), Opening::Play);
        bare.until(wanted, |app| app.messages.iter().any(|message| message.contains(wanted)));
        (0..3).for_each(|_| bare.frame());
    }
    let mut bare = Bare::new(empty());
    bare.app.open(Path::new("there/is/no/such/trace.kvtr"), Opening::Play);
    bare.until("no file", |app| app.messages.iter().any(|message| message.contains("No such file")));
}

#[test]
fn a_trace_cut_anywhere_is_shown_as_far_as_it_goes() {
    let whole = bytes(samples::chat());
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    for turn in 0..60 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let cut = (random >> 20) as usize % whole.len();
        let mut content = whole[..cut].to_vec();
        // Every third one also has a damaged byte.
        if turn % 3 == 0 && cut > 0 {
            let at = (random >> 40) as usize % cut;
            content[at] ^= 1 << (random % 8);
        }
        let file = temporary(&content);
        let mut app = empty();
        app.open(file.path(), Opening::Stand);
        let settled = app.settle(None, PATIENCE);
        let mut bare = Bare::new(app);
        (0..2).for_each(|_| bare.frame());
        if settled.is_err() {
            assert!(!bare.app.player.store.faults.is_empty(), "cut at {cut}: nothing was said");
        }
    }
}

/// A trace of these events, as a writer writes it.
fn written(events: Vec<Event>) -> tempfile::NamedTempFile {
    let mut writer = TraceWriter::new(Vec::new(), &Header::default()).expect("a header");
    for (ns, event) in (0..).zip(events) {
        writer.push(&Timed { ns, event: Arc::new(event) }).expect("an event");
    }
    temporary(&writer.finish().expect("a trace"))
}

#[test]
fn events_that_make_no_sense_are_drawn_without_a_fault_of_ours() {
    let page = |number| PageFacts {
        group: 0,
        page: number,
        layer: u32::MAX,
        kv_head: 7,
        number,
        formats: ("f16".repeat(40_000).into(), "\u{202e}odd".into()),
        slots: [u32::MAX; 2],
        segment_group: u16::MAX,
        generation: u32::MAX,
        flags: u16::MAX,
        bytes: u64::MAX,
    };
    let memory = MemoryClasses {
        segment_bytes: u64::MAX,
        table_bytes: u64::MAX,
        descriptor_bytes: u64::MAX,
        side_bytes: u64::MAX,
        budget_bytes: Some(0),
        ..MemoryClasses::default()
    };
    let step = StepFacts { step: u64::MAX, read_bytes: u64::MAX, host_ns: u64::MAX, ..StepFacts::default() };
    let sequence = SeqId(u64::MAX);
    let groups = vec![GroupFacts { page_tokens: u32::MAX, layers: vec![u32::MAX; 3], kv_heads: u32::MAX }];
    let events = vec![
        Event::SequenceCreated { sequence },
        Event::PageAllocated { sequence, page: page(0), copy_of: None, reason: "rows".into() },
        Event::PageAllocated { sequence, page: page(u32::MAX), copy_of: None, reason: "rows".into() },
        Event::MemoryUsed(memory.clone()),
        Event::StepDone(step),
        Event::Resync {
            dropped: u64::MAX,
            snapshot: Box::new(Snapshot {
                step: u64::MAX,
                groups,
                pages: vec![page(1), page(2)],
                memory,
                ..Snapshot::default()
            }),
        },
        Event::SequenceTruncated { sequence, tokens: u32::MAX },
    ];
    let file = written(events);
    let mut app = empty();
    app.open(file.path(), Opening::Stand);
    app.settle(None, PATIENCE).expect("events");
    for view in app.view_ids() {
        app.alone(view);
        let mut bare = Bare::new(app);
        (0..3).for_each(|_| bare.frame());
        bare.app.table(view);
        app = bare.app;
    }
    // What did not fit is said.
    assert!(app.player.store.faults.iter().any(|fault| fault.contains("event 1")), "{:?}", app.player.store.faults);
    app.player.step_forward();
    app.player.playing = true;
    app.player.speed = Speed::Steps(f32::MAX);
    app.player.seek(0);
    let mut bare = Bare::new(app);
    (0..50).for_each(|_| bare.frame());
}

#[test]
fn settings_that_make_no_sense_are_bounded() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("viewer.json");
    for (speed, wanted) in [("1e300", 30.0), ("-5", 0.01), ("1e20", 1e6)] {
        std::fs::write(&place, format!("{{\"speed\": {{\"Steps\": {speed}}}}}")).expect("it can be written");
        assert_eq!(Settings::load(&place).speed, Speed::Steps(wanted), "{speed}");
    }
}

#[test]
fn a_damaged_middle_is_passed_over() {
    let whole = bytes(samples::minima());
    let ends = app(&samples::minima().expect("a sample"), None).player.store.state.pages;
    let mut content = whole.clone();
    content[whole.len() / 2] ^= 0x10;
    let file = temporary(&content);
    let damaged = app(file.path(), None);
    assert!(
        damaged.player.store.faults.iter().any(|fault| fault.contains("chunk")),
        "{:?}",
        damaged.player.store.faults
    );
    // Snapshots behind the damage say what was missed, where there are any.
    println!("{} pages at the end, {} after the damage", ends.len(), damaged.player.store.state.pages.len());
    let mut bare = Bare::new(empty());
    bare.app.player.speed = Speed::Most;
    bare.app.open(file.path(), Opening::Play);
    bare.until("the end", |app| app.player.at_end() && app.player.store.scanned >= 1.0);
    assert!(!bare.app.messages.is_empty());
}

#[test]
fn a_file_that_grows_is_followed() {
    let whole = bytes(samples::chat());
    let file = temporary(&whole[..whole.len() / 3]);
    let mut bare = Bare::new(empty());
    bare.app.open(file.path(), Opening::Follow);
    bare.until("the first part", |app| app.player.store.events_done() > 0);
    let part = bare.app.player.store.events_done();
    (0..5).for_each(|_| bare.frame());
    for share in [2, 1] {
        std::fs::write(file.path(), &whole[..whole.len() / share]).expect("it can be written");
        std::thread::sleep(Duration::from_millis(100));
        (0..20).for_each(|_| bare.frame());
    }
    let all = chat(None).player.store.chronicle.events;
    bare.until("the end", |app| app.player.store.events_done() == all);
    assert!(part < all && bare.app.messages.is_empty(), "{part} of {all}: {:?}", bare.app.messages);
}

#[test]
fn a_state_is_the_same_however_it_was_reached() {
    let seek = |step| minima(Some(step)).player.store.state;
    let mut walked = minima(Some(0));
    for step in [1u64, 2, 60, 61, 140] {
        let start = Instant::now();
        while walked.player.store.state.step < step {
            walked.player.step_forward();
            walked.player.tick(0.0, Duration::from_millis(5));
            assert!(start.elapsed() < PATIENCE);
        }
        // A step is told before its bytes are: what follows it until the next one may differ by that.
        let (mut there, mut here) = (seek(step), walked.player.store.state.clone());
        (there.memory, here.memory) = Default::default();
        assert_eq!(there.step, here.step);
        assert_eq!(there.sequences, here.sequences, "step {step}");
        assert_eq!(there.pages, here.pages, "step {step}");
    }
}

#[test]
fn figures_are_those_of_the_trace() {
    let app = minima(None);
    let store = &app.player.store;
    assert_eq!(store.state.page_bytes(), store.state.memory.used_slot_bytes());
    let bits = store.bits().expect("bits");
    // Thirty layers, three heads, 64 channels of K and of V, for each token once.
    let tokens: u64 = store.state.sequences.values().map(|held| u64::from(held.logical)).sum();
    assert_eq!(bits.values, tokens * 30 * 3 * 128);
    assert!((4.0..8.0).contains(&bits.resident), "{bits:?}");
    let text: String = {
        let sequence = *store.state.sequences.keys().next().expect("a sequence");
        let pieces = store.chronicle.lineage.text(sequence, store.events_done());
        assert_eq!(pieces.len() as u64, tokens);
        let bytes: Vec<u8> = pieces.into_iter().flatten().flat_map(|piece| piece.text.clone()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    assert!(text.split_whitespace().count() > 1000);
}

#[test]
fn forks_hold_their_origins_text() {
    let app = chat(None);
    let store = &app.player.store;
    let forks = store.chronicle.lineage.lives().filter(|(_, life)| life.from.is_some());
    let mut seen = 0;
    for (sequence, life) in forks {
        let (from, common) = life.from.expect("a fork");
        let of = |sequence| -> Vec<u32> {
            let pieces = store.chronicle.lineage.text(sequence, life.born.event + 1);
            pieces.into_iter().flatten().map(|piece| piece.id).collect()
        };
        assert_eq!(of(sequence), of(from)[..common as usize]);
        assert!(common > 0);
        seen += 1;
    }
    assert!(seen > 0, "the sample has a fork");
}

#[test]
fn settings_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("deep").join("viewer.json");
    let mut app = App::new(&egui::Context::default(), Settings::default(), Some(place.clone()));
    app.open(&samples::chat().expect("a sample"), Opening::Stand);
    app.settings.dark = false;
    app.player.speed = Speed::Time(4.0);
    app.keep();
    let kept = Settings::load(&place);
    assert!(!kept.dark && kept.speed == Speed::Time(4.0) && kept.recent.len() == 1 && kept.layout.is_some());
    std::fs::write(&place, "{ not json").expect("it can be written");
    assert_eq!(Settings::load(&place), Settings::default());
    // A layout without all views is not taken.
    let short = Settings { layout: Some(kvarto_viewer::layout::alone("text")), ..Settings::default() };
    let app = App::new(&egui::Context::default(), short, None);
    assert_eq!(app.view_ids().len(), 9);
}
