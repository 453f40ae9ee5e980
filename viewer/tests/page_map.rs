//! The page map in a window.

mod support;

use eframe::egui::{self, Modifiers, PointerButton, Pos2, pos2, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use kvarto::engine::{Event, GroupFacts, HeldPages, MassFacts, MemoryClasses, PageFacts, PageSet, ReadFacts, Reads};
use kvarto::engine::{SeqId, SequenceFacts, SequenceRows, Snapshot, StepFacts, Timed, TokenPiece};
use kvarto::trace::{GroupHeader, Header, TraceWriter};
use kvarto_viewer::app::App;
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

fn made(name: &str) -> Harness<'static, App> {
    let app = support::app(&written(name, events(24)), None);
    support::harness(app, Some("page-map"), [700.0, 400.0])
}

/// Where the page of a list is drawn in [`made`]'s window: cells of pleasant size from the upper left corner on.
fn spot(harness: &Harness<'_, App>, row: usize, number: u32) -> Pos2 {
    let tile = harness.state().place_of("page-map").unwrap();
    let corner = tile.min + vec2(6.0 + 52.0, 6.0 + 8.0 + 25.0);
    corner + vec2(10.0 * number as f32 + 5.0, 26.0 * row as f32 + 13.0)
}

#[test]
fn pictures_of_the_samples() {
    if !support::can_draw() {
        return;
    }
    let mut harness = support::harness(support::minima(None), Some("page-map"), [1000.0, 560.0]);
    support::picture(&mut harness, "page_map");
}
