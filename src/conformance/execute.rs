//! Runs a built case on a backend and compares what comes out.

use super::reference::{Query, attend};
use super::{Built, CPU_TOLERANCE, GPU_TOLERANCE, HALF_TOLERANCE, Kernel, POISON, StoredSide};
use crate::backend::{Backend, BackendKind, BufferId, BufferSlice, Caps, Recording, read_blocking};
use crate::error::Result;
use crate::kernel::attention::{self, AttentionArgs, AttentionBuffers, FurtherParts};
use crate::kernel::tier::Tier;
use crate::kernel::{MeanPlace, RowView, decode, merge, prefill, query};
use std::collections::BTreeMap;

/// Elements ahead of the first row of queries and of outputs.
const OFFSET: usize = 8;
/// Elements between rows that belong to none.
const GAP: usize = 4;

/// What a run wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The outputs' buffer as bits, gaps included.
    pub out: Vec<u32>,
    /// The partial states' buffer, one spare state at its end.
    pub partials: Vec<f32>,
}

impl Outcome {
    /// Whether two runs wrote the same bits.
    pub fn same_bits(&self, other: &Outcome) -> bool {
        let bits = |o: &Outcome| o.partials.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        self.out == other.out && bits(self) == bits(other)
    }
}

/// How far outputs are from the reference's.
#[derive(Clone, Debug)]
pub struct Measured {
    /// As a fraction of the largest output expected (at least 1); NaN where there is a NaN.
    pub error: f64,
    /// Where, with both values.
    pub place: String,
}

/// A buffer with `words` in it.
///
/// # Errors
/// The backend's.
pub fn buffer(backend: &mut dyn Backend, label: &str, words: &[u32]) -> Result<BufferSlice> {
    let bytes = (words.len().max(4) * 4) as u64;
    let id: BufferId = backend.alloc(label, bytes)?;
    backend.write(id, 0, bytemuck::cast_slice(words))?;
    Ok(BufferSlice::whole(id, bytes))
}

/// The words of a buffer, once the device has them.
///
/// # Errors
/// The backend's.
pub fn words(backend: &mut dyn Backend, slice: &BufferSlice) -> Result<Vec<u32>> {
    let bytes = read_blocking(backend, slice.buffer, slice.offset, slice.bytes)?;
    Ok(bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect())
}

/// Whether `error` is at most `limit`; no if either is NaN.
pub fn within(error: f64, limit: f64) -> bool {
    error <= limit
}

impl Built {
    /// Largest error that is accepted on an adapter, as a fraction of the largest output.
    pub fn tolerance(&self, caps: &Caps) -> f64 {
        let tier = Tier::of(caps);
        let half = |side: &StoredSide| tier.in_half(side.codec.codec.as_ref());
        let any_half = || self.k_slabs.values().chain(self.v_slabs.values()).any(half);
        match caps.kind {
            BackendKind::Cpu => CPU_TOLERANCE,
            _ if (self.case.kernel == Kernel::Decode || tier.tiles.is_some()) && any_half() => HALF_TOLERANCE,
            _ => GPU_TOLERANCE,
        }
    }

    /// query, then decode or prefill for each class, then merge, in one submission.
    ///
    /// # Errors
    /// The backend's, and `Shape` where the kernels refuse the tables.
    pub fn run(&self, backend: &mut dyn Backend) -> Result<Outcome> {
        let mut live = Vec::new();
        let outcome = self.run_with(backend, &mut live);
        live.into_iter().for_each(|id| backend.free(id));
        outcome
    }

    /// The same; buffers made are in `live`, also after an error.
    fn run_with(&self, backend: &mut dyn Backend, live: &mut Vec<BufferId>) -> Result<Outcome> {
        let case = &self.case;
        let shape = case.shape();
        let q_stride = case.q_heads() * case.k_dim + GAP;
        let mut q = vec![POISON; OFFSET + self.rows * q_stride];
        for (row, values) in self.queries.chunks_exact(case.q_heads() * case.k_dim).enumerate() {
            let start = OFFSET + row * q_stride;
            q[start..start + values.len()].copy_from_slice(bytemuck::cast_slice(values));
        }
        let out_stride = case.q_heads() * case.v_dim + GAP;
        let state_floats = shape.partial_floats();

        let mut make = |backend: &mut dyn Backend, label: &str, words: &[u32]| {
            let slice = buffer(backend, label, words)?;
            live.push(slice.buffer);
            Ok::<_, crate::Error>(slice)
        };
        let tables = make(backend, "tables", &self.tables)?;
        let descs = make(backend, "descs", &self.descs)?;
        let means = make(backend, "means", bytemuck::cast_slice(&self.means))?;
        let k_maps = make(backend, "maps", bytemuck::cast_slice(&self.k_maps.region(true)))?;
        let v_maps = make(backend, "maps", bytemuck::cast_slice(&self.v_maps.region(false)))?;
        let sinks = make(backend, "sinks", bytemuck::cast_slice(&self.sinks))?;
        let q_in = make(backend, "q_in", &q)?;
        let prepared = make(backend, "q", &vec![POISON; self.rows * case.q_heads() * shape.query_floats()])?;
        let partials = make(backend, "partials", &vec![POISON; (self.states + 1) * state_floats])?;
        let out = make(backend, "out", &vec![POISON; OFFSET + self.rows * out_stride])?;
        let mut slabs = BTreeMap::new();
        for (side, of) in [("k", &self.k_slabs), ("v", &self.v_slabs)] {
            for (&name, pages) in of {
                let bound = pages.bound(case.in_parts);
                let further = match bound.further.is_empty() {
                    true => None,
                    false => Some(make(backend, "further parts", &bound.further)?),
                };
                slabs.insert((side, name), (bound.codec, make(backend, side, &bound.words)?, further));
            }
        }

        let place = MeanPlace::new(&shape, 1, 0);
        let mut recording = Recording::new();
        let pipeline = backend.prepare(&query::specialise(&shape, case.basis.k, case.workgroup)?)?;
        let view = RowView { slice: q_in, offset: OFFSET as u32, stride: q_stride as u32 };
        let rows = self.rows as u32;
        recording.dispatch(query::dispatch(
            pipeline,
            case.q_heads(),
            &query::Buffers { q_in: view, tables, means, maps: k_maps, q_out: prepared },
            &query::Args { rows_at: self.rows_at as u32, rows, means: place, scale: case.scale() },
        ));
        for class in &self.classes {
            let (k, k_slab, k_further) = slabs[&("k", class.k)].clone();
            let (v, v_slab, v_further) = slabs[&("v", class.v)].clone();
            let further = (k_further.is_some() || v_further.is_some())
                .then(|| FurtherParts { k1_slab: k_further.unwrap_or(k_slab), v1_slab: v_further.unwrap_or(v_slab) });
            let buffers = AttentionBuffers { k_slab, v_slab, descs, tables, q: prepared, partials };
            let args = AttentionArgs {
                items: class.items as u32,
                items_at: class.items_at as u32,
                rows_at: self.rows_at as u32,
                window: case.window.unwrap_or(u32::MAX),
                softcap: case.softcap.unwrap_or(f32::NAN),
            };
            let tile = case.row_tile.next_power_of_two();
            let spec = match case.kernel {
                Kernel::Decode => decode::specialise(&shape, k, v, tile, Tier::of(backend.caps()), case.workgroup)?,
                Kernel::Prefill => prefill::specialise(&shape, k, v, tile, Tier::of(backend.caps()), case.workgroup)?,
            };
            recording.dispatch(attention::dispatch(backend.prepare(&spec)?, &buffers, further, &args));
        }
        let pipeline =
            backend.prepare(&merge::specialise(&shape, case.basis.v, case.sink.is_some(), case.workgroup)?)?;
        let view = RowView { slice: out, offset: OFFSET as u32, stride: out_stride as u32 };
        recording.dispatch(merge::dispatch(
            pipeline,
            case.q_heads(),
            &merge::Buffers { partials, tables, means, maps: v_maps, sinks, out: view },
            &merge::Args {
                rows_at: self.rows_at as u32,
                rows: self.merged_rows as u32,
                lists_at: self.lists_at as u32,
                means: place,
            },
        ));
        backend.submit(recording)?;
        Ok(Outcome {
            out: words(backend, &out)?,
            partials: words(backend, &partials)?.into_iter().map(f32::from_bits).collect(),
        })
    }

    /// Output of (row, query head).
    pub fn output<'a>(&self, outcome: &'a Outcome, row: usize, head: usize) -> &'a [f32] {
        let stride = self.case.q_heads() * self.case.v_dim + GAP;
        let start = OFFSET + row * stride + head * self.case.v_dim;
        bytemuck::cast_slice(&outcome.out[start..start + self.case.v_dim])
    }

    /// The reference's output of (row, query head).
    pub fn expected(&self, row: usize, head: usize) -> Vec<f64> {
        let case = &self.case;
        let (position, sequence) = self.row_info[row];
        let start = (row * case.q_heads() + head) * case.k_dim;
        let q: Vec<f64> = self.queries[start..start + case.k_dim].iter().map(|&x| f64::from(x)).collect();
        let query = Query {
            q: &q,
            position,
            scale: f64::from(case.scale()),
            window: case.window.map(u64::from),
            softcap: case.softcap.map(f64::from),
            sink: case.sink.map(|_| f64::from(self.sinks[head])),
        };
        attend(&self.tokens[sequence][head / case.group], &query, case.v_dim)
    }

    /// The largest error over all outputs; a NaN on either side is larger than any number.
    pub fn measure(&self, outcome: &Outcome) -> Measured {
        let case = &self.case;
        let mut largest_error = 0.0f64;
        let (mut place, mut size) = (String::new(), 1.0f64);
        for row in 0..self.rows {
            for head in 0..case.q_heads() {
                let (got, want) = (self.output(outcome, row, head), self.expected(row, head));
                for (c, (&got, want)) in got.iter().zip(want).enumerate() {
                    let error = (f64::from(got) - want).abs();
                    size = size.max(want.abs());
                    if !within(error, largest_error) {
                        place = format!("row {row} head {head} channel {c}: {got}, expected {want}");
                        if error.is_nan() {
                            return Measured { error, place };
                        }
                        largest_error = error;
                    }
                }
            }
        }
        Measured { error: largest_error / size, place }
    }

    /// Refuses NaN, an error above `tolerance`, and a write beside the rows or beyond the last partial state.
    ///
    /// # Errors
    /// Which of these, and where.
    pub fn judge(&self, measured: &Measured, outcome: &Outcome, tolerance: f64) -> Result<(), String> {
        let case = &self.case;
        let Measured { error, place } = measured;
        if error.is_nan() {
            return Err(place.clone());
        }
        if !within(*error, tolerance) {
            return Err(format!("error {error:.3e} above {tolerance:.1e}, {place}"));
        }
        let stride = case.q_heads() * case.v_dim + GAP;
        let beside = |at: &usize| *at < OFFSET || (at - OFFSET) % stride >= case.q_heads() * case.v_dim;
        if let Some(at) = (0..OFFSET + self.rows * stride).find(|at| beside(at) && outcome.out[*at] != POISON) {
            return Err(format!("element {at} beside the rows was written"));
        }
        let states = self.states * case.shape().partial_floats();
        if outcome.partials[states..].iter().any(|x| x.to_bits() != POISON) {
            return Err("a state beyond the last was written".into());
        }
        Ok(())
    }

    /// [`Built::measure`] and [`Built::judge`]: the largest error, as a fraction of the largest output.
    ///
    /// # Errors
    /// What is wrong, where, and in which case.
    pub fn compare(&self, outcome: &Outcome, tolerance: f64) -> Result<f64, String> {
        let measured = self.measure(outcome);
        match self.judge(&measured, outcome, tolerance) {
            Ok(()) => Ok(measured.error),
            Err(message) => Err(format!("{message} in {:?}", self.case)),
        }
    }
}
