//! Taps of a step: tensors of the caller's forward pass, handed to the selector and the policy that declared them.

use super::scratch::Scratch;
use super::storage::Group;
use super::{Engine, Input, SeqRows, Step};
use crate::backend::{Backend, BufferSlice, Recording};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::RowView;
use crate::kernel::plane::PlanePlace;
use crate::needs::{TapKind, TapUser};
use std::collections::BTreeMap;

/// Device memory of a selector or policy, by name. The engine owns it, counts it as scratch and frees it at its end.
pub(super) type UserBuffers = BTreeMap<(TapUser, &'static str), Scratch>;

/// A selector's or policy's own memory on the engine's backend.
pub struct TapMemory<'a> {
    backend: &'a mut dyn Backend,
    buffers: &'a mut UserBuffers,
    user: TapUser,
}

impl TapMemory<'_> {
    /// The backend, for pipelines and reads.
    pub fn backend(&mut self) -> &mut dyn Backend {
        self.backend
    }

    /// A buffer of at least `bytes` bytes, made of zeros at first and kept between steps. One that has to grow is a new one
    /// of zeros.
    ///
    /// # Errors
    /// `OutOfMemory` above what one binding holds, or when the device refuses it.
    pub fn buffer(&mut self, name: &'static str, bytes: u64) -> Result<BufferSlice> {
        let scratch = self.buffers.entry((self.user, name)).or_insert_with(|| Scratch::new(name));
        scratch.ensure(self.backend, bytes)?;
        scratch.slice()
    }

    /// The buffer of that name, if it was made before.
    pub fn find(&self, name: &'static str) -> Option<BufferSlice> {
        self.buffers.get(&(self.user, name))?.slice().ok()
    }
}

/// The side planes of the cache group that a tap's layer is in. The layer's records cover the step's own rows once it
/// has been appended to: for [`TapKind::Queries`].
#[derive(Clone, Copy)]
pub struct TapPlanes<'a> {
    group: &'a Group,
}

impl TapPlanes<'_> {
    /// Page descriptors: word 7 of descriptor `id` is the row of the page's record.
    ///
    /// # Errors
    /// `Shape` before the first step with rows.
    pub fn descriptors(&self) -> Result<BufferSlice> {
        self.group.descriptors.slice()
    }

    /// Segments of records, and the row of each one's first record, ascending.
    pub fn segments(&self) -> impl Iterator<Item = (BufferSlice, u32)> {
        let first = |index| self.group.pool.first_record(index).unwrap_or(0);
        self.group.records.iter().enumerate().map(move |(index, &slice)| (slice, first(index)))
    }

    /// Where a plane stands in a record.
    ///
    /// # Errors
    /// `Usage` for a plane that nobody declared.
    pub fn place(&self, plane: &str) -> Result<PlanePlace> {
        self.group.planes.place(plane)
    }
}

/// A tensor, handed over while a step is recorded.
///
/// The tensor holds what it says when the step's work gets to this place, and may be overwritten after: record dispatches
/// that read it now. The step's rows may be taken back later, if it fails.
pub struct TapCall<'a> {
    /// Which tensor.
    pub kind: TapKind,
    /// Model layer.
    pub layer: usize,
    /// `[rows][width]`, on the engine's backend.
    pub tensor: RowView,
    /// Values of a row.
    pub width: usize,
    /// The same, `[rows][width]` without gaps, where the caller has it on the host.
    pub host: Option<&'a [f32]>,
    /// Sequences of the step, in the order of their rows.
    pub rows: &'a [SeqRows],
    /// Position of each row.
    pub positions: &'a [u32],
    /// Steps with rows before this one.
    pub step: u64,
    /// Side planes of the layer's cache group; `None` for a layer without a KV cache.
    pub planes: Option<TapPlanes<'a>>,
    /// Memory of its own.
    pub memory: TapMemory<'a>,
    recording: &'a mut Recording,
}

impl TapCall<'_> {
    /// The step's recording: what is added runs at this place of the forward pass.
    pub fn recording(&mut self) -> &mut Recording {
        self.recording
    }
}

impl Step<'_> {
    /// Whether the selector or policy wants this tap in this step. A caller who computes the tensor anyway need not ask.
    pub fn wants(&self, layer: usize, kind: TapKind) -> bool {
        self.prepared.total_rows > 0 && !self.engine.taps.due(kind, layer, self.engine.tap_steps).is_empty()
    }

    /// Gives the step's rows of a tap that [`super::EngineOptions::taps`] offers, when the forward pass has come to it. What
    /// nobody wants in this step costs nothing.
    ///
    /// # Errors
    /// `Usage` for a tap that was not offered, `Shape` for one given twice or a tensor that does not hold the rows; what the
    /// selector or policy says.
    pub fn tap(&mut self, layer: usize, kind: TapKind, tensor: Input<'_>) -> Result<()> {
        let what = || format!("the tap {} of layer {layer}", kind.as_str());
        let offered = self.engine.taps.width(kind, layer).filter(|_| kind != TapKind::Queries);
        let Some(width) = offered else {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("{} is given and was not offered", what()),
                "list it in EngineOptions::taps; queries are given by attend",
            ));
        };
        if !self.tapped.insert((kind, layer)) {
            return Err(Error::new(ErrorKind::Shape, format!("{} is given twice in a step", what()), ""));
        }
        if !self.wants(layer, kind) {
            return Ok(());
        }
        let result = self.begin().and_then(|()| {
            let host = match tensor {
                Input::Host(rows) => Some(rows),
                Input::Device(_) => None,
            };
            let view = self.view(kind.as_str(), tensor, width)?;
            self.hand_over(layer, kind, view, width, host)
        });
        self.watch(result)
    }

    /// Calls the users of a tap that is due.
    pub(super) fn hand_over(
        &mut self,
        layer: usize,
        kind: TapKind,
        tensor: RowView,
        width: usize,
        host: Option<&[f32]>,
    ) -> Result<()> {
        let positions = self.positions();
        let Engine { backend, groups, shape, selector, policy, taps, user_buffers, tap_steps, .. } = &mut *self.engine;
        for user in taps.due(kind, layer, *tap_steps) {
            let group = shape.locate(layer).map(|(index, _)| &groups[index]);
            let mut call = TapCall {
                kind,
                layer,
                tensor,
                width,
                host,
                rows: &self.prepared.rows,
                positions: &positions,
                step: *tap_steps,
                planes: group.map(|group| TapPlanes { group }),
                memory: TapMemory { backend: backend.as_mut(), buffers: user_buffers, user },
                recording: &mut self.recording,
            };
            match user {
                TapUser::Selector => selector.tap(&mut call)?,
                TapUser::Policy => policy.tap(&mut call)?,
            }
        }
        Ok(())
    }

    /// Refuses a step in which a tap that somebody counts on was never given.
    pub(super) fn check_taps(&self) -> Result<()> {
        let missing = self.engine.taps.expected(self.engine.tap_steps).filter(|tap| !self.tapped.contains(tap));
        let missing: Vec<String> = missing.map(|(kind, layer)| format!("{} of layer {layer}", kind.as_str())).collect();
        if missing.is_empty() || self.prepared.total_rows == 0 {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Shape,
            format!("the step ended without the taps {}", missing.join(", ")),
            "call Step::tap for what EngineOptions::taps offers, in every step",
        ))
    }
}

impl Engine {
    /// Lets the users of taps read what earlier steps left them.
    pub(super) fn before_step(&mut self) -> Result<()> {
        for user in [TapUser::Selector, TapUser::Policy] {
            if !self.taps.uses(user) {
                continue;
            }
            let mut memory = TapMemory { backend: self.backend.as_mut(), buffers: &mut self.user_buffers, user };
            match user {
                TapUser::Selector => self.selector.before_step(&mut memory)?,
                TapUser::Policy => self.policy.before_step(&mut memory)?,
            }
        }
        Ok(())
    }
}
