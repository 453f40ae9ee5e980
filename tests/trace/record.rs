//! From an engine to a file and back.

use super::rig::{PAGE, Rng, Sink, busy, engine, moving, recorded, step};
use kvarto::engine::{Event, Reads, TokenPiece};
use kvarto::profile::Profile;
use kvarto::trace::{
    ChunkKind, Ending, Export, Header, Recorder, RecorderOptions, State, Target, Trace, TraceWriter, event_name,
    export, verify,
};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::time::Duration;

fn events_of(bytes: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    let mut trace = Trace::new(Cursor::new(bytes)).expect("a trace");
    let read = trace.each(|record| {
        assert_eq!(record.number, events.len() as u64);
        events.push(record.event.clone().expect("a known event"));
        true
    });
    read.expect("whole chunks");
    events
}

#[test]
fn what_is_recorded_is_what_a_listener_hears_and_adds_up() {
    for profile in [moving(), Profile::formats("f16", "f16"), Profile::formats("tq3n", "tq2")] {
        let mut heard = Vec::new();
        let (mut engine, bytes, summary) = recorded(profile, |engine| {
            let listener = engine.subscribe(1 << 16);
            busy(engine, 7);
            heard.extend(std::iter::from_fn(|| listener.try_next()));
            assert_eq!(listener.dropped(), 0);
        });
        assert!(summary.fault.is_none() && summary.dropped == 0, "{summary:?}");
        assert_eq!(summary.bytes, bytes.len() as u64);
        let events = events_of(&bytes);
        assert_eq!(summary.events, events.len() as u64);
        assert_eq!(events, heard);
        let mut trace = Trace::new(Cursor::new(&bytes)).expect("a trace");
        assert_eq!(*trace.ending(), Ending::Finished);
        assert_eq!(trace.header().groups[0].page_tokens, PAGE as u32);
        let verdict = verify(&mut trace).expect("read");
        assert!(verdict.sound() && verdict.finished, "{verdict:?}");
        // The end is what the engine holds.
        let state = trace.last_state().expect("read");
        assert_eq!(state, State::of(&engine.snapshot()));
        let stats = engine.stats();
        assert_eq!(state.pages.len() as u64, stats.pages.values().sum::<u64>());
        assert_eq!(state.page_bytes(), stats.memory.used_slot_bytes);
        let memory = &state.memory;
        assert_eq!(memory.used_slot_bytes(), stats.memory.used_slot_bytes);
        assert_eq!(memory.total(), engine.backend().allocated_bytes());
        let mut formats: BTreeMap<(String, String), u64> = BTreeMap::new();
        for page in state.pages.iter() {
            *formats.entry((page.formats.0.to_string(), page.formats.1.to_string())).or_default() += 1;
        }
        assert_eq!(formats, stats.pages);
        let converted = events.iter().filter(|e| matches!(e, Event::PageConverted { .. })).count() as u64;
        assert_eq!(converted, stats.conversions);
        let reopened = |e: &&Event| matches!(e, Event::PageAllocated { reason, .. } if reason == "reopened");
        assert_eq!(events.iter().filter(reopened).count() as u64, stats.reopened);
        let moved = |e: &Event| if let Event::StepDone(step) = e { step.moved_bytes } else { 0 };
        assert_eq!(events.iter().map(moved).sum::<u64>(), stats.moved_bytes);
    }
}

#[test]
fn the_state_before_any_event_is_that_of_all_before_it() {
    // Flushed at once, so that there are many chunks; snapshots come by size, and here by joining them to the end.
    let (_, bytes, _) = recorded(moving(), |engine| busy(engine, 3));
    let mut trace = Trace::new(Cursor::new(&bytes)).expect("a trace");
    let mut state = trace.snapshot(0).expect("read").expect("the first chunk is a snapshot");
    let events = events_of(&bytes);
    for (number, event) in events.iter().enumerate() {
        if number % 97 == 0 {
            assert_eq!(trace.state_before(number as u64).expect("read"), state, "{number}");
        }
        state.apply(event).expect("it fits");
    }
    assert_eq!(trace.last_state().expect("read"), state);
}

#[test]
fn dense_steps_tell_their_reads_in_a_word_and_others_page_by_page() {
    let reads = |profile: Profile| {
        let (_, bytes, _) = recorded(profile, |engine| {
            let (mut rng, seq) = (Rng(1), engine.create().expect("a sequence"));
            step(engine, seq, &mut rng, 200);
            (0..3).for_each(|_| step(engine, seq, &mut rng, 1));
        });
        let of = |event| if let Event::UnitsRead(facts) = event { Some(facts) } else { None };
        events_of(&bytes).into_iter().filter_map(of).collect::<Vec<_>>()
    };
    let dense = reads(moving());
    assert_eq!(dense.len(), 4);
    assert!(dense.iter().all(|facts| facts.read == Reads::All), "{dense:?}");
    assert_eq!(dense[3].visible, 0..203u32.div_ceil(PAGE as u32));
    // A sink of one page and a window: what lies between is not read.
    let profile = Profile { exact_sink_tokens: PAGE, exact_tail_tokens: PAGE, ..Profile::formats("f16", "f16") };
    let mut draft = kvarto::profile::Draft::of(&profile, "test").expect("a profile");
    for setting in ["selector.name=\"window\"", "selector.tokens=40"] {
        draft.set(&kvarto::profile::Setting::parse(setting).expect("a setting")).expect("it fits");
    }
    let window = draft.read(&kvarto::engine::Registry::builtin().names()).expect("a profile");
    let few = reads(window);
    let last = &few[3];
    let Reads::Same(set) = &last.read else { panic!("{last:?}") };
    assert!(set.contains(0) && set.contains(12) && !set.contains(5), "{last:?}");
}

#[test]
fn a_listener_who_was_slow_is_told_the_state_anew() {
    let mut engine = engine(moving());
    let slow = engine.subscribe(40);
    let (mut rng, seq) = (Rng(5), engine.create().expect("a sequence"));
    step(&mut engine, seq, &mut rng, 100);
    step(&mut engine, seq, &mut rng, 1);
    // What came while there was no room is lost; nothing of it shows up later.
    let first: Vec<Event> = std::iter::from_fn(|| slow.try_next()).collect();
    assert_eq!(first.len(), 40);
    let lost = slow.dropped();
    assert!(lost > 0);
    step(&mut engine, seq, &mut rng, 1);
    let next = slow.try_next().expect("the state");
    let Event::Resync { dropped, snapshot } = &next else { panic!("{next:?}") };
    assert_eq!(*dropped, slow.dropped());
    assert_eq!(**snapshot, engine.snapshot());
    let mut state = State::default();
    state.apply(&next).expect("a state");
    (0..20).for_each(|_| {
        step(&mut engine, seq, &mut rng, 1);
        while let Some(event) = slow.try_next() {
            state.apply(&event).expect("nothing is missing after it");
        }
    });
    assert_eq!(state, State::of(&engine.snapshot()));
}

#[test]
fn a_target_that_is_full_ends_the_trace_and_nothing_else() {
    let (_, whole, _) = recorded(moving(), |engine| busy(engine, 7));
    for room in [0, 5, 200, whole.len() / 3, whole.len() * 2 / 3, whole.len() - 1] {
        let mut engine = engine(moving());
        let sink = Sink::new(room);
        let header = Header { command: "test".into(), ..Header::of(&mut engine) };
        let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let tell = told.clone();
        let options = RecorderOptions {
            target: Some(Target::Writer(Box::new(sink.clone()))),
            flush_after: Duration::ZERO,
            on_fault: Some(Box::new(move |error| tell.lock().expect("not poisoned").push(error.to_string()))),
            ..RecorderOptions::default()
        };
        let recorder = Recorder::start(&mut engine, &header, options).expect("a thread");
        busy(&mut engine, 7);
        let summary = recorder.finish();
        let told = told.lock().expect("not poisoned").clone();
        assert_eq!(told.len(), 1, "{room}: {told:?}");
        assert!(summary.fault.is_some(), "{room}");
        let bytes = sink.taken();
        assert!(bytes.len() <= room);
        // Whatever is there is read up to its last whole chunk.
        match Trace::new(Cursor::new(&bytes)) {
            Err(error) => assert!(room <= 200 && error.message().contains("trace"), "{room}: {error}"),
            Ok(mut trace) => {
                let verdict = verify(&mut trace).expect("read");
                assert!(verdict.faults.iter().all(|fault| fault.contains("cut short")), "{verdict:?}");
                assert_eq!(verdict.events, summary.events, "{room}");
            }
        }
        // The engine went on: it does what it would have done.
        assert_eq!(engine.stats().steps, recorded(moving(), |engine| busy(engine, 7)).0.stats().steps);
    }
}

#[test]
fn long_traces_have_snapshots_and_an_index() {
    let mut engine = engine(moving());
    let listener = engine.subscribe_with_snapshot(1 << 20);
    let (mut rng, seq) = (Rng(5), engine.create().expect("a sequence"));
    step(&mut engine, seq, &mut rng, 200);
    let header = Header::of(&mut engine);
    let mut writer = TraceWriter::new(Vec::new(), &header).expect("memory");
    let mut pushed = 0u64;
    while let kvarto::engine::Next::Event(timed) = listener.next_within(Duration::ZERO) {
        writer.push(&timed).expect("memory");
        pushed += 1;
    }
    // Many times the same cut and step, told as they would be, with a text that makes the trace long.
    for _ in 0..300 {
        engine.truncate(seq, 190).expect("a cut");
        step(&mut engine, seq, &mut rng, 20);
        let text = (0..24_000).map(|_| rng.next() as u8).collect();
        let tokens = vec![TokenPiece { id: 7, text }];
        engine.announce(Event::Tokens { sequence: seq, first_position: 190, tokens });
        while let kvarto::engine::Next::Event(timed) = listener.next_within(Duration::ZERO) {
            writer.push(&timed).expect("memory");
            pushed += 1;
        }
    }
    let bytes = writer.finish().expect("memory");
    let mut trace = Trace::new(Cursor::new(&bytes)).expect("a trace");
    let kinds = |kind| trace.chunks().iter().filter(|chunk| chunk.kind == kind).count();
    println!("{} bytes, {} chunks, {} snapshots", bytes.len(), trace.chunks().len(), kinds(ChunkKind::Snapshot));
    assert!(kinds(ChunkKind::Events) > 8 && kinds(ChunkKind::Snapshot) > 0);
    let by_index = trace.chunks().to_vec();
    let verdict = verify(&mut trace).expect("read");
    assert!(verdict.sound(), "{verdict:?}");
    // The listener's first event is the state: a snapshot, and no event.
    assert_eq!(verdict.events, pushed - 1);
    // Without its end the heads say the same.
    let mut walked = Trace::new(Cursor::new(&bytes[..bytes.len() - 1])).expect("a trace");
    assert_eq!(walked.chunks(), by_index);
    assert_eq!(walked.last_state().expect("read"), State::of(&engine.snapshot()));
}

#[test]
fn other_tools_get_whole_documents() {
    let (_, bytes, _) = recorded(moving(), |engine| {
        engine.set_timing(kvarto::backend::Timing::Kernels).expect("timing");
        busy(engine, 7);
    });
    let events = events_of(&bytes);
    let written = |to| {
        let mut out = Vec::new();
        let mut trace = Trace::new(Cursor::new(&bytes)).expect("a trace");
        export(&mut trace, to, |_| true, &mut out).expect("memory");
        String::from_utf8(out).expect("UTF-8")
    };
    let json: serde_json::Value = serde_json::from_str(&written(Export::Json)).expect("JSON");
    let listed = json["events"].as_array().expect("events");
    assert_eq!(listed.len(), events.len());
    for (value, event) in listed.iter().zip(&events) {
        assert_eq!(value["event"], event_name(event));
    }
    let mut lines = csv::Reader::from_reader(std::io::Cursor::new(written(Export::Csv)));
    let rows: Vec<csv::StringRecord> = lines.records().collect::<Result<_, _>>().expect("CSV");
    assert_eq!(rows.len(), events.len());
    let of_page = rows.iter().find(|row| &row[2] == "page_converted").expect("a conversion");
    assert!(&of_page[9] == "fp8" && of_page[11].parse::<u64>().expect("bytes") > 0, "{of_page:?}");
    let perfetto: serde_json::Value = serde_json::from_str(&written(Export::Perfetto)).expect("JSON");
    let slices = perfetto["traceEvents"].as_array().expect("events");
    let named = |name: &str| slices.iter().filter(|slice| slice["name"] == name).count();
    let steps = events.iter().filter(|e| matches!(e, Event::StepDone(_))).count();
    assert_eq!(slices.iter().filter(|slice| slice["ph"] == "X" && slice["tid"] == 1).count(), steps);
    assert!(named("convert") > 0 && named("sealed") > 0 && named("bytes of the cache") > 0);
}

#[test]
fn a_file_that_grows_is_followed() {
    let (_, bytes, _) = recorded(moving(), |engine| {
        let (mut rng, seq) = (Rng(5), engine.create().expect("a sequence"));
        for _ in 0..6 {
            step(engine, seq, &mut rng, 20);
            std::thread::sleep(Duration::from_millis(300));
        }
    });
    let whole = Trace::new(Cursor::new(&bytes)).expect("a trace").chunks().to_vec();
    assert!(whole.len() > 4, "{}", whole.len());
    let file = tempfile::NamedTempFile::new().expect("a file");
    let write = |end: usize| std::fs::write(file.path(), &bytes[..end]).expect("it can be written");
    write(whole[2].offset as usize + 11);
    let mut trace = Trace::open(file.path()).expect("a trace");
    assert!(trace.chunks().len() == 2 && matches!(trace.ending(), Ending::Cut(_)));
    write(whole[4].offset as usize);
    trace.refresh().expect("read");
    assert_eq!((trace.chunks(), trace.ending()), (&whole[..4], &Ending::Unfinished));
    write(bytes.len());
    trace.refresh().expect("read");
    assert_eq!((trace.chunks(), trace.ending()), (&whole[..], &Ending::Finished));
    assert!(verify(&mut trace).expect("read").sound());
}
