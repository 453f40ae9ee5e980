//! What a running answer passes before each step: it may be slow, wait for a step to be wished, or end.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How fast answers are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the device can.
    Run,
    /// At most this many steps a second.
    Slow(u32),
    /// A step whenever one is wished.
    Steps,
}

struct Wished {
    pace: Pace,
    steps: u32,
    stop: bool,
    ended: bool,
}

/// The gate between the window and a running answer.
pub(super) struct Gate {
    wished: Mutex<Wished>,
    changed: Condvar,
}

impl Default for Gate {
    fn default() -> Self {
        let wished = Wished { pace: Pace::Run, steps: 0, stop: false, ended: false };
        Gate { wished: Mutex::new(wished), changed: Condvar::new() }
    }
}

impl Gate {
    fn change(&self, change: impl FnOnce(&mut Wished)) {
        change(&mut self.wished.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    pub fn stop(&self) {
        self.change(|wished| wished.stop = true);
    }

    pub fn end(&self) {
        self.change(|wished| wished.ended = true);
    }

    pub fn pace(&self, pace: Pace) {
        self.change(|wished| (wished.pace, wished.steps) = (pace, 0));
    }

    pub fn step(&self) {
        self.change(|wished| wished.steps = wished.steps.saturating_add(1));
    }

    pub fn now(&self) -> Pace {
        self.wished.lock().unwrap_or_else(PoisonError::into_inner).pace
    }

    /// Whether the window has gone.
    pub fn has_ended(&self) -> bool {
        self.wished.lock().unwrap_or_else(PoisonError::into_inner).ended
    }

    /// Forgets a stop that came before an answer began.
    pub fn open(&self) {
        self.change(|wished| wished.stop = false);
    }

    /// Waits until the next step may be made, `since` the one before. False when the answer is to end.
    pub fn pass(&self, since: Instant) -> bool {
        let mut wished = self.wished.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if wished.stop || wished.ended {
                return false;
            }
            let wait = match wished.pace {
                Pace::Run => return true,
                Pace::Slow(rate) => {
                    let due = Duration::from_secs(1) / rate.max(1);
                    match due.checked_sub(since.elapsed()) {
                        None => return true,
                        Some(left) => left,
                    }
                }
                Pace::Steps if wished.steps > 0 => {
                    wished.steps -= 1;
                    return true;
                }
                Pace::Steps => Duration::from_secs(3600),
            };
            wished = self.changed.wait_timeout(wished, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn steps_pass_one_by_one_and_a_stop_ends() {
        let gate = Arc::new(Gate::default());
        assert!(gate.pass(Instant::now()));
        gate.pace(Pace::Steps);
        let (other, (sender, receiver)) = (gate.clone(), std::sync::mpsc::channel());
        let thread = std::thread::spawn(move || {
            while other.pass(Instant::now()) {
                sender.send(()).unwrap();
            }
        });
        for _ in 0..3 {
            assert!(receiver.recv_timeout(Duration::from_millis(30)).is_err());
            gate.step();
            receiver.recv_timeout(Duration::from_secs(10)).unwrap();
        }
        gate.stop();
        thread.join().unwrap();
        // The next answer is not stopped by it.
        gate.open();
        gate.step();
        assert!(gate.pass(Instant::now()));
        gate.pace(Pace::Slow(20));
        let start = Instant::now();
        assert!(gate.pass(start) && start.elapsed() >= Duration::from_millis(49));
        gate.end();
        assert!(!gate.pass(start));
    }
}
