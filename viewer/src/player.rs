//! Brings a store along a trace: forward event by event, elsewhere by states that the reader loads.

use crate::source::{Loaded, Reader, Reply, Request, Wake};
use crate::store::{Moment, Store};
use kvarto::engine::Event;
use kvarto::trace::{ChunkEntry, ChunkKind, Ending, Record};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How fast a trace plays.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Speed {
    /// Steps of the engine a second.
    Steps(f32),
    /// As it happened, times this.
    Time(f32),
    /// As fast as it can be taken in.
    Most,
}

impl Speed {
    /// The same within what makes sense: settings may say anything.
    pub fn checked(self) -> Self {
        let within = |rate: f32, most: f32| if rate.is_finite() { rate.clamp(0.01, most) } else { 30.0 };
        match self {
            Speed::Steps(rate) => Speed::Steps(within(rate, 1e6)),
            Speed::Time(rate) => Speed::Time(within(rate, 1e4)),
            Speed::Most => Speed::Most,
        }
    }
}

/// Chunks that are loaded ahead.
const AHEAD: usize = 16;

/// Events behind the end from which a follower jumps to it.
const FAR_BEHIND: u64 = 100_000;

/// Words of faults that are kept.
const MOST_FAULTS: usize = 100;

/// A store and the trace that it is brought along.
pub struct Player {
    /// What views look at.
    pub store: Store,
    /// Whether it goes forward.
    pub playing: bool,
    /// How fast.
    pub speed: Speed,
    /// Whether it stays at the end of a trace that grows.
    pub follow: bool,
    /// Bytes of a page that were asked for last.
    pub page_data: Option<Box<Event>>,
    reader: Option<Reader>,
    chunks: Vec<ChunkEntry>,
    loaded: BTreeMap<usize, Arc<Vec<Record>>>,
    asked: BTreeMap<usize, ()>,
    damaged: BTreeMap<usize, ()>,
    next: (usize, usize),
    /// The state that was asked for and has not come.
    seeking: Option<u64>,
    /// Events are missing before `next`: only a snapshot helps.
    lost: bool,
    /// Steps that are owed at the speed.
    owed: f32,
    /// The time in the trace up to which it plays, in nanoseconds.
    clock_ns: f64,
}

impl Default for Player {
    fn default() -> Self {
        Player {
            store: Store::default(),
            playing: false,
            speed: Speed::Steps(30.0),
            follow: false,
            page_data: None,
            reader: None,
            chunks: Vec::new(),
            loaded: BTreeMap::new(),
            asked: BTreeMap::new(),
            damaged: BTreeMap::new(),
            next: (0, 0),
            seeking: None,
            lost: false,
            owed: 0.0,
            clock_ns: 0.0,
        }
    }
}

impl Player {
    /// Begins to read a trace, from its beginning.
    pub fn open(&mut self, path: &Path, name: &str, wake: Wake) {
        *self = Player { speed: self.speed, playing: self.playing, follow: self.follow, ..Player::default() };
        self.store.name = name.into();
        self.reader = Some(Reader::open(path, wake));
        self.reach();
    }

    /// Whether there is a trace.
    pub fn is_open(&self) -> bool {
        self.reader.is_some()
    }

    /// The trace's file.
    pub fn path(&self) -> Option<&Path> {
        self.reader.as_ref().map(Reader::path)
    }

    /// Whether the cursor is after the last event that was read.
    pub fn at_end(&self) -> bool {
        self.next.0 >= self.chunks.len() && self.seeking.is_none()
    }

    /// Whether it waits for the reader.
    pub fn waits(&self) -> bool {
        self.seeking.is_some() || !self.asked.is_empty() || self.store.scanned < 1.0 && self.is_open()
    }

    /// Goes to where event `event` is the next one. Who follows the end and wants to be elsewhere stands still there.
    pub fn seek(&mut self, event: u64) {
        if self.follow && event < self.store.chronicle.events {
            (self.follow, self.playing) = (false, false);
        }
        self.load(event);
    }

    fn load(&mut self, event: u64) {
        let Some(reader) = &self.reader else { return };
        reader.ask(Request::State(event));
        self.seeking = Some(event);
        self.asked.clear();
    }

    /// Goes to the end of step `step`.
    pub fn seek_step(&mut self, step: u64) {
        let last = self.store.chronicle.events;
        self.seek(self.store.chronicle.after_step(step).unwrap_or(last));
    }

    /// Goes forward to the end of the next step.
    pub fn step_forward(&mut self) {
        self.playing = false;
        let step = self.store.state.step.saturating_add(1);
        self.run(&mut |_| false, Some(step), Instant::now() + Duration::from_millis(50));
    }

    /// Goes back to the end of the step before.
    pub fn step_back(&mut self) {
        self.playing = false;
        match self.store.state.step {
            0 | 1 => self.seek(0),
            step => self.seek_step(step - 1),
        }
    }

    /// Asks for the bytes that a page had.
    pub fn load_page_data(&mut self, chunk: usize, event: u64) {
        if let Some(reader) = &self.reader {
            reader.ask(Request::PageData { chunk, event });
        }
    }

    /// Takes in what the reader sent and goes forward, for at most about `budget`. `dt` is the time since the last call,
    /// in seconds. Whether anything changed.
    pub fn tick(&mut self, dt: f32, budget: Duration) -> bool {
        let end = Instant::now() + budget;
        let changed = self.listen(end);
        let before = self.store.revision;
        if self.seeking.is_none() {
            self.advance(dt, end);
        }
        changed || self.store.revision != before
    }

    fn advance(&mut self, dt: f32, end: Instant) {
        if self.follow && self.playing {
            let behind = self.store.chronicle.events.saturating_sub(self.store.events_done());
            if behind > FAR_BEHIND {
                return self.load(self.store.chronicle.events);
            }
            return self.run(&mut |_| true, None, end);
        }
        if !self.playing {
            return;
        }
        match self.speed {
            Speed::Most => self.run(&mut |_| true, None, end),
            Speed::Steps(rate) => {
                self.owed = (self.owed + rate * dt.min(0.25)).min(rate.max(1.0));
                let whole = self.owed.floor();
                if whole >= 1.0 {
                    let before = self.store.state.step;
                    self.run(&mut |_| true, Some(before.saturating_add(whole as u64)), end);
                    self.owed -= self.store.state.step.saturating_sub(before) as f32;
                }
            }
            Speed::Time(rate) => {
                let now = self.store.cursor.map_or(self.store.chronicle.start_ns.unwrap_or(0), |at| at.ns) as f64;
                self.clock_ns = self.clock_ns.max(now) + f64::from(rate * dt.min(0.25)) * 1e9;
                let until = self.clock_ns;
                self.run(&mut |record| record.ns as f64 <= until, None, end);
            }
        }
        if self.at_end() && !self.follow && matches!(self.store.ending, Some(Ending::Finished)) {
            self.playing = false;
        }
    }

    /// Takes events in until `go` refuses one, step `step` has ended, the time is over, or none is there.
    fn run(&mut self, go: &mut dyn FnMut(&Record) -> bool, step: Option<u64>, end: Instant) {
        let mut count = 0u32;
        while let Some(records) = self.chunk() {
            let from = self.next.1;
            for record in &records[from..] {
                let stepping = step.is_some();
                if step.is_some_and(|step| self.store.state.step >= step) {
                    return;
                }
                if !go(record) && !stepping {
                    return;
                }
                self.next.1 += 1;
                if let Err(why) = self.store.apply(record) {
                    self.fault(format!("event {}: {why}", record.number));
                }
                count += 1;
                if count.is_multiple_of(64) && Instant::now() >= end {
                    return;
                }
            }
            self.next = (self.next.0 + 1, 0);
            self.reach();
        }
    }

    /// The records of the chunk that is next, if they are loaded; chunks that have nothing new are passed over.
    fn chunk(&mut self) -> Option<Arc<Vec<Record>>> {
        loop {
            let at = self.next.0;
            let entry = *self.chunks.get(at)?;
            if self.damaged.contains_key(&at) {
                self.lost = entry.kind == ChunkKind::Events || self.lost;
                self.next = (at + 1, 0);
                continue;
            }
            let expected = self.store.events_done();
            let skip = match entry.kind {
                // It says what the state is already.
                ChunkKind::Snapshot => !self.lost && entry.first_event == expected && self.store.cursor.is_some(),
                ChunkKind::Events => self.lost,
                _ => true,
            };
            if skip {
                self.next = (at + 1, 0);
                continue;
            }
            self.reach();
            let records = self.loaded.get(&at)?.clone();
            if entry.kind == ChunkKind::Snapshot {
                self.lost = false;
                if let Some(Event::Resync { snapshot, .. }) = records.first().and_then(|r| r.event.as_ref()) {
                    let cursor = entry.first_event.checked_sub(1).map(|event| Moment { event, ns: entry.first_ns });
                    self.store.jump(kvarto::trace::State::of(snapshot), cursor);
                }
                self.next = (at + 1, 0);
                continue;
            }
            return Some(records);
        }
    }

    /// Asks for the chunks that come next, and lets go of those that are past.
    fn reach(&mut self) {
        let Some(reader) = &self.reader else { return };
        let at = self.next.0;
        self.loaded.retain(|chunk, _| (at..at + AHEAD + 1).contains(chunk));
        for chunk in at..(at + AHEAD).min(self.chunks.len()) {
            let known = self.loaded.contains_key(&chunk) || self.damaged.contains_key(&chunk);
            if !known && self.asked.insert(chunk, ()).is_none() {
                reader.ask(Request::Chunk(chunk));
            }
        }
    }

    /// Whether the reader ended by a fault of ours; that is said, once.
    fn has_lost_reader(&mut self) -> bool {
        let failed = self.reader.as_ref().is_some_and(Reader::has_failed);
        if failed {
            self.fault("the trace cannot be read any further: its reader has ended".into());
        }
        failed
    }

    fn listen(&mut self, end: Instant) -> bool {
        let mut changed = false;
        self.has_lost_reader();
        while Instant::now() < end {
            let Some(reply) = self.reader.as_ref().and_then(Reader::answer) else { break };
            changed = true;
            self.hear(reply);
        }
        changed
    }

    fn hear(&mut self, reply: Reply) {
        match reply {
            Reply::Opened(header) => self.store.header = *header,
            Reply::Grown { chunks, ending } => {
                self.chunks.extend(chunks);
                match &ending {
                    // What is followed is always cut somewhere.
                    Ending::Cut(why) if !self.follow => self.fault(why.clone()),
                    Ending::Damaged(why) => self.fault(why.clone()),
                    _ => {}
                }
                self.store.ending = Some(ending);
                self.reach();
            }
            Reply::Scanned { chunk, records, share } => {
                records.iter().for_each(|record| self.store.chronicle.take(record, chunk));
                self.store.scanned = share;
            }
            Reply::UpToDate => self.store.scanned = 1.0,
            Reply::Chunk(chunk, records) => {
                self.asked.remove(&chunk);
                match records {
                    Ok(records) => drop(self.loaded.insert(chunk, records)),
                    Err(why) => {
                        self.damaged.insert(chunk, ());
                        self.fault(why);
                    }
                }
            }
            Reply::State(event, loaded) => {
                // Older wishes are void.
                if self.seeking != Some(event) {
                    return;
                }
                self.seeking = None;
                match loaded {
                    Ok(loaded) => {
                        let Loaded { state, cursor, next, fault } = *loaded;
                        fault.into_iter().for_each(|why| self.fault(why));
                        self.store.jump(state, cursor);
                        (self.next, self.lost, self.owed) = (next, false, 0.0);
                        self.clock_ns = cursor.map_or(0.0, |at| at.ns as f64);
                        self.reach();
                    }
                    Err(why) => self.fault(why),
                }
            }
            Reply::PageData(_, Ok(event)) => self.page_data = Some(event),
            Reply::PageData(_, Err(why)) => self.fault(why),
            Reply::Damage(why) => self.fault(why),
            Reply::Fault(why) => {
                self.store.scanned = 1.0;
                self.fault(why);
            }
        }
    }

    fn fault(&mut self, why: String) {
        if self.store.faults.len() < MOST_FAULTS && !self.store.faults.contains(&why) {
            self.store.faults.push(why);
        }
    }

    /// Waits until the trace was read as far as it goes, and step `step` is at the cursor, or the last one. For pictures.
    pub fn settle(&mut self, step: Option<u64>, most: Duration) {
        let end = Instant::now() + most;
        while Instant::now() < end && (self.store.scanned < 1.0 || self.store.ending.is_none()) {
            self.wait();
            if self.has_lost_reader() {
                break;
            }
        }
        match step {
            Some(step) => self.seek_step(step),
            None => self.seek(self.store.chronicle.events),
        }
        while Instant::now() < end && self.seeking.is_some() {
            self.wait();
        }
    }

    fn wait(&mut self) {
        if let Some(reply) = self.reader.as_ref().and_then(|reader| reader.wait(Duration::from_millis(50))) {
            self.hear(reply);
        }
        if !self.store.faults.is_empty() && self.chunks.is_empty() {
            self.store.ending.get_or_insert(Ending::Unfinished);
        }
    }
}
