//! Shapes of a cache: groups of layers that share a kind, head sizes and a page size.

use crate::error::{Error, ErrorKind, Result};

/// Which side of a page: keys or values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// Keys.
    K,
    /// Values.
    V,
}

impl Side {
    /// Both sides, keys first.
    pub const BOTH: [Side; 2] = [Side::K, Side::V];

    /// `k` or `v`, as it stands in profiles and kernel names.
    pub fn as_str(self) -> &'static str {
        match self {
            Side::K => "k",
            Side::V => "v",
        }
    }
}

/// Tokens and channels of one side of one page: `tokens` rows of `head_dim` values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageGeometry {
    /// Consecutive positions of a page.
    pub tokens: usize,
    /// Values per token: the K or the V head size.
    pub head_dim: usize,
}

impl PageGeometry {
    /// Values of one full page side.
    pub fn values(self) -> usize {
        self.tokens * self.head_dim
    }
}

/// Page sizes that the layouts are defined for.
pub const PAGE_TOKENS: [usize; 4] = [16, 32, 64, 128];

/// Which tokens the layers of a group attend to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GroupKind {
    /// Every earlier token.
    Full,
    /// The newest `w` tokens, the query's own included.
    Window(usize),
}

/// Where the V side of a group comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum VSource {
    /// Its own tensor.
    Own,
    /// The first `v_dim` channels of K (latent attention); refused until built.
    PrefixOfK,
}

/// In which coordinates keys arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeySpace {
    /// Already turned to their positions.
    PostRope,
    /// Not yet; refused until built.
    PreRope,
}

/// Layers that share a kind, head sizes, page size and section of the profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheGroup {
    /// Model layers of this group, ascending.
    pub layers: Vec<usize>,
    /// What they attend to.
    pub kind: GroupKind,
    /// Positions of a page; one of [`PAGE_TOKENS`].
    pub page_tokens: usize,
    /// Query heads.
    pub q_heads: usize,
    /// KV heads; divides `q_heads`.
    pub kv_heads: usize,
    /// Channels of a query or key.
    pub k_dim: usize,
    /// Channels of a value.
    pub v_dim: usize,
    /// Where V comes from.
    pub v: VSource,
    /// In which coordinates keys arrive.
    pub key_space: KeySpace,
}

impl CacheGroup {
    /// Query heads that share a KV head.
    pub fn group_size(&self) -> usize {
        self.q_heads / self.kv_heads
    }

    /// Channels of `side`.
    pub fn head_dim(&self, side: Side) -> usize {
        match side {
            Side::K => self.k_dim,
            Side::V => self.v_dim,
        }
    }

    /// Tokens and channels of one page side.
    pub fn geometry(&self, side: Side) -> PageGeometry {
        PageGeometry { tokens: self.page_tokens, head_dim: self.head_dim(side) }
    }

    /// Cached values of one token over the group's layers and KV heads, K and V together.
    pub fn values_per_token(&self) -> usize {
        self.layers.len() * self.kv_heads * (self.k_dim + self.v_dim)
    }

    /// Refuses what the kernels are not defined for, by name.
    pub fn validate(&self) -> Result<()> {
        let refuse = |kind, message: String, remedy: &str| Err(Error::new(kind, message, remedy));
        if self.layers.is_empty() || self.q_heads == 0 || self.kv_heads == 0 {
            return refuse(
                ErrorKind::Shape,
                format!(
                    "a cache group needs layers and heads, got {} layers, {} query and {} KV heads",
                    self.layers.len(),
                    self.q_heads,
                    self.kv_heads
                ),
                "leave layers without a KV cache out of the shape",
            );
        }
        if !self.q_heads.is_multiple_of(self.kv_heads) {
            return refuse(
                ErrorKind::Shape,
                format!("{} query heads are not a multiple of {} KV heads", self.q_heads, self.kv_heads),
                "",
            );
        }
        if !PAGE_TOKENS.contains(&self.page_tokens) {
            return refuse(ErrorKind::Shape, format!("page_tokens is {}", self.page_tokens), "use 16, 32, 64 or 128");
        }
        for (side, dim) in [("K", self.k_dim), ("V", self.v_dim)] {
            if dim == 0 || dim > 512 || !dim.is_multiple_of(8) {
                return refuse(
                    ErrorKind::Unsupported,
                    format!("{side} head size {dim}: kernels take multiples of 8 from 8 to 512"),
                    "",
                );
            }
        }
        if self.v == VSource::PrefixOfK {
            return refuse(ErrorKind::Unsupported, "V as a prefix of K is not built yet".into(), "");
        }
        if self.key_space == KeySpace::PreRope {
            return refuse(ErrorKind::Unsupported, "keys before RoPE are not built yet".into(), "");
        }
        if self.kind == GroupKind::Window(0) {
            return refuse(ErrorKind::Shape, "a window of 0 tokens".into(), "a window holds at least 1 token");
        }
        Ok(())
    }
}

/// A model's cache: its groups. A model layer stands in at most one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheShape {
    /// The groups, in the order of their first layers.
    pub groups: Vec<CacheGroup>,
}

impl CacheShape {
    /// One full-attention group over `layers` layers, numbered from 0.
    pub fn uniform(layers: usize, q_heads: usize, kv_heads: usize, head_dim: usize, page_tokens: usize) -> Self {
        CacheShape {
            groups: vec![CacheGroup {
                layers: (0..layers).collect(),
                kind: GroupKind::Full,
                page_tokens,
                q_heads,
                kv_heads,
                k_dim: head_dim,
                v_dim: head_dim,
                v: VSource::Own,
                key_space: KeySpace::PostRope,
            }],
        }
    }

    /// Checks every group, and that no layer stands in two of them.
    pub fn validate(&self) -> Result<()> {
        if self.groups.is_empty() {
            return Err(Error::new(ErrorKind::Shape, "a cache shape without groups", "give at least one group"));
        }
        let mut seen = std::collections::BTreeSet::new();
        for group in &self.groups {
            group.validate()?;
            for &layer in &group.layers {
                if !seen.insert(layer) {
                    return Err(Error::new(ErrorKind::Shape, format!("layer {layer} stands in two cache groups"), ""));
                }
            }
        }
        Ok(())
    }

    /// Group and index within the group of a model layer.
    pub fn locate(&self, layer: usize) -> Option<(usize, usize)> {
        self.groups
            .iter()
            .enumerate()
            .find_map(|(g, group)| group.layers.iter().position(|&l| l == layer).map(|i| (g, i)))
    }

    /// Layers of the model, as far as the groups tell: those without a KV cache behind the last group's are not
    /// counted.
    pub fn model_layers(&self) -> usize {
        self.groups.iter().flat_map(|g| &g.layers).max().map_or(0, |last| last + 1)
    }

    /// Cached values of one token over all groups.
    pub fn values_per_token(&self) -> usize {
        self.groups.iter().map(CacheGroup::values_per_token).sum()
    }
}
