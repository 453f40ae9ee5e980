//! Listeners' queues.

use super::{Event, Snapshot};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// An event and when it was told.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// Nanoseconds since the engine was made.
    pub ns: u64,
    /// What happened.
    pub event: Arc<Event>,
}

/// What a wait for an event came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// An event.
    Event(Timed),
    /// None came in time.
    Idle,
    /// None will come any more: the engine is gone.
    Closed,
}

/// A listener's end.
///
/// Once an event found no room, all further ones are dropped until the end of a step at which there is room again: then
/// an [`Event::Resync`] says how many were lost and what the state is.
pub struct Subscription {
    receiver: Receiver<Timed>,
    dropped: Arc<AtomicU64>,
}

impl Subscription {
    /// The next event, if there is one.
    pub fn try_next(&self) -> Option<Event> {
        self.receiver.try_recv().ok().map(|timed| Arc::unwrap_or_clone(timed.event))
    }

    /// The next event with its time; waits for it up to `timeout`. A listener who waits makes the engine wake it.
    pub fn next_within(&self, timeout: Duration) -> Next {
        if timeout.is_zero() {
            return match self.receiver.try_recv() {
                Ok(timed) => Next::Event(timed),
                Err(TryRecvError::Empty) => Next::Idle,
                Err(TryRecvError::Disconnected) => Next::Closed,
            };
        }
        match self.receiver.recv_timeout(timeout) {
            Ok(timed) => Next::Event(timed),
            Err(RecvTimeoutError::Timeout) => Next::Idle,
            Err(RecvTimeoutError::Disconnected) => Next::Closed,
        }
    }

    /// Events lost because this listener was slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

struct Listener {
    sender: SyncSender<Timed>,
    dropped: Arc<AtomicU64>,
    /// Events lost since the last one sent: none is sent until the state was told anew.
    missed: u64,
}

/// All listeners of an engine.
pub(in crate::engine) struct Listeners {
    all: Vec<Listener>,
    start: Instant,
}

impl Default for Listeners {
    fn default() -> Self {
        Listeners { all: Vec::new(), start: Instant::now() }
    }
}

impl Listeners {
    pub fn subscribe(&mut self, bound: usize) -> Subscription {
        let (sender, receiver) = sync_channel(bound.max(1));
        let dropped = Arc::new(AtomicU64::new(0));
        self.all.push(Listener { sender, dropped: dropped.clone(), missed: 0 });
        Subscription { receiver, dropped }
    }

    /// A listener whose first event is the state.
    pub fn subscribe_from(&mut self, bound: usize, snapshot: Snapshot) -> Subscription {
        let subscription = self.subscribe(bound);
        let event = Arc::new(Event::Resync { dropped: 0, snapshot: Box::new(snapshot) });
        if let Some(newest) = self.all.last() {
            // The queue is empty and holds one.
            let _ = newest.sender.try_send(Timed { ns: self.now(), event });
        }
        subscription
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Nanoseconds since the engine was made.
    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub fn send(&mut self, event: Event) {
        if self.all.is_empty() {
            return;
        }
        let timed = Timed { ns: self.now(), event: Arc::new(event) };
        self.all.retain_mut(|listener| {
            let sent = match listener.missed {
                0 => listener.sender.try_send(timed.clone()),
                _ => Err(TrySendError::Full(timed.clone())),
            };
            match sent {
                Ok(()) => true,
                Err(TrySendError::Full(_)) => {
                    listener.missed += 1;
                    listener.dropped.fetch_add(1, Ordering::Relaxed);
                    true
                }
                Err(TrySendError::Disconnected(_)) => false,
            }
        });
    }

    /// Whether somebody waits to be told the state.
    pub fn behind(&self) -> bool {
        self.all.iter().any(|listener| listener.missed > 0)
    }

    /// Tells the state to those who missed events, where there is room.
    pub fn resync(&mut self, snapshot: &Snapshot) {
        let ns = self.now();
        for listener in self.all.iter_mut().filter(|listener| listener.missed > 0) {
            let event = Event::Resync { dropped: listener.missed, snapshot: Box::new(snapshot.clone()) };
            match listener.sender.try_send(Timed { ns, event: Arc::new(event) }) {
                Ok(()) => listener.missed = 0,
                // One that has gone is let go of with the next event.
                Err(TrySendError::Disconnected(_)) => listener.missed = 0,
                Err(TrySendError::Full(_)) => {}
            }
        }
    }
}
