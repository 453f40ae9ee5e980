//! Conversions and evictions of the last steps before the cursor: they flash, and fade by steps, so that a picture of a
//! step is always the same.

use super::lists::Held;
use crate::store::{Change, Store};

/// Steps after which nothing is left of a flash.
pub const FLASH_STEPS: usize = 6;
/// Changes that are looked at.
const MOST_CHANGES: usize = 20_000;

/// A page that flashes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flash {
    /// Its list.
    pub row: usize,
    /// Its number.
    pub number: u32,
    /// From 1, just now, to 0.
    pub strength: f32,
    /// Whether it is gone; else it has other formats.
    pub evicted: bool,
}

/// Flashes at the cursor, newest first.
pub fn flashes(store: &Store, held: &Held<'_>) -> Vec<Flash> {
    let done = store.events_done();
    let steps = store.chronicle.steps.until(|step| step.when.event >= done);
    let mut flashes = Vec::new();
    let changes = store.chronicle.changes.until(|at| at.when.event >= done);
    // Steps that were finished after the change, its own left out.
    let mut later = 0;
    for at in changes.iter().rev().take(MOST_CHANGES) {
        while later < steps.len() && steps[steps.len() - 1 - later].when.event > at.when.event {
            later += 1;
        }
        let age = later.saturating_sub(1);
        if age >= FLASH_STEPS {
            break;
        }
        let change = &at.what;
        let evicted = change.change == Change::Evicted;
        let other = evicted && change.sequence != Some(held.sequence);
        if change.change == Change::Allocated || usize::from(change.group) != held.group || other {
            continue;
        }
        let Some(row) = store.row_of(held.group, change.layer.into(), change.kv_head.into()) else { continue };
        let here = change.number.checked_sub(held.base()).and_then(|at| held.page(row, at as usize));
        if here == Some(if evicted { None } else { Some(change.page) }) {
            let strength = 1.0 - age as f32 / FLASH_STEPS as f32;
            flashes.push(Flash { row, number: change.number, strength, evicted });
        }
    }
    flashes
}
