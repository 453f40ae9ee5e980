//! Keeps a pool's threads from falling asleep between the kernels of one submission.
//!
//! A step of decoding is hundreds of kernels of 10 to 100 us; a thread that sleeps in between takes about as long to wake.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rounds without work after which a thread lets others run: tens of microseconds.
const ROUNDS: u32 = 1 << 10;
/// Further rounds after which it may sleep. There must be an end: the loop can be entered from a join within a piece of the
/// very submission that it waits for, whose other half then waits for the piece.
const YIELDS: u32 = 1 << 9;

/// While it lives, the other threads of the current pool look for work instead of sleeping.
pub(super) struct Awake(Arc<AtomicBool>);

impl Awake {
    /// For the pool whose thread calls this; does nothing outside of one, or on a pool of one thread.
    pub(super) fn begin() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let Some(caller) = rayon::current_thread_index().filter(|_| rayon::current_num_threads() > 1) else {
            return Awake(over);
        };
        let seen = over.clone();
        // A broadcast reaches each thread once and cannot be stolen, so the caller never waits within it.
        rayon::spawn_broadcast(move |context| {
            if context.index() == caller {
                return;
            }
            let mut idle = 0u32;
            while !seen.load(Ordering::Relaxed) {
                if rayon::yield_now() == Some(rayon::Yield::Executed) {
                    idle = 0;
                } else if idle < ROUNDS {
                    idle += 1;
                    std::hint::spin_loop();
                } else if idle < ROUNDS + YIELDS {
                    idle += 1;
                    std::thread::yield_now();
                } else {
                    return;
                }
            }
        });
        Awake(over)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
