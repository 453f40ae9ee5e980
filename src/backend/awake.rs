//! Keeps a pool's threads from falling asleep between the kernels of one submission.
//!
//! A step of decoding is hundreds of kernels of 10 to 100 us; a thread that sleeps in between takes about as long to wake.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Rounds without work after which a thread lets others run: tens of microseconds.
const ROUNDS: u32 = 1 << 10;

/// How long a submission waits for the other threads to wake before it begins without them.
const WAKING: Duration = Duration::from_micros(200);

/// Set in [`Watch::door`] once the submission has begun.
const CLOSED: u32 = 1 << 31;

/// What a submission's threads share.
#[derive(Default)]
struct Watch {
    over: AtomicBool,
    /// Threads that came in, and [`CLOSED`].
    door: AtomicU32,
}

/// While it lives, the other threads of the current pool look for work instead of sleeping.
pub(super) struct Awake(Arc<Watch>);

impl Awake {
    /// For the pool whose thread calls this; does nothing outside of one, or on a pool of one thread.
    pub(super) fn begin() -> Self {
        let watch = Arc::<Watch>::default();
        let others = rayon::current_num_threads() as u32 - 1;
        let Some(caller) = rayon::current_thread_index().filter(|_| others > 0) else {
            return Awake(watch);
        };
        let seen = watch.clone();
        rayon::spawn_broadcast(move |context| {
            if context.index() != caller {
                seen.look_for_work();
            }
        });
        // A thread that came in later could do so from within a piece of the submission, while it waits there for another
        // thread, and would then wait for the end of what waits for it. So nobody comes in once there are pieces.
        let start = Instant::now();
        while watch.door.load(Ordering::Acquire) < others && start.elapsed() < WAKING {
            std::hint::spin_loop();
        }
        watch.door.fetch_or(CLOSED, Ordering::AcqRel);
        Awake(watch)
    }
}

impl Watch {
    fn look_for_work(&self) {
        let open = |door: u32| (door & CLOSED == 0).then_some(door + 1);
        if self.door.fetch_update(Ordering::AcqRel, Ordering::Acquire, open).is_err() {
            return;
        }
        let mut idle = 0u32;
        while !self.over.load(Ordering::Relaxed) {
            if rayon::yield_now() == Some(rayon::Yield::Executed) {
                idle = 0;
            } else if idle < ROUNDS {
                idle += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;

    /// Nested pieces, on more threads than there are cores: a thread that kept watch within a piece would never end.
    #[test]
    fn nested_work_ends() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(8).build().expect("threads");
        for round in 0..500u64 {
            let sum: u64 = pool.install(|| {
                let _awake = Awake::begin();
                (0..3)
                    .map(|_| {
                        (0..16u64)
                            .collect::<Vec<_>>()
                            .into_par_iter()
                            .with_max_len(1)
                            .map(|i| (0..64).into_par_iter().map(|j| i ^ j ^ round).max())
                            .map(|most| most.unwrap_or(0))
                            .sum::<u64>()
                    })
                    .sum()
            });
            assert!(sum > 0);
        }
    }
}
