//! What a listener makes of an engine's events, held against the engine.

use kvarto::engine::{Engine, Event, Subscription};
use kvarto::trace::State;

/// A listener who keeps the state.
pub struct Mirror {
    events: Subscription,
    state: State,
}

impl Mirror {
    pub fn of(engine: &mut Engine) -> Self {
        Mirror { events: engine.subscribe_with_snapshot(1 << 16), state: State::default() }
    }

    /// Hears what happened since; every event fits, and what they lead to is what the engine holds.
    #[track_caller]
    pub fn check(&mut self, engine: &Engine) {
        while let Some(event) = self.events.try_next() {
            // Other events are told once; the read ones are held against what can be seen.
            if let Event::UnitsRead(facts) = &event {
                for row in 0..self.state.groups[facts.group].layers.len() {
                    let read = facts.of_row(row);
                    assert!(read.ranges().iter().all(|r| facts.visible.start <= r.start && r.end <= facts.visible.end));
                    assert!(read.contains(facts.visible.end - 1), "its own page is read: {facts:?}");
                }
            }
            self.state.apply(&event).unwrap_or_else(|why| panic!("{event:?}: {why}"));
        }
        assert_eq!(self.events.dropped(), 0);
        let mut there = State::of(&engine.snapshot());
        for state in [&mut self.state, &mut there] {
            // A pin that a failed step cut is told again whole; what it was cut to stands beside it.
            for sequence in state.sequences.values_mut() {
                let pins = std::mem::take(&mut sequence.pins);
                let covers = |a: &std::ops::Range<u32>, b: &std::ops::Range<u32>| a.start <= b.start && b.end <= a.end;
                let own = |at: usize| {
                    !pins.iter().enumerate().any(|(i, p)| i != at && covers(p, &pins[at]) && *p != pins[at])
                };
                sequence.pins = (0..pins.len()).filter(|&at| own(at)).map(|at| pins[at].clone()).collect();
                sequence.pins.sort_by_key(|p| (p.start, p.end));
                sequence.pins.dedup();
            }
        }
        // Bytes beside the pages are told when a step ends.
        there.memory = self.state.memory.clone();
        for (seq, want) in &there.sequences {
            assert_eq!(self.state.sequences.get(seq), Some(want));
        }
        for want in there.pages.iter() {
            assert_eq!(self.state.pages.get(want.group, want.page), Some(want));
        }
        assert_eq!(self.state, there);
        assert_eq!(self.state.page_bytes(), engine.memory().used_slot_bytes);
    }
}
