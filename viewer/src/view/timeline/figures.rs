//! Figures of the step at the cursor, of all steps so far, and kernels by their time.

use super::facts::{Bar, Facts, STALL};
use super::looks;
use crate::store::{At, Chronicle};
use crate::units;
use crate::view::Scene;
use eframe::egui::{self, Align, Layout, RichText, Sense, Vec2};
use kvarto::engine::StepFacts;

/// Decoding steps that the newest rate is of.
const NEWEST: usize = 32;

/// Sequences of a step that are listed.
const MOST_SEQUENCES: usize = 8;

/// Sums of kernels' times up to the cursor, brought along with it.
#[derive(Default)]
pub struct KernelSums {
    /// Samples that are in the sums.
    samples: usize,
    /// One in so many was kept when they were made.
    stride: u64,
    /// Dispatches and nanoseconds, as the facts' list of kernels; further ones last.
    sums: Vec<(u64, u64)>,
}

impl KernelSums {
    /// Takes in the times of all steps up to `step`: they are told after it.
    fn bring_along(&mut self, chronicle: &Chronicle, facts: &Facts, step: u64) {
        let samples = chronicle.kernels.until(|sample| sample.what.step > step);
        let same = self.samples <= samples.len() && self.stride == chronicle.kernels.stride();
        if !same || self.sums.len() != facts.kernels.len() + 1 {
            *self = KernelSums {
                samples: 0,
                stride: chronicle.kernels.stride(),
                sums: vec![(0, 0); facts.kernels.len() + 1],
            };
        }
        for share in samples[self.samples..].iter().flat_map(|sample| sample.what.kernels.iter()) {
            let place = facts.kernels.iter().position(|name| *name == share.kernel).unwrap_or(facts.kernels.len());
            if let Some((dispatches, ns)) = self.sums.get_mut(place) {
                *dispatches = dispatches.saturating_add(share.dispatches);
                *ns = ns.saturating_add(share.nanoseconds);
            }
        }
        self.samples = samples.len();
    }

    /// Begins anew: the list of kernels has changed.
    pub fn forget(&mut self) {
        *self = KernelSums::default();
    }
}

/// Draws all figures in `ui`.
pub fn show(ui: &mut egui::Ui, scene: &Scene<'_>, facts: &Facts, sums: &mut KernelSums) {
    let chronicle = &scene.store.chronicle;
    let done = scene.store.events_done();
    egui::ScrollArea::vertical().auto_shrink(false).show(ui, |ui| {
        // Room for the bar.
        ui.set_max_width((ui.available_width() - 12.0).max(60.0));
        ui.spacing_mut().item_spacing.y = 2.0;
        let steps = chronicle.steps.until(|step| step.when.event >= done);
        // Of a trace that grows, facts come a little later than steps.
        let at = steps.len().min(facts.bars.len()).checked_sub(1);
        match at.and_then(|at| Some((facts.bars.get(at)?, &steps[at]))) {
            Some((bar, step)) => {
                ui.horizontal(|ui| {
                    ui.label(RichText::new(format!("Step {}", units::count(step.what.step))).heading().strong());
                    ui.label(kind(bar));
                    if bar.stalled {
                        ui.label(RichText::new("stalled").strong().color(ui.visuals().error_fg_color));
                    }
                });
                step_rows(ui, bar, step, scene.store.header.copy_bytes_per_s, facts);
                ui.add_space(4.0);
                so_far(ui, facts, at.unwrap_or(0));
            }
            None => drop(ui.weak("Before the first step.")),
        }
        ui.add_space(4.0);
        sums.bring_along(chronicle, facts, scene.store.state.step);
        kernels(ui, scene, facts, sums);
    });
}

/// `decode`, or that some sequence has several rows.
fn kind(bar: &Bar) -> &'static str {
    if bar.prefill { "prefill" } else { "decode" }
}

fn row(ui: &mut egui::Ui, name: &str, value: &str, words: &str) {
    let drawn = ui.horizontal(|ui| {
        ui.label(name);
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.label(value));
    });
    if !words.is_empty() {
        drawn.response.on_hover_text(words);
    }
}

fn step_rows(ui: &mut egui::Ui, bar: &Bar, step: &At<StepFacts>, copy_rate: Option<f64>, facts: &Facts) {
    let StepFacts { rows, read_bytes, host_ns, moved_bytes, policy_ns, waiting_moves, splits, sequences, .. } =
        &step.what;
    row(ui, "ended at", &format!("{:.3} s", bar.end), "Since the first event of the trace.");
    row(ui, "host time", &units::nanoseconds(*host_ns), "From the step's beginning to its end.");
    if let Some(median) = facts.median(*rows) {
        let words = format!("Steps with {rows} rows; a step above {STALL} times of it counts as stalled.");
        row(ui, "median of such steps", &units::nanoseconds(median), &words);
    }
    let of = units::counted(sequences.len() as u64, "sequence", "sequences");
    row(ui, "query rows", &format!("{} of {of}", units::count((*rows).into())), "");
    let decodes = sequences.iter().any(|rows| rows.rows == 1);
    let read = if *read_bytes == 0 && !decodes { "not counted".into() } else { units::bytes(*read_bytes) };
    row(ui, "pages read", &read, "Bytes of pages that decoding rows read; those of a prefill are not counted.");
    let rate = match (bar.bandwidth, copy_rate) {
        (None, _) => "none".into(),
        (Some(rate), None) => units::bandwidth(rate),
        (Some(rate), Some(copy)) => format!("{} = {} of copy", units::bandwidth(rate), units::percent(rate / copy)),
    };
    let name = if facts.device_time { "bandwidth, device" } else { "bandwidth, host" };
    row(ui, name, &rate, bandwidth_words(facts, copy_rate).as_str());
    row(ui, "moved", &units::bytes(*moved_bytes), "Bytes read and written to seal, convert, reopen and copy pages.");
    row(ui, "time of the policy", &units::nanoseconds(*policy_ns), "Of the host time: asking it, preparing its moves.");
    row(ui, "moves that wait", &units::count(*waiting_moves), "Beyond the step's bound, or without room.");
    let changed = format!("{}, {} evicted", units::count(bar.conversions.into()), units::count(bar.evictions.into()));
    row(ui, "pages converted", &changed, "Since the step before.");
    row(ui, "cuts", &units::count(*splits), "How often the step was cut so that no submission takes too long.");
}

/// What bandwidths are of.
fn bandwidth_words(facts: &Facts, copy_rate: Option<f64>) -> String {
    let time = if facts.device_time {
        "the time of the kernel `decode`"
    } else {
        "the step's host time, for want of kernel times"
    };
    let copy = match copy_rate {
        Some(rate) => format!("the adapter copies {}, bytes read and written", units::bandwidth(rate)),
        None => "what the adapter copies is not in this trace".into(),
    };
    format!("Bytes of pages read by {time}; {copy}.")
}

fn so_far(ui: &mut egui::Ui, facts: &Facts, at: usize) {
    ui.strong("Up to here");
    let Some(sums) = facts.bars.get(at).map(|bar| bar.sums) else { return };
    let rate = |rows: u64, ns: u64| match ns {
        0 => "none yet".into(),
        ns => format!("{:.1} tokens/s", rows as f64 / (ns as f64 / 1e9)),
    };
    row(ui, "decoding", &rate(sums.rows, sums.ns), "Rows of decoding steps by their host time.");
    let before = at.checked_sub(NEWEST).and_then(|at| facts.bars.get(at)).map(|bar| bar.sums).unwrap_or_default();
    let newest = rate(sums.rows.saturating_sub(before.rows), sums.ns.saturating_sub(before.ns));
    row(ui, &format!("of the newest {NEWEST} steps"), &newest, "The same, of these alone.");
    row(ui, "steps that decode", &units::count(sums.decoding), "");
    row(ui, "stalled steps", &units::count(sums.stalls), &stall_rule());
    row(ui, "steps that left moves waiting", &units::count(sums.waiting), waiting_rule());
}

/// What counts as a stall.
pub fn stall_rule() -> String {
    format!("Red: the host time is above {STALL} times the median of the steps with as many rows.")
}

/// What is marked below the bars.
pub fn waiting_rule() -> &'static str {
    "Marked below the bars: moves were beyond the step's bound, or had no room, and wait."
}

fn kernels(ui: &mut egui::Ui, scene: &Scene<'_>, facts: &Facts, sums: &KernelSums) {
    if facts.kernels.is_empty() {
        ui.strong("Kernel times: not in this trace");
        ui.weak("Record with --timing kernels.");
        return;
    }
    ui.strong("Kernels up to here");
    let chronicle = &scene.store.chronicle;
    if chronicle.kernels.stride() > 1 {
        ui.weak(format!("One time in {} is kept of so long a trace.", chronicle.kernels.stride()));
    }
    let all: f64 = sums.sums.iter().map(|(_, ns)| *ns as f64).sum();
    let right = |ui: &mut egui::Ui, text: String| {
        ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.label(text));
    };
    egui::Grid::new("kernels").num_columns(5).min_col_width(12.0).striped(true).spacing([8.0, 2.0]).show(ui, |ui| {
        ui.label("");
        ui.weak("kernel");
        for word in ["dispatches", "time", "share"] {
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.weak(word));
        }
        ui.end_row();
        let names = facts.kernels.iter().map(String::as_str).chain(["others"]);
        for (place, (name, (dispatches, ns))) in names.zip(&sums.sums).enumerate() {
            if *dispatches == 0 {
                continue;
            }
            let (rect, _) = ui.allocate_exact_size(Vec2::new(12.0, 12.0), Sense::hover());
            ui.painter().rect_filled(rect, 2.0, looks::kernel(scene.palette, place));
            ui.label(name);
            right(ui, units::count(*dispatches));
            right(ui, units::nanoseconds(*ns));
            right(ui, units::percent(*ns as f64 / all.max(1.0)));
            ui.end_row();
        }
    });
}

/// All of a step, for the pointer.
pub fn tip(ui: &mut egui::Ui, bar: &Bar, step: &At<StepFacts>, copy_rate: Option<f64>, facts: &Facts) {
    ui.set_max_width(300.0);
    ui.spacing_mut().item_spacing.y = 1.0;
    let stalled = if bar.stalled { ", stalled" } else { "" };
    ui.strong(format!("Step {}: {}{stalled}", units::count(step.what.step), kind(bar)));
    step_rows(ui, bar, step, copy_rate, facts);
    for rows in step.what.sequences.iter().take(MOST_SEQUENCES) {
        let stand = if rows.committed { "" } else { ", may be taken back" };
        let words = units::counted(rows.rows.into(), "row", "rows");
        ui.label(format!("sequence {}: {words} from position {}{stand}", rows.sequence.0, rows.first_position));
    }
    if step.what.sequences.len() > MOST_SEQUENCES {
        ui.weak(format!("and {} sequences more", step.what.sequences.len() - MOST_SEQUENCES));
    }
    if bar.stalled {
        ui.weak(stall_rule());
    }
    if step.what.waiting_moves > 0 {
        ui.weak(waiting_rule());
    }
    ui.weak("Click to go there.");
}
