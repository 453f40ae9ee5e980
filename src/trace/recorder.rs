//! Writes a trace while an engine runs: a thread of its own behind a bounded queue, so that no step waits for it.

use super::header::Header;
use super::serve::Server;
use super::target::Target;
use super::writer::{Packer, Places, unwritten};
use crate::engine::{Engine, Next, Subscription};
use crate::error::{Error, ErrorKind, Result};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Told of a fault.
pub type OnFault = Box<dyn FnOnce(&Error) + Send>;

/// How a trace is recorded.
pub struct RecorderOptions {
    /// Events that may wait for the thread; further ones are dropped and counted, in the trace as well.
    pub queue_events: usize,
    /// Events wait at most this long to be written.
    pub flush_after: Duration,
    /// Where the trace goes, if to a file or the like.
    pub target: Option<Target>,
    /// Where clients are served, if they are.
    pub listener: Option<TcpListener>,
    /// Told once, on the recorder's thread, when the target takes no more.
    pub on_fault: Option<OnFault>,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        RecorderOptions {
            queue_events: 1 << 16,
            flush_after: Duration::from_millis(250),
            target: None,
            listener: None,
            on_fault: None,
        }
    }
}

/// What became of a trace.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Events written.
    pub events: u64,
    /// Events lost because the thread was slow, or that could not be written.
    pub dropped: u64,
    /// Bytes of the target.
    pub bytes: u64,
    /// Clients served.
    pub clients: u64,
    /// Why the target ended before the run did, if it did.
    pub fault: Option<Error>,
}

/// A trace in the making. Dropped or finished, it ends with an index.
pub struct Recorder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Summary>>,
    address: Option<SocketAddr>,
}

impl Recorder {
    /// Listens to an engine from now on; what a target's file held is gone then. A target that refuses even the header ends as one that is full.
    ///
    /// # Errors
    /// `File` when the header or the listener cannot be used, or no thread can be made.
    pub fn start(engine: &mut Engine, header: &Header, options: RecorderOptions) -> Result<Self> {
        let head = header.to_bytes()?;
        let server = options.listener.map(|listener| Server::new(listener, head.clone())).transpose()?;
        let address = server.as_ref().map(Server::address);
        let stop = Arc::new(AtomicBool::new(false));
        let mut work = Work {
            subscription: engine.subscribe_with_snapshot(options.queue_events),
            stop: stop.clone(),
            flush_after: options.flush_after,
            target: options.target,
            on_fault: options.on_fault,
            server,
            packer: Packer::new(),
            places: Places::new(head.len() as u64),
            summary: Summary::default(),
        };
        work.begin(&head);
        let thread = std::thread::Builder::new().name("trace".into()).spawn(move || work.run());
        let thread = thread.map_err(|e| Error::new(ErrorKind::File, format!("no thread for the trace: {e}"), ""))?;
        Ok(Recorder { stop, thread: Some(thread), address })
    }

    /// Where clients are served.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Writes what waits and the index, and ends. Clients get what is theirs for up to two seconds.
    pub fn finish(mut self) -> Summary {
        self.end()
    }

    fn end(&mut self) -> Summary {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.end();
    }
}

/// How long the thread sleeps when there is nothing to do.
const NAP: Duration = Duration::from_millis(4);

struct Work {
    subscription: Subscription,
    stop: Arc<AtomicBool>,
    flush_after: Duration,
    target: Option<Target>,
    on_fault: Option<OnFault>,
    server: Option<Server>,
    packer: Packer,
    places: Places,
    summary: Summary,
}

impl Work {
    fn run(mut self) -> Summary {
        let mut flushed = Instant::now();
        loop {
            if self.target.is_none() && self.server.is_none() {
                // Nobody reads any more: nobody need listen.
                return self.finish();
            }
            let stop = self.stop.load(Ordering::SeqCst);
            // The thread looks now and then, and is not waited on: to wake it would cost the engine some 10 us an event.
            let ends = match self.subscription.next_within(Duration::ZERO) {
                Next::Event(timed) => {
                    self.packer.push(timed.ns, &timed.event);
                    false
                }
                Next::Idle if stop => true,
                Next::Idle => {
                    std::thread::sleep(NAP);
                    false
                }
                Next::Closed => true,
            };
            let due = flushed.elapsed() >= self.flush_after && !self.packer.is_empty();
            if self.packer.full() || due || ends {
                self.flush();
                flushed = Instant::now();
            }
            if self.server.as_ref().is_some_and(Server::somebody_waits) {
                // Whoever joins begins with the state, at a chunk's boundary.
                self.flush();
                let packer = &mut self.packer;
                if let Some(server) = &mut self.server {
                    server.accept(|| packer.snapshot().ok().flatten().map(|(_, bytes)| bytes));
                }
            }
            if ends {
                return self.finish();
            }
        }
    }

    fn flush(&mut self) {
        let before = self.packer.events();
        match self.packer.take() {
            Ok(chunks) => {
                for (entry, bytes) in chunks {
                    if self.target.is_some() && self.write(&bytes) {
                        self.places.add(entry, bytes.len());
                        self.summary.events = before;
                    }
                    if let Some(server) = &mut self.server {
                        server.send(bytes.into(), self.packer.events());
                    }
                }
            }
            // Only a chunk that cannot be packed: nothing of it is anywhere.
            Err(error) => self.fail(error),
        }
        if let Some(server) = &mut self.server {
            let packer = &self.packer;
            server.catch_up(|dropped| packer.resync(dropped).ok(), packer.events());
        }
    }

    /// Takes the target over, and writes the header.
    fn begin(&mut self, head: &[u8]) {
        if let Some(Err(e)) = self.target.as_mut().map(Target::begin) {
            return self.fail(unwritten(e));
        }
        self.write(head);
    }

    /// Writes to the target, whole or not at all; false when it takes no more.
    fn write(&mut self, bytes: &[u8]) -> bool {
        let Some(target) = &mut self.target else { return false };
        match target.write(bytes) {
            Ok(()) => true,
            Err(e) => {
                target.cut(self.places.offset());
                self.fail(unwritten(e));
                false
            }
        }
    }

    fn fail(&mut self, error: Error) {
        self.target = None;
        self.summary.bytes = self.places.offset();
        log::warn!("{error}");
        if let Some(tell) = self.on_fault.take() {
            tell(&error);
        }
        self.summary.fault.get_or_insert(error);
    }

    fn finish(mut self) -> Summary {
        if self.target.is_some() {
            match self.places.index(self.packer.events(), self.packer.last_ns()) {
                Ok(end) if self.write(&end) => self.summary.bytes = self.places.offset() + end.len() as u64,
                Ok(_) => {}
                Err(error) => self.fail(error),
            }
        }
        if self.target.is_none() && self.summary.fault.is_none() {
            self.summary.events = self.packer.events();
        }
        self.summary.dropped = self.subscription.dropped() + self.packer.unwritable();
        if let Some(server) = self.server {
            self.summary.clients = server.close();
        }
        self.summary
    }
}
