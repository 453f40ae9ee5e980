//! How a step ends: finished, dropped after work ran, or dropped before.

use super::{Step, StepReport};
use crate::engine::events::{StepFacts, sequence_rows};
use crate::engine::journal::{Done, Journal};
use crate::engine::{Event, SeqRows};
use crate::error::{Error, ErrorKind, Result};
use crate::plan::Route;

impl Step<'_> {
    /// Submits the rest and closes the step.
    ///
    /// # Errors
    /// `Shape` naming layers whose rows were never appended, or taps that never came: the step's tokens are taken back then. What the device
    /// said, if it failed in this step.
    pub fn finish(mut self) -> Result<StepReport> {
        let begun = self.begin();
        self.watch(begun)?;
        if let Some(error) = &self.engine.broken {
            return Err(error.clone());
        }
        if self.recording.is_empty() {
            // Everything ran already: on a device that is gone, the rows are gone with it.
            let alive = self.engine.backend.poll().map(|_| ());
            self.watch(alive)?;
        } else {
            self.submit()?;
        }
        self.executed = true;
        let missing: Vec<usize> = match self.prepared.total_rows {
            0 => Vec::new(),
            _ => {
                let layers = self.engine.shape.groups.iter().flat_map(|g| g.layers.iter().copied());
                layers.filter(|l| !self.appended.contains(l)).collect()
            }
        };
        let taps = self.check_taps();
        let samples = self.page_samples()?;
        let rows = std::mem::take(&mut self.prepared.rows);
        self.close();
        if let Err(error) = taps {
            self.take_back(&rows);
            return Err(error);
        }
        if !missing.is_empty() {
            self.take_back(&rows);
            return Err(Error::new(
                ErrorKind::Shape,
                format!("the step ended without rows for layers {missing:?}"),
                "append every layer of the shape in every step",
            ));
        }
        let engine = &mut *self.engine;
        let read_bytes = self.prepared.plans.iter().flat_map(|p| &p.layers).map(|l| l.read_bytes).sum();
        // A sequence's first rows are a prompt, however short.
        let goes_on = |r: &SeqRows| engine.sequence(r.seq).is_ok_and(|s| s.logical > r.rows);
        let decoding =
            rows.iter().any(|r| r.rows > 0) && rows.iter().all(|r| r.rows <= 16 && (r.rows == 0 || goes_on(r)));
        if decoding {
            let values = engine.values_of(rows.iter().filter(|r| r.rows > 0).map(|r| r.seq))?;
            engine.counters.decode_steps += 1;
            engine.counters.read_bits_sum += read_bytes as f64 * 8.0 / values.max(1) as f64;
        }
        let reads = match engine.listened() {
            true => engine.read_facts(engine.counters.steps, &rows, &self.prepared.plans),
            false => Vec::new(),
        };
        // After the figures, which are those of the step; and only now, when no row of it can be taken back.
        for (at, r) in rows.iter().enumerate() {
            engine.learn(r, self.prepared.tokens.get(at).and_then(Option::as_deref))?;
            engine.free_behind(r.seq)?;
        }
        let report = StepReport {
            step: engine.counters.steps,
            rows: self.prepared.total_rows,
            read_bytes,
            submission: self.submission,
            splits: engine.backend.splits() - self.splits_before,
        };
        engine.tap_steps += u64::from(report.rows > 0);
        if engine.listened() {
            let facts = StepFacts {
                step: report.step,
                rows: report.rows,
                read_bytes,
                host_ns: engine.listeners.now().saturating_sub(self.prepared.began_ns),
                moved_bytes: self.moved_bytes,
                policy_ns: u64::try_from(self.prepared.policy.time.as_nanos()).unwrap_or(u64::MAX),
                waiting_moves: engine.counters.policy.put_off + engine.counters.deferred,
                splits: report.splits,
                sequences: sequence_rows(engine, &rows),
            };
            engine.announce_step(facts, reads)?;
            samples.into_iter().for_each(|event| engine.announce(event));
        }
        engine.announce_mass(report.step, std::mem::take(&mut self.prepared.mass));
        Ok(report)
    }

    /// What its pages hold, of those that are sampled.
    fn page_samples(&mut self) -> Result<Vec<Event>> {
        if self.foreign || !self.engine.listened() {
            return Ok(Vec::new());
        }
        let changed = self.journal.iter().flat_map(|journal| &journal.0).filter_map(|done| match done {
            Done::Changed { group, change } => Some((*group, *change)),
            _ => None,
        });
        let changed: Vec<_> = changed.collect();
        let samples = self.engine.page_samples(&changed);
        self.watch(samples)
    }

    /// The step happened: replaced pages go, slots retire.
    fn close(&mut self) {
        let Some(journal) = self.journal.take() else { return };
        let engine = &mut *self.engine;
        for done in &journal.0 {
            if let Done::Changed { .. } = done {
                engine.counters.conversions += 1;
            }
        }
        engine.counters.steps += 1;
        let done = self.prepared.policy;
        let policy = &mut engine.counters.policy;
        policy.pages += done.pages;
        policy.bytes += done.bytes;
        policy.evicted += done.evicted;
        policy.put_off = done.put_off;
        policy.time += done.time;
        for (group, moved) in engine.groups.iter().zip(&self.prepared.transfers) {
            self.moved_bytes += moved.iter().flatten().map(|t| t.bytes(&group.pool)).sum::<u64>();
        }
        engine.counters.moved_bytes += self.moved_bytes;
        let layers = self.prepared.plans.iter().flat_map(|p| &p.layers);
        for batch in layers.flat_map(|l| &l.rounds).flat_map(|r| &r.attend) {
            let routes = engine.counters.routes.entry((batch.class.k, batch.class.v)).or_default();
            match batch.route {
                Route::Decode(_) => routes.decode += 1,
                Route::Prefill => routes.prefill += 1,
            }
        }
        engine.counters.rows += u64::from(self.prepared.total_rows);
        for event in std::mem::take(&mut self.prepared.events) {
            engine.listeners.send(event);
        }
        let (evicted, rest): (Vec<_>, Vec<_>) =
            journal.0.into_iter().partition(|done| matches!(done, Done::Evicted { .. }));
        for (done, reason) in [(evicted, "evicted"), (rest, "replaced")] {
            Journal(done).accept(&mut engine.groups);
            engine.announce_freed(reason);
        }
        engine.groups.iter_mut().for_each(|g| g.pool.reclaim());
    }

    /// Takes the step's tokens back: some layers may not have them.
    fn take_back(&mut self, rows: &[SeqRows]) {
        for r in rows.iter().filter(|r| r.rows > 0) {
            let Ok(sequence) = self.engine.sequence(r.seq) else { continue };
            let (length, pins) = (sequence.logical - r.rows, sequence.pins.clone());
            // Rows of this step lie in open pages, so nothing is reopened that could be refused.
            if let Err(error) = self.engine.truncate(r.seq, length) {
                log::warn!("sequence {} keeps rows of a step that failed: {error}", r.seq.0);
            }
            // The caller took nothing back: pins of rows to come stand.
            if let Some(sequence) = self.engine.sequences.get_mut(&r.seq) {
                let cut = std::mem::replace(&mut sequence.pins, pins.clone());
                for pin in pins.into_iter().filter(|pin| !cut.iter().any(|kept| kept.range == pin.range)) {
                    let (tokens, reason) = (pin.range, pin.reason.into());
                    self.engine.announce(Event::TokensPinned { sequence: r.seq, tokens, reason });
                }
            }
        }
        // It counts as a step, one without rows.
        if self.engine.listened() {
            let facts = StepFacts { step: self.engine.counters.steps, ..StepFacts::default() };
            self.engine.announce(Event::StepDone(facts));
            self.engine.announce_memory();
        }
    }
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        if self.executed && self.journal.is_some() {
            self.close();
            let rows = std::mem::take(&mut self.prepared.rows);
            self.take_back(&rows);
        } else if let Some(journal) = self.journal.take() {
            self.engine.roll_back(journal);
        }
    }
}
