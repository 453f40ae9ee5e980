//! One case of attention over pages, and the numbers it is made of.

use super::Built;
use crate::backend::Backend;
use crate::error::Result;
use crate::format::FormatRegistry;
use crate::kernel::attention::AttentionShape;
use crate::kernel::{SideBases, SideBasis};

/// Which kernel reads the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// A few rows a sequence.
    Decode,
    /// Tiles of many rows.
    Prefill,
}

impl Kernel {
    /// Both of them.
    pub const BOTH: [Kernel; 2] = [Kernel::Decode, Kernel::Prefill];

    /// `decode` or `prefill`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kernel::Decode => "decode",
            Kernel::Prefill => "prefill",
        }
    }
}

/// K and V format of page `page` of sequence `sequence`.
pub type Formats = fn(sequence: usize, page: usize) -> (&'static str, &'static str);

/// How values are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Standard normal keys, values and queries.
    Normal,
    /// Keys zero, so that all logits are equal; value of token t is t / tokens in every channel.
    Ramp,
    /// Keys e_0 times a constant, queries e_0, so that every logit is `0` or this (scale 1); normal values.
    Logit(f32),
}

/// One case of the attention path.
#[derive(Clone, Debug)]
pub struct Case {
    /// Channels of a query or key.
    pub k_dim: usize,
    /// Channels of a value.
    pub v_dim: usize,
    /// Query heads of a KV head.
    pub group: usize,
    /// KV heads.
    pub kv_heads: usize,
    /// Positions of a page.
    pub page_tokens: usize,
    /// (cached tokens, query rows); the rows stand at the last positions.
    pub sequences: Vec<(usize, usize)>,
    /// Formats of the pages.
    pub formats: Formats,
    /// Whether formats that know parts are stored in two slabs.
    pub in_parts: bool,
    /// Tokens that a row sees, its own included.
    pub window: Option<u32>,
    /// The most that a logit can be.
    pub softcap: Option<f32>,
    /// Logit of head 0's attention sink; the other heads' are 0.01 apart.
    pub sink: Option<f32>,
    /// Coordinates that pages are stored in.
    pub basis: SideBases,
    /// Most pages of a work item.
    pub pages_per_item: usize,
    /// Most rows of an entry: sequences are cut into tiles of this many rows.
    pub row_tile: usize,
    /// Which kernel reads.
    pub kernel: Kernel,
    /// How values are drawn.
    pub values: Values,
    /// Position of a sequence's first token.
    pub first_position: u32,
    /// Where the random numbers begin.
    pub seed: u64,
    /// Threads of a workgroup, where there are workgroups.
    pub workgroup: u32,
}

impl Default for Case {
    fn default() -> Self {
        Case {
            k_dim: 64,
            v_dim: 64,
            group: 3,
            kv_heads: 2,
            page_tokens: 64,
            sequences: vec![(200, 1)],
            formats: |_, _| ("f16", "f16"),
            in_parts: false,
            window: None,
            softcap: None,
            sink: None,
            basis: SideBases::default(),
            pages_per_item: 2,
            row_tile: 16,
            kernel: Kernel::Decode,
            values: Values::Normal,
            first_position: 0,
            seed: 1,
            workgroup: 64,
        }
    }
}

impl Case {
    /// What the kernels are specialised for.
    pub fn shape(&self) -> AttentionShape {
        AttentionShape {
            kv_heads: self.kv_heads,
            group: self.group,
            k_dim: self.k_dim,
            v_dim: self.v_dim,
            page_tokens: self.page_tokens,
            window: self.window.is_some(),
            softcap: self.softcap.is_some(),
        }
    }

    /// Softmax scale.
    pub fn scale(&self) -> f32 {
        if matches!(self.values, Values::Logit(_)) { 1.0 } else { 1.0 / (self.k_dim as f32).sqrt() }
    }

    /// Query heads.
    pub fn q_heads(&self) -> usize {
        self.kv_heads * self.group
    }

    /// Whether all pages of all sequences have the same formats.
    pub fn uniform(&self) -> bool {
        let pages = |&(tokens, _): &(usize, usize)| tokens.div_ceil(self.page_tokens);
        let mut all = self.sequences.iter().enumerate().flat_map(|(s, of)| (0..pages(of)).map(move |page| (s, page)));
        all.all(|(sequence, page)| (self.formats)(sequence, page) == (self.formats)(0, 0))
    }

    /// The case in words: sizes, then what masks, bases and splits it has.
    pub fn words(&self) -> String {
        let tokens: Vec<String> = self.sequences.iter().map(|(tokens, rows)| format!("{tokens}:{rows}")).collect();
        let mut words = format!(
            "head {}/{}, {}x{} query heads, pages of {}, tokens:rows {}",
            self.k_dim,
            self.v_dim,
            self.kv_heads,
            self.group,
            self.page_tokens,
            tokens.join(" ")
        );
        let mut add = |text: String| {
            words += ", ";
            words += &text;
        };
        if let Some(window) = self.window {
            add(format!("window {window}"));
        }
        if let Some(cap) = self.softcap {
            add(format!("softcap {cap}"));
        }
        if let Some(sink) = self.sink {
            add(format!("sink {sink}"));
        }
        let basis = |side: SideBasis| match side {
            SideBasis::NONE => "none",
            SideBasis::HADAMARD => "hadamard",
            SideBasis::MEAN => "mean",
            SideBasis::FIXED_MEAN => "calibrated mean",
            SideBasis::MAP => "map",
            _ => "of another kind",
        };
        add(format!("basis {}/{}", basis(self.basis.k), basis(self.basis.v)));
        match self.pages_per_item {
            usize::MAX => add("unsplit".into()),
            pages => add(format!("{pages} pages an item")),
        }
        add(format!("from position {}, workgroups of {}", self.first_position, self.workgroup));
        words
    }

    /// Slabs, descriptors, tables and inputs of the case.
    ///
    /// # Errors
    /// `Usage` for a format that is not built in, `Unsupported` for one that does not take the head size.
    pub fn build(&self) -> Result<Built> {
        Built::new(self, &FormatRegistry::builtin())
    }

    /// Builds, runs and compares; the largest error as a fraction of the largest output.
    ///
    /// # Errors
    /// What went wrong in words, the case included: as [`Built::compare`], or the backend's own error.
    pub fn check(&self, backend: &mut dyn Backend, tolerance: f64) -> Result<f64, String> {
        let mut run = || {
            let built = self.build()?;
            let outcome = built.run(backend)?;
            Ok((built, outcome))
        };
        let (built, outcome) = run().map_err(|e: crate::Error| format!("{self:?}: {e}"))?;
        built.compare(&outcome, tolerance)
    }
}

/// Neither side changed, both rotated, both with the mean removed and rotated, both mapped.
pub const BASES: [SideBases; 4] =
    [both(SideBasis::NONE), both(SideBasis::HADAMARD), both(SideBasis::MEAN), both(SideBasis::MAP)];

/// Keys mapped and values rotated about a calibrated mean.
pub const CALIBRATED: SideBases = SideBases { k: SideBasis::MAP, v: SideBasis::FIXED_MEAN };

const fn both(side: SideBasis) -> SideBases {
    SideBases { k: side, v: side }
}

/// A word that is NaN to every format: f32, f16, bf16, e4m3 codes, γ and scales.
pub const POISON: u32 = 0xffff_ffff;

/// A small generator of its own (splitmix64), so that cases never change under us.
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// 64 bits.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 for none.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Standard normal values (Box-Muller).
    pub fn normal(&mut self, count: usize) -> Vec<f32> {
        (0..count.div_ceil(2))
            .flat_map(|_| {
                let (r, a) = ((-2.0 * self.unit().ln()).sqrt(), std::f64::consts::TAU * self.unit());
                [(r * a.cos()) as f32, (r * a.sin()) as f32]
            })
            .take(count)
            .collect()
    }

    /// Another order of `values`.
    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for i in (1..values.len()).rev() {
            values.swap(i, self.below(i + 1));
        }
    }
}
