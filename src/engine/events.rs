//! What happened in a cache, for whoever listens: bounded queues, drops counted, never a wait.

use super::SeqId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A sequence began.
    SequenceCreated {
        /// Which.
        sequence: SeqId,
    },
    /// A sequence was made from another, sharing its pages.
    SequenceForked {
        /// The new one.
        sequence: SeqId,
        /// Its origin.
        from: SeqId,
        /// Tokens in common.
        at_tokens: u32,
    },
    /// A sequence ended.
    SequenceReleased {
        /// Which.
        sequence: SeqId,
    },
    /// A page changed its format.
    PageConverted {
        /// Cache group.
        group: usize,
        /// Page: index of its descriptor.
        page: u32,
        /// K and V formats before.
        from: (String, String),
        /// K and V formats now.
        to: (String, String),
        /// Generation now.
        generation: u32,
        /// `sealed`, `reopened`, or a policy's word.
        reason: &'static str,
    },
    /// A policy took a page from a sequence; it is free unless another sequence holds it.
    PageEvicted {
        /// Which sequence.
        sequence: SeqId,
        /// Cache group.
        group: usize,
        /// Page: index of its descriptor.
        page: u32,
        /// Its number in the sequence.
        number: usize,
        /// The policy's word.
        reason: &'static str,
    },
    /// A sequence let go of pages behind a window; they are free unless another sequence holds them.
    PagesLeftBehind {
        /// Which sequence.
        sequence: SeqId,
        /// Cache group.
        group: usize,
        /// Numbers of the pages in the sequence, in every layer and head of the group.
        pages: std::ops::Range<usize>,
    },
    /// A step was recorded or submitted.
    StepDone {
        /// Steps so far.
        step: u64,
        /// Query rows in it.
        rows: u32,
        /// Bytes of pages read by decoding rows.
        read_bytes: u64,
    },
}

/// A listener's end.
pub struct Subscription {
    receiver: Receiver<Event>,
    dropped: Arc<AtomicU64>,
}

impl Subscription {
    /// The next event, if there is one.
    pub fn try_next(&self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }

    /// Events lost because this listener was slow.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub(super) struct Listeners(Vec<(SyncSender<Event>, Arc<AtomicU64>)>);

impl Listeners {
    pub fn subscribe(&mut self, bound: usize) -> Subscription {
        let (sender, receiver) = sync_channel(bound.max(1));
        let dropped = Arc::new(AtomicU64::new(0));
        self.0.push((sender, dropped.clone()));
        Subscription { receiver, dropped }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn send(&mut self, event: Event) {
        self.0.retain(|(sender, dropped)| match sender.try_send(event.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                dropped.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        });
    }
}
