//! One step: append, attend, and the caller's own kernels between them, in one recording.

mod finish;
mod record;

pub(super) use record::parts;

use super::Engine;
use super::journal::Journal;
use super::moves;
use super::prepare::{Prepared, no_layer};
use crate::backend::{Backend, BufferSlice, Recording, SubmissionId, read_blocking};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::RowView;
use crate::needs::TapKind;
use std::collections::BTreeSet;

/// K, V or Q of a step: `[rows][heads][dim]` in f32.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// In a buffer of the engine's backend.
    Device(RowView),
    /// On the host; copied at the call.
    Host(&'a [f32]),
}

/// Where a layer's attention goes: `[rows][query heads][v_dim]` in f32.
#[derive(Debug)]
pub enum Output<'a> {
    /// Into a buffer of the engine's backend, once the step has run.
    Device(RowView),
    /// To the host: submits what is recorded and waits for it.
    Host(&'a mut [f32]),
}

/// What a finished step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// Steps so far, this one included.
    pub step: u64,
    /// Query rows.
    pub rows: u32,
    /// Bytes of pages that decoding rows read.
    pub read_bytes: u64,
    /// The last submission; `None` when all went into the caller's encoder.
    pub submission: Option<SubmissionId>,
    /// How often the step's work was cut because it was predicted to take longer than one submission may
    /// ([`crate::backend::Caps::max_submission_ms`]).
    pub splits: u64,
}

/// A step in the making. Dropped unfinished, it leaves every sequence with the tokens it had.
pub struct Step<'e> {
    pub(super) engine: &'e mut Engine,
    pub(super) prepared: Prepared,
    journal: Option<Journal>,
    pub(super) recording: Recording,
    appended: BTreeSet<usize>,
    pub(super) tapped: BTreeSet<(TapKind, usize)>,
    staged: usize,
    begun: bool,
    /// Why the tables could not be made, or work could not be submitted; nothing can be recorded then.
    failed: Option<Error>,
    executed: bool,
    submission: Option<SubmissionId>,
    /// The backend's count of splits when the step began.
    splits_before: u64,
    /// Whether work is in an encoder of the caller's.
    foreign: bool,
    /// Bytes that its transfers read and wrote, once it is closed.
    moved_bytes: u64,
}

impl<'e> Step<'e> {
    pub(super) fn new(engine: &'e mut Engine, prepared: Prepared, journal: Journal) -> Self {
        let splits_before = engine.backend.splits();
        Step {
            engine,
            prepared,
            journal: Some(journal),
            recording: Recording::new(),
            appended: BTreeSet::new(),
            tapped: BTreeSet::new(),
            staged: 0,
            begun: false,
            failed: None,
            executed: false,
            submission: None,
            splits_before,
            foreign: false,
            moved_bytes: 0,
        }
    }

    /// Query rows, all sequences together.
    pub fn rows(&self) -> u32 {
        self.prepared.total_rows
    }

    /// Positions of the rows, in order.
    pub fn positions(&self) -> Vec<u32> {
        let plan = &self.prepared.plans[0];
        (0..plan.rows as usize).map(|r| plan.tables[plan.rows_at as usize + r * 4]).collect()
    }

    /// The backend, for the caller's own kernels.
    pub fn backend(&mut self) -> &mut dyn Backend {
        self.engine.backend.as_mut()
    }

    /// The recording, for the caller's own dispatches: they run in the order of the calls. A [`Recording::boundary`]
    /// between long ones lets a step that would keep the device for too long go in several submissions; the engine's own
    /// work has them.
    pub fn recording(&mut self) -> &mut Recording {
        &mut self.recording
    }

    /// Remembers a device's failure, so that the engine refuses further steps.
    pub(super) fn watch<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.engine.note(error);
        }
        result
    }

    /// Uploads tables and records the moves: once, before the first work.
    pub(super) fn begin(&mut self) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.begun {
            return Ok(());
        }
        let result = self.upload();
        match &result {
            Ok(()) => self.begun = true,
            // What was recorded before the fault must not run twice.
            Err(error) => self.failed = Some(error.clone()),
        }
        result
    }

    fn upload(&mut self) -> Result<()> {
        let engine = &mut *self.engine;
        let backend = engine.backend.as_mut();
        for ((group, plan), moved) in
            engine.groups.iter_mut().zip(&mut self.prepared.plans).zip(&self.prepared.transfers)
        {
            let moves: usize = moved.iter().map(Vec::len).sum();
            if group.tables.ensure(backend, ((plan.tables.len() + moves * 4).max(4) * 4) as u64)? {
                group.held = None;
            }
            let rows = u64::from(plan.round_rows) * group.attention.q_heads() as u64;
            group.queries.ensure(backend, rows.max(1) * group.attention.query_floats() as u64 * 4)?;
            let states = plan.partials.max(1) as u64;
            group.partials.ensure(backend, states * group.attention.partial_floats() as u64 * 4)?;
            let slice = group.tables.slice()?;
            for batch in moved {
                moves::record(group, backend, batch, slice, &mut plan.tables, &mut self.recording)?;
            }
            group.upload_descriptors(backend)?;
            // What an earlier step wrote in front may serve this one.
            let stamp = plan.kept.map(|(stamp, _)| stamp);
            let held = plan.kept.filter(|_| group.held.take() == stamp).map_or(0, |(_, words)| words);
            if held < plan.tables.len() {
                backend.write(slice.buffer, held as u64 * 4, bytemuck::cast_slice(&plan.tables[held..]))?;
            }
            group.held = stamp;
        }
        Ok(())
    }

    fn locate(&self, layer: usize) -> Result<(usize, usize)> {
        self.engine.shape.locate(layer).ok_or_else(|| no_layer(layer))
    }

    /// Puts host rows into a staging buffer of this step.
    fn stage(&mut self, what: &str, rows: &[f32], width: usize) -> Result<RowView> {
        let wanted = self.prepared.total_rows as usize * width;
        if rows.len() != wanted {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("{what} holds {} floats, {} rows of {width} are wanted", rows.len(), self.prepared.total_rows),
                "",
            ));
        }
        let slice = self.staging(wanted)?;
        self.engine.backend.write(slice.buffer, 0, bytemuck::cast_slice(rows))?;
        Ok(RowView { slice, offset: 0, stride: width as u32 })
    }

    fn staging(&mut self, floats: usize) -> Result<BufferSlice> {
        let engine = &mut *self.engine;
        if engine.staging.len() == self.staged {
            engine.staging.push(super::scratch::Scratch::new("staging"));
        }
        let scratch = &mut engine.staging[self.staged];
        scratch.ensure(engine.backend.as_mut(), floats as u64 * 4)?;
        self.staged += 1;
        scratch.slice()
    }

    pub(super) fn view(&mut self, what: &str, input: Input<'_>, width: usize) -> Result<RowView> {
        match input {
            Input::Host(rows) => self.stage(what, rows, width),
            Input::Device(view) => {
                check_view(what, &view, self.prepared.total_rows, width)?;
                Ok(view)
            }
        }
    }

    /// Records the layer's new keys and values, `[rows][kv_heads][dim]`, keys already turned to their positions.
    ///
    /// # Errors
    /// `Shape` for an unknown layer, one appended before, or tensors that do not hold the rows.
    pub fn append(&mut self, layer: usize, k: Input<'_>, v: Input<'_>) -> Result<()> {
        let result = self.record_append(layer, k, v);
        self.watch(result)
    }

    fn record_append(&mut self, layer: usize, k: Input<'_>, v: Input<'_>) -> Result<()> {
        let (index, at) = self.locate(layer)?;
        if self.appended.contains(&layer) {
            return Err(Error::new(ErrorKind::Shape, format!("layer {layer} is appended twice in a step"), ""));
        }
        let heads = self.engine.groups[index].shape.kv_heads;
        let (k_dim, v_dim) = (self.engine.groups[index].shape.k_dim, self.engine.groups[index].shape.v_dim);
        self.begin()?;
        let k_in = self.view("K", k, heads * k_dim)?;
        let v_in = self.view("V", v, heads * v_dim)?;
        self.record_rows(index, at, k_in, v_in)?;
        self.appended.insert(layer);
        Ok(())
    }

    /// Records the layer's attention of queries `[rows][query heads][k_dim]` over everything cached, the step's own
    /// rows included.
    ///
    /// # Errors
    /// `Shape` when the layer was not appended in this step or a tensor does not fit; what the backend says when the
    /// output is the host's.
    pub fn attend(&mut self, layer: usize, q: Input<'_>, out: Output<'_>) -> Result<()> {
        let result = self.record_attend(layer, q, out);
        self.watch(result)
    }

    fn record_attend(&mut self, layer: usize, q: Input<'_>, out: Output<'_>) -> Result<()> {
        let (index, at) = self.locate(layer)?;
        let rows = self.prepared.total_rows;
        if rows == 0 {
            return Ok(());
        }
        if !self.appended.contains(&layer) {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("layer {layer} attends before it appends"),
                "append first",
            ));
        }
        let (q_heads, k_dim, v_dim) = {
            let shape = &self.engine.groups[index].shape;
            (shape.q_heads, shape.k_dim, shape.v_dim)
        };
        let host = match q {
            Input::Host(rows) => Some(rows),
            Input::Device(_) => None,
        };
        let q_in = self.view("Q", q, q_heads * k_dim)?;
        if self.wants(layer, TapKind::Queries) {
            self.hand_over(layer, TapKind::Queries, q_in, q_heads * k_dim, host)?;
        }
        match out {
            Output::Device(view) => {
                check_view("the output", &view, rows, q_heads * v_dim)?;
                self.record_attention(index, at, q_in, view)
            }
            Output::Host(floats) => {
                let width = q_heads * v_dim;
                if floats.len() != rows as usize * width {
                    return Err(Error::new(
                        ErrorKind::Shape,
                        format!("the output holds {} floats, {rows} rows of {width} are wanted", floats.len()),
                        "",
                    ));
                }
                let slice = self.staging(floats.len())?;
                self.record_attention(index, at, q_in, RowView { slice, offset: 0, stride: width as u32 })?;
                self.submit()?;
                let bytes = read_blocking(self.engine.backend.as_mut(), slice.buffer, 0, floats.len() as u64 * 4)?;
                bytemuck::cast_slice_mut(floats).copy_from_slice(&bytes);
                Ok(())
            }
        }
    }

    /// Submits what is recorded so far: in one submission, or, above [`crate::backend::Caps::max_submission_ms`], in
    /// several.
    ///
    /// # Errors
    /// `OutOfMemory` when the device had no room to begin it: the step can then only be dropped, and may be tried again.
    /// What else the device says; the engine then refuses further steps.
    pub fn submit(&mut self) -> Result<SubmissionId> {
        let begun = self.begin();
        self.watch(begun)?;
        let before = std::mem::replace(&mut self.executed, true);
        let recording = std::mem::take(&mut self.recording);
        match self.engine.backend.submit(recording) {
            // Nothing of this recording ran, so the step is what it was before: undone, or taken back.
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                self.executed = before;
                self.failed = Some(error.clone());
                Err(error)
            }
            Ok(id) => {
                self.submission = Some(id);
                // Nothing recorded refers to the staged rows any more: their buffers serve again.
                self.staged = 0;
                Ok(id)
            }
            Err(error) => {
                self.engine.broken = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Records what is pending into the caller's encoder; the caller submits it before the next step begins. It is not
    /// split, however long: a caller who minds calls this several times with an encoder each, say once a layer.
    ///
    /// # Errors
    /// `Unsupported` on another backend, with nothing lost; what wgpu says, and the engine then refuses further steps.
    #[cfg(feature = "wgpu")]
    pub fn record_into(&mut self, encoder: &mut ::wgpu::CommandEncoder) -> Result<()> {
        if self.engine.backend.as_wgpu().is_none() {
            return Err(Error::new(ErrorKind::Unsupported, "record_into needs the wgpu backend", "use submit"));
        }
        let begun = self.begin();
        self.watch(begun)?;
        let Some(backend) = self.engine.backend.as_wgpu() else { return Ok(()) };
        self.executed = true;
        // What the caller has yet to submit cannot be read back.
        (self.foreign, self.prepared.sampled) = (true, false);
        let recording = std::mem::take(&mut self.recording);
        backend.record_into(&recording, encoder).inspect_err(|error| self.engine.broken = Some(error.clone()))
    }
}

fn check_view(what: &str, view: &RowView, rows: u32, width: usize) -> Result<()> {
    let last = u64::from(rows.max(1) - 1) * u64::from(view.stride) + u64::from(view.offset) + width as u64;
    if rows > 0 && ((view.stride as usize) < width && rows > 1 || last * 4 > view.slice.bytes) {
        return Err(Error::new(
            ErrorKind::Shape,
            format!(
                "{what}: {rows} rows of {width} floats at offset {}, stride {} do not fit {} bytes",
                view.offset, view.stride, view.slice.bytes
            ),
            "",
        ));
    }
    Ok(())
}
