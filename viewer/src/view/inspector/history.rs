//! What became of a page: all that the trace tells of it, before the cursor and after it.

use super::super::{Act, Table};
use super::section;
use crate::store::{At, Change, PageChange, Place, Store};
use crate::units;
use eframe::egui;
use kvarto::engine::SeqId;

/// The changes of the page at one place.
#[derive(Default)]
pub struct History {
    of: Option<(Place, String)>,
    /// Sequences that the place belonged to, newest first, each from an event on.
    owners: Vec<(SeqId, u64)>,
    /// Changes looked at, the forgotten ones among them.
    looked: u64,
    /// The descriptor that the place has, after the changes looked at.
    current: Option<u32>,
    lines: Vec<At<PageChange>>,
}

/// Lines that are kept: a page has few, unless the trace is damaged.
const MOST_LINES: usize = 10_000;

impl History {
    /// Looks up the changes of the page at `place`, whose descriptor is `page` at the cursor.
    pub fn find(&mut self, store: &Store, place: Place, page: Option<u32>) {
        let owners = owners(store, place);
        let same = self.of.as_ref().is_some_and(|(of, name)| *of == place && *name == store.name);
        let seen = store.chronicle.changes.forgotten() + store.chronicle.changes.items().len() as u64;
        if !same || self.owners != owners || self.looked > seen {
            *self = History { of: Some((place, store.name.clone())), owners, ..History::default() };
            // A page from before the trace has the descriptor that it has now.
            self.current = page;
        }
        let Some((layer, head)) = store.layer_and_head(place.group, place.row) else { return };
        let changes = &store.chronicle.changes;
        let from = self.looked.saturating_sub(changes.forgotten()).min(changes.items().len() as u64) as usize;
        for change in changes.items().get(from..).unwrap_or_default() {
            let what = &change.what;
            let here = what.number == place.number
                && (usize::from(what.group), u32::from(what.layer), u32::from(what.kv_head))
                    == (place.group, layer, head);
            if here && self.lines.len() < MOST_LINES && self.concerns(change) {
                self.lines.push(change.clone());
            }
        }
        self.looked = seen;
    }

    /// Whether a change at the place is one of this sequence's page.
    fn concerns(&mut self, change: &At<PageChange>) -> bool {
        let owner = self.owners.iter().find(|(_, born)| *born <= change.when.event).map(|(sequence, _)| *sequence);
        match (change.what.change, change.what.sequence) {
            (Change::Converted, _) => self.current == Some(change.what.page),
            (_, sequence) if owner.is_none() || sequence != owner => false,
            (Change::Allocated, _) => {
                self.current = Some(change.what.page);
                true
            }
            _ => {
                self.current = None;
                true
            }
        }
    }

    /// Draws the lines; a click goes there.
    pub fn show(&self, ui: &mut egui::Ui, store: &Store, acts: &mut Vec<Act>) {
        let done = store.events_done();
        let past = self.lines.partition_point(|line| line.when.event < done);
        let after = self.lines.len() - past;
        section(ui, "History", &format!("{past} changes up to here, {after} after · click to go there"));
        let forgotten = store.chronicle.changes.forgotten();
        if forgotten > 0 {
            ui.weak(format!("The oldest {} changes of the trace were forgotten.", units::count(forgotten)));
        }
        if self.lines.is_empty() {
            ui.weak("The trace tells no change of this page.");
        }
        let height = ui.spacing().interact_size.y;
        let area =
            egui::ScrollArea::vertical().id_salt("history").max_height(9.0 * (height + 3.0)).auto_shrink([false, true]);
        area.show_rows(ui, height, self.lines.len(), |ui, rows| {
            for (at, line) in self.lines.iter().enumerate().take(rows.end).skip(rows.start) {
                let mut text = egui::RichText::new(format!("{:<10} {}", when(store, line), words(store, &line.what)));
                if at >= past {
                    text = text.weak().italics();
                }
                let button = egui::Button::selectable(at + 1 == past, text).truncate();
                let seconds = format!("{:.3} s after the trace began, event {}", seconds(store, line), line.when.event);
                if ui.add(button).on_hover_text(seconds).clicked() {
                    acts.push(Act::Seek(line.when.event.saturating_add(1)));
                }
            }
        });
    }

    /// The lines as a table.
    pub fn table(&self, store: &Store) -> Option<Table> {
        let head =
            ["event", "step", "seconds", "change", "from K", "from V", "K", "V", "bytes", "generation", "reason"];
        let names = &store.chronicle.formats;
        let rows: Vec<Vec<String>> = self
            .lines
            .iter()
            .map(|line| {
                let what = &line.what;
                let from = |side: usize| what.from.map_or(String::new(), |from| names.at(from[side]).into());
                vec![
                    line.when.event.to_string(),
                    step(store, line).map_or(String::new(), |step| step.to_string()),
                    format!("{:.6}", seconds(store, line)),
                    word(what).into(),
                    from(0),
                    from(1),
                    names.at(what.formats[0]).into(),
                    names.at(what.formats[1]).into(),
                    what.bytes.to_string(),
                    what.generation.to_string(),
                    store.chronicle.reasons.at(what.reason).into(),
                ]
            })
            .collect();
        (!rows.is_empty()).then(|| Table { head: head.map(String::from).to_vec(), rows })
    }
}

/// The sequence and those that it was forked from where they had the place, newest first, each with the event from
/// which on it was the owner.
fn owners(store: &Store, place: Place) -> Vec<(SeqId, u64)> {
    let first = u64::from(place.number) * u64::from(store.page_tokens(place.group));
    let mut owners = Vec::new();
    let mut at = Some(place.sequence);
    while let Some(sequence) = at.filter(|_| owners.len() < 64) {
        let Some(life) = store.chronicle.lineage.of(sequence) else { break };
        let from = life.from.filter(|(_, common)| u64::from(*common) > first);
        owners.push((sequence, if from.is_some() { life.born.event } else { 0 }));
        at = from.map(|(from, _)| from);
    }
    owners
}

/// The step that a change was made in.
fn step(store: &Store, line: &At<PageChange>) -> Option<u64> {
    let steps = store.chronicle.steps.samples();
    steps.get(steps.partition_point(|step| step.when.event < line.when.event)).map(|step| step.what.step)
}

fn seconds(store: &Store, line: &At<PageChange>) -> f64 {
    line.when.ns.saturating_sub(store.chronicle.start_ns.unwrap_or(0)) as f64 / 1e9
}

fn when(store: &Store, line: &At<PageChange>) -> String {
    step(store, line)
        .map_or_else(|| format!("{:.3} s", seconds(store, line)), |step| format!("step {}", units::count(step)))
}

fn word(change: &PageChange) -> &'static str {
    match change.change {
        Change::Allocated => "allocated",
        Change::Converted => "converted",
        Change::Evicted => "evicted",
    }
}

fn words(store: &Store, change: &PageChange) -> String {
    let names = &store.chronicle.formats;
    let pair = |pair: [crate::store::Name; 2]| format!("{}/{}", names.at(pair[0]), names.at(pair[1]));
    let from = change.from.map_or(String::new(), |from| format!("{} to ", pair(from)));
    let reason = store.chronicle.reasons.at(change.reason);
    format!(
        "{} {from}{} · {reason} · {} B · generation {}",
        word(change),
        pair(change.formats),
        units::count(change.bytes),
        change.generation
    )
}
