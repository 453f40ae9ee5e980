//! `--bench`: what the window costs with a cache of 100 000 pages by 96 lists and a million events, and how soon a trace
//! of 200 MB is there. The rasteriser's time is not counted: it is the adapter's.

use crate::app::{App, Opening};
use crate::offscreen::Canvas;
use crate::settings::Settings;
use eframe::egui;
use kvarto::engine::{
    Event, Formats, GroupFacts, MemoryClasses, PageFacts, ReadFacts, Reads, SeqId, SequenceRows, SideBytes, Snapshot,
    StepFacts, Timed,
};
use kvarto::shape::Side;
use kvarto::trace::{GroupHeader, Header, Record, TraceWriter};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Pages of a list.
const PAGES: u32 = 100_000;
/// Layers and heads: 96 lists.
const LAYERS: u32 = 32;
const HEADS: u32 = 3;
const LISTS: u32 = LAYERS * HEADS;
const PAGE_TOKENS: u32 = 16;
/// Events that are played.
const EVENTS: usize = 1_000_000;
/// Events of a step: a page of every list is converted, its rows are read.
const STEP_EVENTS: usize = LISTS as usize + 3;
/// Bytes of the trace that is opened.
const TRACE_BYTES: u64 = 200 << 20;

/// Runs it and prints what it finds.
///
/// # Errors
/// Without an adapter, or room for the trace, in words.
pub fn run(size: [u32; 2], scale: f32) -> Result<(), String> {
    let canvas = Canvas::new(size, scale)?;
    println!("window {}x{}, {PAGES} pages x {LISTS} lists, {EVENTS} events", size[0], size[1]);
    frames(&canvas)?;
    opening(&canvas)
}

fn facts(list: u32, number: u32, generation: u32, formats: &Formats) -> PageFacts {
    let bits = if &*formats.0 == "f16" { 16 } else { 4 };
    PageFacts {
        group: 0,
        page: number * LISTS + list,
        layer: list / HEADS,
        kv_head: list % HEADS,
        number,
        formats: formats.clone(),
        slots: [number, number],
        segment_group: 0,
        generation,
        flags: 1,
        bytes: u64::from(PAGE_TOKENS) * 2 * 64 * bits / 8,
    }
}

fn pairs() -> [Formats; 3] {
    [("f16", "f16"), ("fp8", "fp8"), ("tq4", "tq3")].map(|(k, v)| (k.into(), v.into()))
}

fn header() -> Header {
    let group = GroupHeader {
        layers: (0..LAYERS).collect(),
        kind: "full".into(),
        page_tokens: PAGE_TOKENS,
        q_heads: 9,
        kv_heads: HEADS,
        k_dim: 64,
        v_dim: 64,
        ..GroupHeader::default()
    };
    Header { command: "bench".into(), profile: "bench".into(), groups: vec![group], ..Header::default() }
}

fn beginning(pages: u32) -> impl Iterator<Item = Event> {
    let groups = vec![GroupFacts { page_tokens: PAGE_TOKENS, layers: (0..LAYERS).collect(), kv_heads: HEADS }];
    let snapshot = Box::new(Snapshot { groups, ..Snapshot::default() });
    let sequence = SeqId(1);
    let formats = pairs();
    let allocated = (0..pages).flat_map(move |number| {
        let pair = formats[if number < 2 { 0 } else { 1 + usize::from(number % 3 == 0) }].clone();
        (0..LISTS).map(move |list| {
            let page = facts(list, number, 1, &pair);
            Event::PageAllocated { sequence, page, copy_of: None, reason: "rows".into() }
        })
    });
    [Event::Resync { dropped: 0, snapshot }, Event::SequenceCreated { sequence }].into_iter().chain(allocated)
}

/// Events of step `step`: a page of every list is converted.
fn step(step: u64, pages: u32) -> Vec<Event> {
    let formats = pairs();
    let number = (step * 7919 % u64::from(pages)) as u32;
    let pair = &formats[(step % 3) as usize];
    let convert = |list: u32| {
        let page = facts(list, number, step as u32 + 2, pair);
        Event::PageConverted { page, from: formats[1].clone(), from_bytes: 1, reason: "aged".into() }
    };
    let mut events: Vec<Event> = (0..LISTS).map(convert).collect();
    let rows = SequenceRows { sequence: SeqId(1), first_position: pages * PAGE_TOKENS - 1, rows: 1, committed: true };
    let facts = StepFacts {
        step,
        rows: 1,
        read_bytes: 1 << 20,
        host_ns: 9_000_000 + step % 1000 * 1000,
        moved_bytes: 1 << 16,
        sequences: vec![rows],
        ..StepFacts::default()
    };
    let read = Reads::All;
    let reads = ReadFacts { step, sequence: SeqId(1), group: 0, unit_tokens: PAGE_TOKENS, visible: 0..pages, read };
    let side = |side, format: &str, bytes| SideBytes { side, format: format.into(), bytes };
    let memory = MemoryClasses {
        pages: vec![side(Side::K, "tq4", 1 << 30), side(Side::V, "tq3", (1 << 29) + (step << 12))],
        segment_bytes: 2 << 30,
        ..MemoryClasses::default()
    };
    events.extend([Event::UnitsRead(reads), Event::StepDone(facts), Event::MemoryUsed(memory)]);
    events
}

/// Times of frames in milliseconds: median, 99 in 100, the longest.
fn told(what: &str, mut times: Vec<f64>) {
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get(((times.len() as f64 - 1.0) * share) as usize).copied().unwrap_or(f64::NAN);
    let (median, most) = (at(0.5), at(0.99));
    println!("{what:<44} {median:7.2} ms median, {most:7.2} ms in 99 of 100, {:7.2} ms at most", at(1.0));
}

fn frame(canvas: &Canvas, context: &egui::Context, app: &mut App, number: usize) {
    let mut output = context.run_ui(canvas.input(number as f64 / 60.0), |ui| app.ui(ui));
    canvas.textures(&mut output.textures_delta);
    let primitives = context.tessellate(output.shapes, output.pixels_per_point);
    canvas.upload(&primitives);
}

fn frames(canvas: &Canvas) -> Result<(), String> {
    let context = egui::Context::default();
    let mut app = App::new(&context, Settings::default(), None);
    app.player.store.header = header();
    let mut record = Record { number: 0, ns: 0, event: None };
    let mut take = |app: &mut App, event: Event| {
        record.event = Some(event);
        record.ns += 90_000;
        let store = &mut app.player.store;
        store.chronicle.take(&record, 0);
        // Made-up bytes do not add up, and need not.
        let _ = store.apply(&record);
        record.number += 1;
    };
    let start = Instant::now();
    beginning(PAGES).for_each(|event| take(&mut app, event));
    println!("{:<44} {:7.2} s", "9.6 million pages taken in", start.elapsed().as_secs_f64());
    app.player.store.scanned = 1.0;
    // The first frames fill what views keep.
    let start = Instant::now();
    let mut first = Vec::new();
    for number in 0..400 {
        let begin = Instant::now();
        frame(canvas, &context, &mut app, number);
        first.push(begin.elapsed().as_secs_f64() * 1e3);
        if !context.has_requested_repaint() {
            break;
        }
    }
    println!("{:<44} {:7.2} s", "until all of it is drawn", start.elapsed().as_secs_f64());
    told("a frame until then", first);
    let steps = EVENTS / STEP_EVENTS;
    let (mut times, mut number) = (Vec::new(), 400);
    for chunk in 0..steps / 10 {
        let events: Vec<Event> = (0..10).flat_map(|n| step((chunk * 10 + n) as u64 + 1, PAGES)).collect();
        let begin = Instant::now();
        events.into_iter().for_each(|event| take(&mut app, event));
        frame(canvas, &context, &mut app, number);
        times.push(begin.elapsed().as_secs_f64() * 1e3);
        number += 1;
    }
    told("a frame while 1 000 events a frame are played", times);
    let idle = (0..200).map(|_| {
        let begin = Instant::now();
        frame(canvas, &context, &mut app, number);
        number += 1;
        begin.elapsed().as_secs_f64() * 1e3
    });
    told("an idle frame", idle.collect());
    memory("memory of all this");
    Ok(())
}

/// A trace of at least [`TRACE_BYTES`].
fn write(path: &Path) -> Result<(), String> {
    let file = std::fs::File::create(path).map_err(|e| e.to_string())?;
    let mut writer = TraceWriter::new(std::io::BufWriter::new(file), &header()).map_err(|e| e.to_string())?;
    let (mut ns, mut noise) = (0u64, 1u64);
    let mut tell = |writer: &mut TraceWriter<_>, event: Event| -> Result<(), String> {
        ns += 90_000;
        writer.push(&Timed { ns, event: Arc::new(event) }).map_err(|e| e.to_string())
    };
    for event in beginning(400) {
        tell(&mut writer, event)?;
    }
    let mut number = 0;
    while std::fs::metadata(path).map_err(|e| e.to_string())?.len() < TRACE_BYTES {
        for _ in 0..64 {
            number += 1;
            for mut event in step(number, 400) {
                if let Event::PageConverted { page, .. } = &mut event {
                    // Slots are anywhere in a real cache, so that they do not pack.
                    noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    page.slots = [(noise >> 32) as u32, (noise >> 24) as u32];
                }
                tell(&mut writer, event)?;
            }
        }
    }
    writer.finish().map(drop).map_err(|e| e.to_string())
}

fn opening(canvas: &Canvas) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|e| format!("no temporary folder: {e}"))?;
    let path = folder.path().join("large.kvtr");
    write(&path)?;
    let bytes = std::fs::metadata(&path).map_err(|e| e.to_string())?.len();
    let context = egui::Context::default();
    let mut app = App::new(&context, Settings::default(), None);
    let (start, mut number) = (Instant::now(), 0);
    app.open(&path, Opening::Play);
    let mut step = |app: &mut App| {
        frame(canvas, &context, app, number);
        number += 1;
        std::thread::sleep(Duration::from_millis(1));
    };
    while app.player.store.state.pages.is_empty() && start.elapsed() < Duration::from_secs(60) {
        step(&mut app);
    }
    step(&mut app);
    let what = format!("{} MB opened, pages in a frame", bytes >> 20);
    println!("{what:<44} {:7.2} s", start.elapsed().as_secs_f64());
    app.player.playing = false;
    while app.player.store.scanned < 1.0 && start.elapsed() < Duration::from_secs(120) {
        step(&mut app);
    }
    println!("{:<44} {:7.2} s", "all of it in the chronicle", start.elapsed().as_secs_f64());
    println!("{:<44} {:7}", "events in it", app.player.store.chronicle.events);
    memory("memory after that");
    Ok(())
}

/// The most memory that the program had, where the system says it.
fn memory(what: &str) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    if let Some(kib) = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok()) {
        println!("{what:<44} {:7} MiB at most", kib >> 10);
    }
}
