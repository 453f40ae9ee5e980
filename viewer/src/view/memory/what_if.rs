//! What the same cache would take under other profiles, counted as `kvarto plan` does.

use crate::store::Store;
use crate::units;
use eframe::egui::{self, Align, Layout, RichText};
use kvarto::engine::Registry;
use kvarto::footprint::Estimator;
use kvarto::profile::{Profile, builtin};
use kvarto::shape::{CacheGroup, CacheShape, GroupKind, KeySpace, VSource};
use kvarto::trace::{GroupHeader, Header};
use std::collections::BTreeMap;

/// Seconds between counts while the cache grows.
const PATIENCE: f64 = 0.5;

/// Layers × KV heads of a group: beyond these a header is taken for damaged.
const MOST_ROWS: usize = 1 << 16;

/// Sequences of different lengths that are counted.
const MOST_LENGTHS: usize = 1 << 12;

/// A profile and what it comes to.
struct Row {
    name: String,
    summary: String,
    /// Slots and metadata in bytes, and bits of both a value; or why the shape is refused.
    sizes: Result<Sizes, String>,
}

#[derive(Clone, Copy)]
struct Sizes {
    slots: u64,
    metadata: u64,
    values: u64,
}

/// A profile, ready to be counted.
struct Candidate {
    name: String,
    summary: String,
    estimator: Result<Estimator, String>,
}

/// The table, made when it is asked for.
#[derive(Default)]
pub struct WhatIf {
    /// The header's groups and the profile's text that the candidates are for.
    of: Option<(Vec<GroupHeader>, String)>,
    candidates: Vec<Candidate>,
    /// Sequences by length that the rows are for.
    lengths: BTreeMap<u32, u64>,
    rows: Vec<Row>,
    counted_at: f64,
}

impl WhatIf {
    /// Draws a header that opens the table. `bits` are those of slots a value at the cursor.
    pub fn show(&mut self, ui: &mut egui::Ui, store: &Store, bits: Option<f64>) {
        egui::CollapsingHeader::new("What if: other profiles").id_salt("what if").show(ui, |ui| {
            self.bring_up_to_date(ui, store);
            if self.lengths.is_empty() {
                ui.weak("Nothing is cached here.");
                return;
            }
            let tokens: u64 = self.lengths.iter().map(|(tokens, n)| u64::from(*tokens).saturating_mul(*n)).sum();
            let of = units::counted(self.lengths.values().sum(), "sequence", "sequences");
            ui.weak(format!(
                "Slots and metadata for {} tokens of {of}, as `kvarto plan` counts.",
                units::count(tokens)
            ))
            .on_hover_text("Each sequence is counted with pages of its own: what forks share counts in each.");
            self.grid(ui, store, bits);
        });
    }

    fn bring_up_to_date(&mut self, ui: &egui::Ui, store: &Store) {
        let header = &store.header;
        let same =
            self.of.as_ref().is_some_and(|(groups, text)| *groups == header.groups && *text == header.profile_text);
        if !same {
            self.candidates = candidates(header);
            self.of = Some((header.groups.clone(), header.profile_text.clone()));
            self.rows.clear();
        }
        let mut lengths = BTreeMap::new();
        for held in store.state.sequences.values().take(MOST_LENGTHS).filter(|held| held.logical > 0) {
            *lengths.entry(held.logical).or_default() += 1;
        }
        if same && lengths == self.lengths {
            return;
        }
        let now = ui.input(|input| input.time);
        if !self.rows.is_empty() && (0.0..PATIENCE).contains(&(now - self.counted_at)) {
            ui.ctx().request_repaint_after_secs(PATIENCE as f32);
            return;
        }
        (self.lengths, self.counted_at) = (lengths, now);
        self.rows = self.candidates.iter().map(|candidate| self.count(candidate)).collect();
    }

    fn count(&self, candidate: &Candidate) -> Row {
        let sizes = candidate.estimator.as_ref().map_err(String::clone).map(|estimator| {
            let mut sum = Sizes { slots: 0, metadata: 0, values: 0 };
            let mut shared = 0;
            for (&tokens, &sequences) in &self.lengths {
                let one = estimator.at(u64::from(tokens));
                sum.slots = sum.slots.saturating_add(one.slot_bytes().saturating_mul(sequences));
                sum.metadata = sum.metadata.saturating_add(one.metadata_bytes.saturating_mul(sequences));
                sum.values = sum.values.saturating_add(one.values.saturating_mul(sequences));
                shared = one.shared_bytes;
            }
            Sizes { metadata: sum.metadata.saturating_add(shared), ..sum }
        });
        Row { name: candidate.name.clone(), summary: candidate.summary.clone(), sizes }
    }

    fn grid(&self, ui: &mut egui::Ui, store: &Store, bits: Option<f64>) {
        let now = store.state.page_bytes();
        let right = |ui: &mut egui::Ui, text: RichText| {
            ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.label(text));
        };
        egui::Grid::new("profiles").num_columns(5).striped(true).spacing([8.0, 2.0]).show(ui, |ui| {
            ui.weak("profile");
            for (word, about) in [
                ("slots", "Bytes of slots in use."),
                ("metadata", "Bytes of descriptors, table entries, side planes and means."),
                ("bits", "Bits of slots a cached value."),
                ("of now", "Bytes of slots by those in use at the cursor."),
            ] {
                ui.with_layout(Layout::right_to_left(Align::Center), |ui| ui.weak(word).on_hover_text(about));
            }
            ui.end_row();
            ui.strong("now").on_hover_text("What the cache holds at the cursor.");
            right(ui, RichText::new(units::bytes(now)).strong());
            let memory = &store.state.memory;
            let metadata = [memory.descriptor_bytes, memory.table_bytes, memory.side_bytes, memory.basis_bytes];
            right(ui, RichText::new(units::bytes(metadata.into_iter().fold(0, u64::saturating_add))));
            right(ui, RichText::new(bits.map_or("-".into(), |bits| format!("{bits:.2}"))));
            right(ui, RichText::new("100 %"));
            ui.end_row();
            for Row { name, summary, sizes } in &self.rows {
                let own = *name == store.header.profile;
                let label = if own { RichText::new(name).strong() } else { RichText::new(name) };
                let more = if own { "\nThe profile of this trace: its plan." } else { "" };
                ui.label(label).on_hover_text(format!("{summary}{more}"));
                if let Ok(sizes) = sizes {
                    right(ui, RichText::new(units::bytes(sizes.slots)));
                    right(ui, RichText::new(units::bytes(sizes.metadata)));
                    let bits = (sizes.values > 0).then(|| sizes.slots as f64 * 8.0 / sizes.values as f64);
                    right(ui, RichText::new(bits.map_or("-".into(), |bits| format!("{bits:.2}"))));
                    let of_now = (now > 0).then(|| sizes.slots as f64 / now as f64);
                    right(ui, RichText::new(of_now.map_or("-".into(), |share| format!("{:.0} %", share * 100.0))));
                } else {
                    right(ui, RichText::new("refused"));
                }
                ui.end_row();
            }
        });
        for Row { name, sizes, .. } in &self.rows {
            if let Err(why) = sizes {
                ui.label(RichText::new(format!("{name}: {why}")).small().color(ui.visuals().warn_fg_color));
            }
        }
    }
}

/// Every profile that comes with the program, and the trace's own where that is none of them.
fn candidates(header: &Header) -> Vec<Candidate> {
    let registry = Registry::builtin();
    let shape = shape(header);
    let names = registry.names();
    let mut profiles: Vec<(String, kvarto::Result<Profile>)> =
        builtin::names().map(|name| (name.to_string(), Profile::load(name, &names))).collect();
    let known = profiles.iter().position(|(name, _)| *name == header.profile);
    if !header.profile_text.is_empty() {
        let own = (header.profile.clone(), Profile::parse(&header.profile_text, "the trace's profile", &names));
        match known {
            // It may have been changed by settings.
            Some(at) => profiles[at] = own,
            None => profiles.insert(0, own),
        }
    }
    let candidate = |(name, profile): (String, kvarto::Result<Profile>)| {
        let summary = profile.as_ref().map(|profile| profile.summary.clone()).unwrap_or_default();
        let estimator = profile.map_err(|error| error.to_string()).and_then(|profile| {
            let shape = shape.as_ref().map_err(String::clone)?;
            Estimator::new(shape, &profile, &registry).map_err(|error| error.to_string())
        });
        Candidate { name, summary, estimator }
    };
    profiles.into_iter().map(candidate).collect()
}

/// The shape that a trace's header says.
fn shape(header: &Header) -> Result<CacheShape, String> {
    let group = |group: &GroupHeader| {
        let rows = group.layers.len().saturating_mul(group.kv_heads as usize);
        if rows > MOST_ROWS {
            return Err(format!("a group has {rows} lists of pages; at most {MOST_ROWS} are counted"));
        }
        Ok(CacheGroup {
            layers: group.layers.iter().map(|layer| *layer as usize).collect(),
            kind: group.window.map_or(GroupKind::Full, |tokens| GroupKind::Window(tokens as usize)),
            page_tokens: group.page_tokens as usize,
            q_heads: group.q_heads as usize,
            kv_heads: group.kv_heads as usize,
            k_dim: group.k_dim as usize,
            v_dim: group.v_dim as usize,
            v: VSource::Own,
            key_space: KeySpace::PostRope,
        })
    };
    let shape = CacheShape { groups: header.groups.iter().map(group).collect::<Result<_, _>>()? };
    shape.validate().map_err(|error| error.to_string())?;
    Ok(shape)
}
