//! Figures of two traces at the same step, side by side.

use super::super::Scene;
use super::{color, rows};
use crate::store::{Change, Store};
use crate::units::{self, bytes};
use eframe::egui;
use kvarto::engine::SeqId;

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Count,
    Bytes,
    Bits,
    Milliseconds,
}

/// Decode steps of which the median is taken.
const MEDIAN_OF: usize = 1000;

/// Names and units, in the order of [`Figures::values`].
const NAMES: [(&str, Unit); 11] = [
    ("Tokens, sequence", Unit::Count),
    ("Tokens, all", Unit::Count),
    ("Pages", Unit::Count),
    ("Bytes of pages", Unit::Bytes),
    ("Resident a value", Unit::Bits),
    ("Read a value", Unit::Bits),
    ("Metadata a value", Unit::Bits),
    ("Conversions so far", Unit::Count),
    ("Evictions so far", Unit::Count),
    ("Moved last step", Unit::Bytes),
    ("Median decode step", Unit::Milliseconds),
];

/// The figures of one trace.
#[derive(Default)]
pub struct Figures {
    of: Option<(String, u64, u64, Option<SeqId>)>,
    values: [Option<f64>; NAMES.len()],
    /// Changes counted so far, forgotten ones among them; conversions and evictions of them.
    counted: (u64, [u64; 2]),
}

impl Figures {
    /// Takes them from a trace at its cursor.
    pub fn update(&mut self, store: &Store, selected: Option<SeqId>) {
        let of = (store.name.clone(), store.revision, store.chronicle.events, selected);
        if self.of.as_ref() == Some(&of) {
            return;
        }
        if self.of.as_ref().is_none_or(|known| known.0 != store.name) {
            self.counted = (0, [0; 2]);
        }
        self.of = Some(of);
        let live = &store.state.sequences;
        let one = rows::sequence(store, selected).and_then(|sequence| live.get(&sequence));
        let all: u64 = live.values().map(|held| u64::from(held.logical)).sum();
        let bits = store.bits();
        let [conversions, evictions] = self.count(store);
        let done = store.events_done();
        let steps = store.chronicle.steps.until(|step| step.when.event >= done);
        let moved = steps.last().map(|step| step.what.moved_bytes as f64);
        self.values = [
            one.map(|held| f64::from(held.logical)),
            Some(all as f64),
            Some(store.state.pages.len() as f64),
            Some(store.state.page_bytes() as f64),
            bits.map(|bits| bits.resident),
            bits.and_then(|bits| bits.read),
            bits.map(|bits| bits.metadata),
            Some(conversions as f64),
            Some(evictions as f64),
            moved,
            median(steps.iter().rev().map(|step| &step.what)),
        ];
    }

    /// Conversions and evictions before the cursor; what was counted already is not looked at again.
    fn count(&mut self, store: &Store) -> [u64; 2] {
        let (done, changes) = (store.events_done(), &store.chronicle.changes);
        let before = changes.until(|change| change.when.event >= done);
        let end = changes.forgotten() + before.len() as u64;
        if self.counted.0 > end {
            self.counted = (0, [0; 2]);
        }
        let from = self.counted.0.saturating_sub(changes.forgotten()) as usize;
        for change in before.get(from..).unwrap_or_default() {
            match change.what.change {
                Change::Converted => self.counted.1[0] += 1,
                Change::Evicted => self.counted.1[1] += 1,
                Change::Allocated => {}
            }
        }
        self.counted.0 = end;
        self.counted.1
    }
}

/// The median host time of steps in which each sequence has one row, in milliseconds.
fn median<'a>(newest_first: impl Iterator<Item = &'a kvarto::engine::StepFacts>) -> Option<f64> {
    let decodes = newest_first.filter(|step| step.rows > 0 && step.rows as usize == step.sequences.len());
    let mut times: Vec<u64> = decodes.take(MEDIAN_OF).map(|step| step.host_ns).collect();
    let middle = times.len() / 2;
    (!times.is_empty()).then(|| *times.select_nth_unstable(middle).1 as f64 / 1e6)
}

/// Draws both, and what they differ by.
pub fn show(ui: &mut egui::Ui, scene: &Scene<'_>, sides: &[Figures; 2]) {
    ui.strong("Figures");
    let gap = if ui.available_width() < 480.0 { 9.0 } else { 18.0 };
    egui::Grid::new("figures").num_columns(4).striped(true).spacing([gap, 3.0]).show(ui, |ui| {
        ui.weak("at this step");
        for (number, letter) in ["A", "B"].into_iter().enumerate() {
            ui.horizontal(|ui| {
                let (rect, _) = ui.allocate_exact_size(egui::vec2(8.0, 8.0), egui::Sense::hover());
                ui.painter().rect_filled(rect, 2.0, color(scene, number));
                ui.strong(letter);
            });
        }
        ui.strong("A - B");
        ui.end_row();
        for [name, a, b, difference] in lines(sides) {
            ui.label(name);
            ui.label(a);
            ui.label(b);
            ui.label(difference);
            ui.end_row();
        }
    });
    ui.weak(format!("Decode steps: the newest {} at most, host time.", units::count(MEDIAN_OF as u64)));
}

/// Name, A, B and the difference of each figure, with units.
pub fn lines(sides: &[Figures; 2]) -> Vec<[String; 4]> {
    let [a, b] = sides;
    let line = |(at, (name, unit)): (usize, &(&str, Unit))| {
        let (a, b) = (a.values[at], b.values[at]);
        let one = |value: Option<f64>| value.map_or("not known".into(), |value| words(value, *unit));
        [name.to_string(), one(a), one(b), a.zip(b).map_or(String::new(), |(a, b)| change(a, b, *unit))]
    };
    NAMES.iter().enumerate().map(line).collect()
}

fn words(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Count => units::count(value.max(0.0) as u64),
        Unit::Bytes => bytes(value.max(0.0) as u64),
        Unit::Bits => format!("{value:.3} bits"),
        Unit::Milliseconds => format!("{value:.3} ms"),
    }
}

/// The difference with its sign, and the share of B that it is.
fn change(a: f64, b: f64, unit: Unit) -> String {
    let difference = a - b;
    if difference == 0.0 {
        return "the same".into();
    }
    let sign = if difference < 0.0 { "-" } else { "+" };
    let percent = difference / b * 100.0;
    let digits = usize::from(percent.abs() < 10.0);
    let share = if b == 0.0 { String::new() } else { format!(" ({percent:+.digits$} %)") };
    format!("{sign}{}{share}", words(difference.abs(), unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvarto::engine::{SequenceRows, StepFacts};

    #[test]
    fn differences_have_signs_units_and_shares() {
        assert_eq!(change(3.0, 4.0, Unit::Count), "-1 (-25 %)");
        assert_eq!(change(1.02, 1.0, Unit::Milliseconds), "+0.020 ms (+2.0 %)");
        assert_eq!(change(20_480.0, 0.0, Unit::Bytes), "+20.0 KiB");
        assert_eq!(change(4.0, 4.0, Unit::Bits), "the same");
    }

    #[test]
    fn a_median_is_of_steps_that_decode() {
        let step = |rows: u32, host_ns: u64| {
            let held = SequenceRows { sequence: SeqId(1), first_position: 0, rows, committed: true };
            StepFacts { rows, host_ns, sequences: vec![held], ..StepFacts::default() }
        };
        let steps = [step(100, 9_000_000), step(1, 1_000_000), step(1, 5_000_000), step(1, 2_000_000)];
        assert_eq!(median(steps.iter()), Some(2.0));
        assert_eq!(median(steps[..1].iter()), None);
    }
}
