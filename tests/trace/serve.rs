//! Events over a socket: from the state on, for several clients, slow ones among them.

use super::rig::{Rng, engine, moving, step};
use kvarto::engine::Event;
use kvarto::trace::{ChunkKind, Header, Recorder, RecorderOptions, State, Stream};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Reads a stream to its end: the state, the events, and how many were missed.
fn follow(stream: TcpStream) -> (State, u64, u64) {
    let mut stream = Stream::new(stream).expect("a header");
    assert_eq!(stream.header().command, "test");
    let (mut state, mut events, mut missed, mut first) = (State::default(), 0, 0, true);
    while let Some((kind, records)) = stream.next_chunk().expect("whole chunks") {
        assert!(!first || kind == ChunkKind::Snapshot, "it begins with the state");
        first = false;
        for record in records {
            events += u64::from(kind == ChunkKind::Events);
            // Snapshots on the way say what is known already.
            if kind == ChunkKind::Snapshot && state != State::default() {
                let Some(Event::Resync { snapshot, .. }) = &record.event else { panic!("{record:?}") };
                assert_eq!(state, State::of(snapshot));
            }
            if let Some(Event::Resync { dropped, .. }) = &record.event {
                missed += dropped;
            }
            state.apply(&record.event.expect("known")).expect("it fits");
        }
    }
    (state, events, missed)
}

#[test]
fn clients_hear_what_happens_from_the_state_they_find() {
    let mut engine = engine(moving());
    let (mut rng, seq) = (Rng(5), engine.create().expect("a sequence"));
    step(&mut engine, seq, &mut rng, 100);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let header = Header { command: "test".into(), ..Header::of(&mut engine) };
    let options = RecorderOptions { listener: Some(listener), ..RecorderOptions::default() };
    let recorder = Recorder::start(&mut engine, &header, options).expect("a thread");
    let address = recorder.address().expect("it serves");
    let join = || {
        let stream = TcpStream::connect(address).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
        // Its header says that it was taken in.
        while stream.peek(&mut [0; 10]).expect("bytes") < 10 {}
        stream
    };
    let early = join();
    // One that never reads: it slows nobody.
    let idle = join();
    let early = std::thread::spawn(move || follow(early));
    for n in 0..60 {
        step(&mut engine, seq, &mut rng, 1 + n % 5);
    }
    let late = join();
    let late = std::thread::spawn(move || follow(late));
    step(&mut engine, seq, &mut rng, 3);
    // A client that says something, and one that leaves, change nothing.
    let mut rude = join();
    let _ = std::io::Write::write_all(&mut rude, b"GET / HTTP/1.1\r\n\r\n");
    drop(rude);
    step(&mut engine, seq, &mut rng, 3);
    let summary = recorder.finish();
    assert_eq!((summary.clients, summary.dropped), (4, 0));
    let want = State::of(&engine.snapshot());
    let (early, events, missed) = early.join().expect("no panic");
    assert_eq!((early, missed), (want.clone(), 0));
    let (late, fewer, _) = late.join().expect("no panic");
    assert_eq!(late, want);
    assert!(events > fewer && fewer > 0, "{events} and {fewer}");
    drop(idle);
}

#[test]
fn a_client_that_cannot_follow_is_told_what_it_missed() {
    let mut engine = engine(moving());
    let seq = engine.create().expect("a sequence");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let header = Header { command: "test".into(), ..Header::of(&mut engine) };
    let options =
        RecorderOptions { listener: Some(listener), flush_after: Duration::ZERO, ..RecorderOptions::default() };
    let recorder = Recorder::start(&mut engine, &header, options).expect("a thread");
    let stream = TcpStream::connect(recorder.address().expect("it serves")).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    while stream.peek(&mut [0; 10]).expect("bytes") < 10 {}
    // More than sockets and the client's queue hold, in chunks that do not pack.
    let mut rng = Rng(3);
    let mut sent = 0u64;
    for _ in 0..400 {
        let text: Vec<u8> = (0..200_000).map(|_| rng.next() as u8).collect();
        let tokens = vec![kvarto::engine::TokenPiece { id: 1, text }];
        engine.announce(Event::Tokens { sequence: seq, first_position: 0, tokens });
        sent += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    let reader = std::thread::spawn(move || follow(stream));
    // Until it has caught up: what comes now is told again.
    let mut steps = 0;
    while !reader.is_finished() && steps < 400 {
        step(&mut engine, seq, &mut rng, 1);
        std::thread::sleep(Duration::from_millis(2));
        steps += 1;
    }
    let summary = recorder.finish();
    assert_eq!(summary.clients, 1);
    let (state, events, missed) = reader.join().expect("no panic");
    assert!(missed > 0 && events < sent + missed + 10 * steps, "{missed} of {sent} missed");
    assert_eq!(state, State::of(&engine.snapshot()));
}
