//! Two threads that read a trace: one from its beginning to its end, and on while it grows, for the chronicle; one that
//! loads the chunks and states that are asked for.

use super::request::{Loaded, Reply, Request};
use crate::store::Moment;
use kvarto::Result;
use kvarto::engine::Event;
use kvarto::trace::{ChunkKind, Ending, State, Trace};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

/// Called when there is an answer.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Answers that may wait: chunks of records, so that little memory waits.
const QUEUE: usize = 32;

/// How often a growing file is looked at.
const LOOK: Duration = Duration::from_millis(40);

/// A trace that is being read.
pub struct Reader {
    path: PathBuf,
    requests: Sender<Request>,
    replies: Receiver<Reply>,
    stop: Arc<AtomicBool>,
    failed: Arc<AtomicBool>,
}

/// Says that a thread ended before its work did.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Reader {
    /// Begins to read a file. Whatever is wrong with it comes as an answer.
    pub fn open(path: &Path, wake: Wake) -> Self {
        let (sender, replies) = sync_channel(QUEUE);
        let (requests, asked) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let failed = Arc::new(AtomicBool::new(false));
        let line = Line { path: path.into(), sender, wake, stop: stop.clone() };
        let other =
            Line { sender: line.sender.clone(), wake: line.wake.clone(), path: path.into(), stop: stop.clone() };
        for (name, run) in [
            ("trace scan", Box::new(move || scan(&line)) as Box<dyn FnOnce() + Send>),
            ("trace load", Box::new(move || load(&other, &asked))),
        ] {
            let end = Ends(failed.clone());
            let run = move || {
                let mut end = end;
                run();
                // It ended as it should.
                end.0 = Arc::default();
            };
            if let Err(e) = std::thread::Builder::new().name(name.into()).spawn(run) {
                log::error!("no thread to read {}: {e}", path.display());
                failed.store(true, Ordering::SeqCst);
            }
        }
        Reader { path: path.into(), requests, replies, stop, failed }
    }

    /// Whether a thread could not be had, or ended by a fault of ours.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::SeqCst)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks.
    pub fn ask(&self, request: Request) {
        // A thread that has gone has said why.
        let _ = self.requests.send(request);
    }

    /// The next answer, if there is one.
    pub fn answer(&self) -> Option<Reply> {
        self.replies.try_recv().ok()
    }

    /// The same, waiting for it.
    pub fn wait(&self, most: Duration) -> Option<Reply> {
        self.replies.recv_timeout(most).ok()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

struct Line {
    path: PathBuf,
    sender: SyncSender<Reply>,
    wake: Wake,
    stop: Arc<AtomicBool>,
}

impl Line {
    /// Says why nothing more is read.
    fn end(&self, why: String) {
        self.say(Reply::Fault(why));
    }

    /// False when nobody listens any more.
    fn say(&self, reply: Reply) -> bool {
        let mut reply = Some(reply);
        while let Some(next) = reply.take() {
            if self.stop.load(Ordering::SeqCst) {
                return false;
            }
            match self.sender.try_send(next) {
                Ok(()) => {}
                Err(std::sync::mpsc::TrySendError::Disconnected(_)) => return false,
                Err(std::sync::mpsc::TrySendError::Full(back)) => {
                    (self.wake)();
                    std::thread::sleep(Duration::from_millis(2));
                    reply = Some(back);
                }
            }
        }
        (self.wake)();
        true
    }
}

fn scan(line: &Line) {
    let mut trace = match Trace::open(&line.path) {
        Ok(trace) => trace,
        Err(error) => return line.end(error.to_string()),
    };
    if !line.say(Reply::Opened(Box::new(trace.header().clone()))) {
        return;
    }
    let (mut told, mut ending, mut size, mut next, mut first) = (0, None, 0, None, true);
    loop {
        let chunks = trace.chunks()[told..].to_vec();
        if !chunks.is_empty() || ending.as_ref() != Some(trace.ending()) {
            ending = Some(trace.ending().clone());
            if !line.say(Reply::Grown { chunks, ending: trace.ending().clone() }) {
                return;
            }
        }
        let all = trace.chunks().len();
        for chunk in told..all {
            let entry = trace.chunks()[chunk];
            if entry.kind == ChunkKind::Snapshot && next == Some(entry.first_event) {
                // It says what the events before it say.
                continue;
            }
            let reply = match trace.records(chunk) {
                Ok(records) => {
                    next = match entry.kind {
                        ChunkKind::Events => records.last().map(|record| record.number.saturating_add(1)).or(next),
                        _ => Some(entry.first_event),
                    };
                    Reply::Scanned { chunk, records, share: (chunk + 1) as f32 / all as f32 }
                }
                Err(error) => Reply::Damage(error.to_string()),
            };
            if !line.say(reply) {
                return;
            }
        }
        if (all > told || first) && !line.say(Reply::UpToDate) {
            return;
        }
        (told, first) = (all, false);
        if *trace.ending() == Ending::Finished {
            return;
        }
        std::thread::sleep(LOOK);
        if line.stop.load(Ordering::SeqCst) {
            return;
        }
        let now = std::fs::metadata(&line.path).map_or(0, |data| data.len());
        if now < size {
            let why = format!("{} became shorter while it was read: open it again", line.path.display());
            return line.end(why);
        }
        size = now;
        if let Err(error) = trace.refresh() {
            return line.end(error.to_string());
        }
    }
}

fn load(line: &Line, asked: &Receiver<Request>) {
    let mut trace: Option<Trace> = None;
    while let Ok(request) = asked.recv() {
        // Only the newest state is wanted; chunks were asked for after a state that is void, too.
        let mut requests = vec![request];
        requests.extend(asked.try_iter());
        if let Some(last) = requests.iter().rposition(|request| matches!(request, Request::State(_))) {
            let keep = |(at, request): (usize, Request)| {
                (at >= last || matches!(request, Request::PageData { .. })).then_some(request)
            };
            requests = requests.into_iter().enumerate().filter_map(keep).collect();
        }
        for request in requests {
            if trace.is_none() {
                trace = Trace::open(&line.path).ok();
            }
            let reply = match &mut trace {
                Some(trace) => answer(trace, request),
                None => refused(request, "the file cannot be opened any more"),
            };
            if !line.say(reply) {
                return;
            }
        }
    }
}

fn refused(request: Request, why: &str) -> Reply {
    match request {
        Request::Chunk(chunk) => Reply::Chunk(chunk, Err(why.into())),
        Request::State(event) => Reply::State(event, Err(why.into())),
        Request::PageData { event, .. } => Reply::PageData(event, Err(why.into())),
    }
}

fn answer(trace: &mut Trace, request: Request) -> Reply {
    // A trace that grows may have the chunk by now.
    let wanted = match request {
        Request::Chunk(chunk) | Request::PageData { chunk, .. } => chunk,
        Request::State(_) => usize::MAX,
    };
    if wanted >= trace.chunks().len()
        && let Err(error) = trace.refresh()
    {
        return refused(request, &error.to_string());
    }
    match request {
        Request::Chunk(chunk) => {
            Reply::Chunk(chunk, trace.records(chunk).map(Arc::new).map_err(|error| error.to_string()))
        }
        Request::State(event) => {
            Reply::State(event, state_before(trace, event).map(Box::new).map_err(|error| error.to_string()))
        }
        Request::PageData { chunk, event } => {
            let found = trace.records(chunk).map_err(|error| error.to_string()).and_then(|records| {
                let found = records.into_iter().find(|record| record.number == event).and_then(|r| r.event);
                found.map(Box::new).ok_or_else(|| format!("event {event} is not in chunk {chunk}"))
            });
            Reply::PageData(event, found)
        }
    }
}

/// The state before event `number`, and where to go on: from the last snapshot before it, over chunks that can be read.
fn state_before(trace: &mut Trace, number: u64) -> Result<Loaded> {
    let is_before =
        |chunk: &kvarto::trace::ChunkEntry| chunk.kind == ChunkKind::Snapshot && chunk.first_event <= number;
    let mut from = trace.chunks().iter().rposition(is_before).unwrap_or(0);
    // A damaged snapshot: from the one before it.
    while from > 0 && trace.records(from).is_err() {
        from = trace.chunks()[..from].iter().rposition(is_before).unwrap_or(0);
    }
    let mut loaded = Loaded { state: State::default(), cursor: None, next: (from, 0), fault: None };
    for at in from..trace.chunks().len() {
        let chunk = trace.chunks()[at];
        if chunk.first_event > number || chunk.kind == ChunkKind::Snapshot && at > from {
            if chunk.first_event > number {
                break;
            }
            continue;
        }
        let Ok(records) = trace.records(at) else { continue };
        for (place, record) in records.iter().enumerate() {
            if chunk.kind == ChunkKind::Events && record.number >= number {
                loaded.next = (at, place);
                return Ok(loaded);
            }
            if let Some(Err(why)) = record.event.as_ref().map(|event| loaded.state.apply(event)) {
                loaded.fault.get_or_insert_with(|| format!("event {}: {why}", record.number));
            }
            let before = matches!(record.event, Some(Event::Resync { .. })) && chunk.kind == ChunkKind::Snapshot;
            // A snapshot is no event of its own: the cursor stands before the event that it is numbered as.
            let event = if before { record.number.checked_sub(1) } else { Some(record.number) };
            loaded.cursor = event.map(|event| Moment { event, ns: record.ns });
        }
        loaded.next = (at + 1, 0);
    }
    Ok(loaded)
}
