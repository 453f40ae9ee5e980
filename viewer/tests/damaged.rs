//! Traces, settings and events that are damaged or make no sense: a message, and the program goes on.

mod support;

use kvarto::engine::{Event, GroupFacts, MemoryClasses, PageFacts, SeqId, Snapshot, StepFacts, Timed};
use kvarto::trace::{Header, TraceWriter};
use kvarto_viewer::app::Opening;
use kvarto_viewer::player::Speed;
use kvarto_viewer::samples;
use kvarto_viewer::settings::Settings;
use std::path::Path;
use std::sync::Arc;
use support::bare::{Bare, bytes, empty, temporary};
use support::{PATIENCE, app};

/// A trace of these events, as a writer writes it.
fn written(events: Vec<Event>) -> tempfile::NamedTempFile {
    let mut writer = TraceWriter::new(Vec::new(), &Header::default()).expect("a header");
    for (ns, event) in (0..).zip(events) {
        writer.push(&Timed { ns, event: Arc::new(event) }).expect("an event");
    }
    temporary(&writer.finish().expect("a trace"))
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
