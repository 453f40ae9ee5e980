//! The traces in `assets/traces`: real runs, which add up.

use kvarto::engine::Event;
use kvarto::trace::{State, Trace, verify};
use std::io::Cursor;
use std::path::Path;

/// Names and bytes of all of them.
pub fn all() -> [(&'static str, Vec<u8>); 2] {
    ["minima-kv.kvtr", "chat-fork.kvtr"].map(|name| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/traces").join(name);
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(bytes.len() <= 2 << 20, "{name} has {} bytes", bytes.len());
        (name, bytes)
    })
}

#[test]
fn shipped_traces_add_up_to_the_allocators_numbers() {
    for (name, bytes) in all() {
        let mut trace = Trace::new(Cursor::new(&bytes)).expect("a trace");
        let verdict = verify(&mut trace).expect("read");
        assert!(verdict.sound() && verdict.finished, "{name}: {verdict:?}");
        assert_eq!((verdict.dropped, verdict.unknown), (0, 0), "{name}");
        let mut state: State = trace.snapshot(0).expect("read").expect("the first chunk is a snapshot");
        let (mut checked, mut forks, mut older, mut text) = (0, 0, 0, String::new());
        let read = trace.each(|record| {
            let event = record.event.as_ref().expect("known");
            state.apply(event).unwrap_or_else(|why| panic!("{name}: event {}: {why}", record.number));
            match event {
                Event::MemoryUsed(memory) => {
                    let sum: u64 = state.pages.iter().map(|page| page.bytes).sum();
                    assert_eq!(sum, memory.used_slot_bytes(), "{name}: event {}", record.number);
                    checked += 1;
                }
                Event::SequenceForked { .. } => forks += 1,
                Event::PageConverted { page, .. } => older += usize::from(&*page.formats.0 == "tq4"),
                Event::Tokens { tokens, .. } => {
                    tokens.iter().for_each(|token| text += &String::from_utf8_lossy(&token.text));
                }
                _ => {}
            }
            true
        });
        read.expect("whole chunks");
        assert!(checked > 10 && text.len() > 500, "{name}: {checked} sums, {} bytes of text", text.len());
        let longest = state.sequences.values().map(|sequence| sequence.logical).max().unwrap_or(0);
        match name {
            "minima-kv.kvtr" => assert!(older > 1000 && longest > 3800, "{older} conversions, {longest} tokens"),
            _ => assert!(forks > 0 && state.sequences.len() == 2, "{forks} forks"),
        }
        assert_eq!(trace.header().model.as_ref().expect("a model").name, "smollm2-135m");
    }
}
