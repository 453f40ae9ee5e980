//! One layer's attention over a filled cache, timed: decoding (a row a sequence) or a prefill's chunk over its history.

use super::data::{self, Kind};
use super::{Quality, Quantiles, verify};
use crate::backend::{Backend, BufferId, KernelTime, SPAN, Timing, read_blocking};
use crate::engine::{Engine, EngineOptions, Input, Output, Registry, SeqId, SeqRows};
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::RowView;
use crate::profile::{Head, Profile};
use crate::shape::CacheShape;
use std::collections::BTreeMap;
use std::time::Instant;

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// One new row for each of `batch` sequences.
    Decode,
    /// `rows` new rows of each of `batch` sequences.
    Prefill {
        /// Rows.
        rows: u32,
    },
}

impl Work {
    fn rows(self) -> u32 {
        match self {
            Work::Decode => 1,
            Work::Prefill { rows } => rows,
        }
    }
}

/// A measurement to make.
pub struct AttentionBench {
    /// One group; its layers are filled alike, and the repetitions go round them.
    pub shape: CacheShape,
    /// Formats and exact parts.
    pub profile: Profile,
    /// Formats, selectors and policies that the profile names.
    pub registry: Registry,
    /// Sequences.
    pub batch: u32,
    /// Tokens that each holds beforehand.
    pub context: u32,
    /// What is timed.
    pub work: Work,
    /// Whether each page is a work item of its own, see [`EngineOptions::page_items`].
    pub page_items: bool,
    /// Repetitions that count, after a quarter as many that do not.
    pub repetitions: u32,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct AttentionReport {
    /// Nanoseconds from the queries' preparation to the merge on the device: `query`, `decode` or `prefill`, and `merge`
    /// as they run.
    pub kernels_ns: Option<Quantiles>,
    /// By kernel, each timed by itself, which costs a GPU some microseconds a dispatch: name, dispatches, nanoseconds
    /// of all of them, means.
    pub by_kernel: Vec<(&'static str, f64, f64)>,
    /// Nanoseconds of a repetition on the host's clock, planning and waiting included.
    pub wall_ns: Quantiles,
    /// Bytes of pages that one repetition reads.
    pub read_bytes: u64,
    /// Floating-point operations of one repetition: 4 × head size × query heads × visible pairs.
    pub flops: f64,
    /// How right it is.
    pub quality: Quality,
    /// Pages by (K format, V format).
    pub pages: Vec<((String, String), u64)>,
    /// Bits of slots in use a cached value.
    pub resident_bits_per_value: Option<f64>,
    /// Bases of K and V.
    pub bases: (&'static str, &'static str),
    /// Layers that the repetitions go round.
    pub layers: usize,
    /// Seconds that filling the cache took.
    pub fill_seconds: f64,
}

/// Attentions of one submission whose kernels are timed, at least and at most: one alone leaves a GPU idle between
/// submissions, while the host plans, and its clock falls. As many are taken as keep it busy [`BUSY`] times as long as the
/// host takes: with as long as that, an H200 gave tq3 288 us in one run and 338 us in the next.
const INNER: [usize; 2] = [8, 256];
/// See [`INNER`].
const BUSY: f64 = 8.0;

/// Steps without a change of any page's formats after which a filled cache is taken for settled.
const SETTLED_STEPS: u32 = 3;

/// Steps after which a cache that does not settle is given up.
const MOST_SETTLING: u32 = 4096;

/// Rows of one step while the cache is filled.
const FILL_ROWS: u32 = 4096;

struct Buffers {
    q: BufferId,
    k: BufferId,
    v: BufferId,
    out: BufferId,
}

impl AttentionBench {
    fn check(&self) -> Result<()> {
        self.shape.validate()?;
        if self.shape.groups.len() != 1 {
            return Err(Error::new(
                ErrorKind::Usage,
                format!("a shape of {} cache groups", self.shape.groups.len()),
                "give one group, for example q32k8d128",
            ));
        }
        let rows = u64::from(self.batch) * u64::from(self.work.rows());
        for (what, value, most) in [
            ("batch", u64::from(self.batch), 4096),
            ("context", u64::from(self.context), 1 << 24),
            ("rows", rows, 1 << 16),
            ("repetitions", u64::from(self.repetitions), 1 << 16),
        ] {
            if value == 0 || value > most {
                return Err(Error::new(ErrorKind::Usage, format!("{what} is {value}"), format!("give 1 to {most}")));
            }
        }
        Ok(())
    }

    /// Fills a cache on `backend`, checks one repetition and times the others.
    ///
    /// # Errors
    /// `Usage` for numbers out of range, what the engine and the device say, and `Device` when the result is wrong: a
    /// speed of wrong numbers is none.
    pub fn run(&self, backend: Box<dyn Backend>) -> Result<AttentionReport> {
        self.run_watched(backend, |_| Ok(()))
    }

    /// [`AttentionBench::run`], whose engine is handed to `watch` before anything is in it: to listen, or to record.
    ///
    /// # Errors
    /// As [`AttentionBench::run`], and what `watch` says.
    pub fn run_watched(
        &self,
        backend: Box<dyn Backend>,
        watch: impl FnOnce(&mut Engine) -> Result<()>,
    ) -> Result<AttentionReport> {
        self.check()?;
        let group = self.shape.groups[0].clone();
        let rows = self.batch * self.work.rows();
        let chunk = FILL_ROWS.max(rows);
        // Each sequence has exact pages beside the rows of a step.
        let profile = &self.profile;
        let exact = profile.exact_sink_tokens.saturating_add(profile.exact_tail_tokens).min(self.context as usize);
        let exact = (exact + group.page_tokens) * self.batch as usize;
        let options = EngineOptions {
            context_tokens: (self.context as usize + self.work.rows() as usize) * self.batch as usize,
            chunk_tokens: chunk as usize + exact,
            page_items: self.page_items,
            ..EngineOptions::default()
        };
        let mut engine =
            Engine::with_options(backend, self.shape.clone(), self.profile.clone(), self.registry.clone(), options)?;
        let decode: &[u32] = if self.work == Work::Decode { &[1] } else { &[1, 2, 4, 8, 16] };
        engine.warm_up(decode, self.work != Work::Decode)?;
        watch(&mut engine)?;
        let (kw, vw) = (group.kv_heads * group.k_dim, group.kv_heads * group.v_dim);
        let (qw, ow) = (group.q_heads * group.k_dim, group.q_heads * group.v_dim);
        let mut floats =
            |label: &str, width: usize, rows: u32| engine.backend().alloc(label, u64::from(rows) * width as u64 * 4);
        let buffers = Buffers {
            q: floats("bench q", qw, rows)?,
            k: floats("bench k", kw, chunk)?,
            v: floats("bench v", vw, chunk)?,
            out: floats("bench output", ow, rows)?,
        };
        let sequences = (0..self.batch).map(|_| engine.create()).collect::<Result<Vec<_>>>()?;
        let start = Instant::now();
        self.fill(&mut engine, &buffers, &sequences)?;
        let fill_seconds = start.elapsed().as_secs_f64();

        let places = self.new_places();
        let write = |engine: &mut Engine, buffer, kind, width| {
            engine.backend().write(buffer, 0, bytemuck::cast_slice(&data::rows(kind, &places, width)))
        };
        write(&mut engine, buffers.q, Kind::Q, qw)?;
        write(&mut engine, buffers.k, Kind::K, kw)?;
        write(&mut engine, buffers.v, Kind::V, vw)?;
        let layers = group.layers.len();
        let read_bytes = self.repeat(&mut engine, &buffers, &sequences, 0..1)? / layers as u64;
        let bytes = read_blocking(engine.backend(), buffers.out, 0, u64::from(rows) * ow as u64 * 4)?;
        let out: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        let quality = verify::check(self, &engine.backend().caps().clone(), &out)?;

        let software = engine.backend().caps().software;
        let start = Instant::now();
        while !software && start.elapsed() < super::SPIN_UP {
            self.repeat(&mut engine, &buffers, &sequences, 0..INNER[0])?;
        }
        let mut wall = Vec::new();
        let warm_up = self.repetitions.div_ceil(4);
        for turn in 0..warm_up + self.repetitions {
            let start = Instant::now();
            self.repeat(&mut engine, &buffers, &sequences, turn as usize..turn as usize + 1)?;
            if turn >= warm_up {
                wall.push(start.elapsed().as_secs_f64() * 1e9);
            }
        }
        let inner = if software { INNER[0] } else { self.inner(&mut engine, &buffers, &sequences)? };
        // First as they run, then each by itself, which costs a GPU some microseconds a kernel.
        engine.backend().set_timing(Timing::Spans(&ATTENTION))?;
        let mut kernels = Vec::new();
        for turn in 0..warm_up + self.repetitions {
            let times = self.timed(&mut engine, &buffers, &sequences, turn, inner)?;
            if turn >= warm_up {
                kernels.extend(span_ns(&times, inner));
            }
        }
        engine.backend().set_timing(Timing::Kernels)?;
        let mut sums: BTreeMap<&'static str, (u64, u64)> = BTreeMap::new();
        for turn in 0..warm_up {
            for time in self.timed(&mut engine, &buffers, &sequences, turn, inner)? {
                if ATTENTION.contains(&time.kernel) {
                    let sum = sums.entry(time.kernel).or_default();
                    *sum = (sum.0 + time.dispatches, sum.1 + time.nanoseconds);
                }
            }
        }
        let mean = |sum: u64| sum as f64 / f64::from(warm_up) / inner as f64;
        let by_kernel = sums.into_iter().map(|(name, (n, ns))| (name, mean(n), mean(ns))).collect();
        let stats = engine.stats();
        let bases = engine.bases()[0];
        let group_size = u64::from(self.work.rows());
        let pairs = group_size * u64::from(self.context) + group_size * (group_size + 1) / 2;
        let flops = 2.0 * (group.k_dim + group.v_dim) as f64 * group.q_heads as f64;
        Ok(AttentionReport {
            kernels_ns: Quantiles::of(kernels),
            by_kernel,
            wall_ns: Quantiles::of(wall).ok_or_else(|| Error::new(ErrorKind::Device, "no times were taken", ""))?,
            read_bytes,
            flops: flops * pairs as f64 * f64::from(self.batch),
            quality,
            pages: stats.pages.iter().map(|(formats, &n)| (formats.clone(), n)).collect(),
            resident_bits_per_value: stats.resident_bits_per_value,
            bases,
            layers,
            fill_seconds,
        })
    }

    /// The times of repetition `turn`: `inner` attentions of one submission.
    fn timed(
        &self,
        engine: &mut Engine,
        buffers: &Buffers,
        sequences: &[SeqId],
        turn: u32,
        inner: usize,
    ) -> Result<Vec<KernelTime>> {
        let first = turn as usize * inner;
        self.repeat(engine, buffers, sequences, first..first + inner)?;
        engine.backend().take_times()
    }

    /// Attentions of one submission that take the device [`BUSY`] times as long as the host takes to plan them.
    fn inner(&self, engine: &mut Engine, buffers: &Buffers, sequences: &[SeqId]) -> Result<usize> {
        let mut seconds = |turns: usize| -> Result<f64> {
            let start = Instant::now();
            self.repeat(engine, buffers, sequences, 0..turns)?;
            Ok(start.elapsed().as_secs_f64())
        };
        let (one, many) = (seconds(1)?, seconds(1 + INNER[0])?);
        let each = ((many - one) / INNER[0] as f64).max(1e-6);
        Ok(((BUSY * one / each) as usize).clamp(INNER[0], INNER[1]))
    }

    /// Formats of sealed pages, as far as the profile names them; those of open ones among them.
    pub(super) fn formats(&self) -> Vec<String> {
        let group = &self.shape.groups[0];
        let layers = self.shape.model_layers();
        let mut formats: Vec<String> = Vec::new();
        for head in 0..group.kv_heads {
            let (k, v) = self.profile.formats_of(Head { layer: 0, layers, head, heads: group.kv_heads });
            formats.extend([k.to_string(), v.to_string()]);
        }
        if let Ok(policy) = self.profile.make_policy(&self.registry.names()) {
            formats.extend(policy.targets().into_iter().flat_map(|(k, v)| [k, v]));
        }
        formats
    }

    /// Places of the rows that a repetition appends.
    fn new_places(&self) -> Vec<(u32, u32)> {
        let rows = self.work.rows();
        (0..self.batch).flat_map(|s| (0..rows).map(move |r| (s, self.context + r))).collect()
    }

    /// Appends every sequence's context, a few rows of each in turn, so that pages of all lie mixed in memory.
    fn fill(&self, engine: &mut Engine, buffers: &Buffers, sequences: &[SeqId]) -> Result<()> {
        let group = &self.shape.groups[0];
        let (kw, vw) = (group.kv_heads * group.k_dim, group.kv_heads * group.v_dim);
        let each = (FILL_ROWS / self.batch).max(1);
        let mut held = 0;
        while held < self.context {
            let count = each.min(self.context - held);
            let mut step_rows = Vec::new();
            let mut places = Vec::new();
            // Another order each time: a sequence's pages are no run of slots.
            let turn = held / each;
            for i in 0..self.batch {
                let at = (i * 7 + turn * 3) % self.batch;
                // 7 and the batch may share a divisor; then the order is the plain one.
                let at = if self.batch.is_multiple_of(7) { i } else { at };
                step_rows.push(SeqRows { seq: sequences[at as usize], rows: count, committed: true });
                places.extend((0..count).map(|r| (at, held + r)));
            }
            let (k, v) = (data::rows(Kind::K, &places, kw), data::rows(Kind::V, &places, vw));
            let mut step = engine.begin_step(&step_rows)?;
            step.backend().write(buffers.k, 0, bytemuck::cast_slice(&k))?;
            step.backend().write(buffers.v, 0, bytemuck::cast_slice(&v))?;
            append(&mut step, buffers, places.len() as u32, (kw, vw), &group.layers)?;
            step.finish()?;
            held += count;
        }
        // What became due with the last rows; and again for what waited for room, or for a policy's turn, until pages stay
        // as they are.
        let rows: Vec<SeqRows> = sequences.iter().map(|&seq| SeqRows { seq, rows: 0, committed: true }).collect();
        let (mut unchanged, mut pages, mut steps) = (0, engine.stats().pages, 0);
        while unchanged < SETTLED_STEPS {
            if steps == MOST_SETTLING {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("policy {} still moves pages after {steps} steps without a row", self.profile.policy),
                    "bench a policy that comes to rest",
                ));
            }
            steps += 1;
            engine.begin_step(&rows)?.finish()?;
            let now = engine.stats().pages;
            unchanged = if now == pages { unchanged + 1 } else { 0 };
            pages = now;
        }
        read_blocking(engine.backend(), buffers.k, 0, 16)?;
        Ok(())
    }

    /// Appends the new rows as drafts, attends once for each of `turns`, the layers in turn, waits, and takes the rows
    /// back. Bytes that one attention in every layer reads.
    fn repeat(
        &self,
        engine: &mut Engine,
        buffers: &Buffers,
        sequences: &[SeqId],
        turns: std::ops::Range<usize>,
    ) -> Result<u64> {
        let group = &self.shape.groups[0];
        let rows = self.batch * self.work.rows();
        let (kw, vw) = (group.kv_heads * group.k_dim, group.kv_heads * group.v_dim);
        let (qw, ow) = (group.q_heads * group.k_dim, group.q_heads * group.v_dim);
        let step_rows: Vec<SeqRows> =
            sequences.iter().map(|&seq| SeqRows { seq, rows: self.work.rows(), committed: false }).collect();
        let mut step = engine.begin_step(&step_rows)?;
        append(&mut step, buffers, rows, (kw, vw), &group.layers)?;
        let (q, out) = (RowView::dense(buffers.q, rows, qw as u32), RowView::dense(buffers.out, rows, ow as u32));
        for turn in turns {
            step.attend(group.layers[turn % group.layers.len()], Input::Device(q), Output::Device(out))?;
        }
        let report = step.finish()?;
        read_blocking(engine.backend(), buffers.out, 0, 16)?;
        for &seq in sequences {
            engine.truncate(seq, self.context)?;
        }
        Ok(report.read_bytes)
    }
}

fn append(
    step: &mut crate::engine::Step<'_>,
    buffers: &Buffers,
    rows: u32,
    (kw, vw): (usize, usize),
    layers: &[usize],
) -> Result<()> {
    let (k, v) = (RowView::dense(buffers.k, rows, kw as u32), RowView::dense(buffers.v, rows, vw as u32));
    layers.iter().try_for_each(|&layer| step.append(layer, Input::Device(k), Input::Device(v)))
}

/// Kernels of one layer's attention.
const ATTENTION: [&str; 4] = ["query", "decode", "prefill", "merge"];

/// Nanoseconds of one of `inner` attentions.
fn span_ns(times: &[KernelTime], inner: usize) -> Option<f64> {
    let span = times.iter().find(|t| t.kernel == SPAN)?;
    (span.nanoseconds > 0).then_some(span.nanoseconds as f64 / inner as f64)
}
