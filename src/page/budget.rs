//! A bound on the bytes of slots in use, over all pools that share it.

use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the bytes of slots in use and refuses those above its limit. Clones share one count: the pools of an
/// engine's cache groups draw on one budget.
#[derive(Clone, Debug, Default)]
pub struct Budget {
    limit: Option<u64>,
    used: Arc<AtomicU64>,
}

impl Budget {
    /// A budget of `limit` bytes, or one without a limit, that nobody has drawn on.
    pub fn new(limit: Option<u64>) -> Self {
        Budget { limit, used: Arc::default() }
    }

    /// Bytes in use, all pools together.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether `bytes` more may be used. Takes nothing yet.
    ///
    /// # Errors
    /// `OutOfPages` naming the bytes short.
    pub(super) fn check(&self, bytes: u64) -> Result<()> {
        let used = self.used();
        match self.limit {
            Some(limit) if used.saturating_add(bytes) > limit => Err(Error::new(
                ErrorKind::OutOfPages,
                format!(
                    "{} bytes of pages are short: {used} in use, {bytes} wanted, budget {limit}",
                    used.saturating_add(bytes) - limit
                ),
                "release or truncate sequences, or raise the budget",
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn take(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn give(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl From<Option<u64>> for Budget {
    fn from(limit: Option<u64>) -> Self {
        Budget::new(limit)
    }
}
