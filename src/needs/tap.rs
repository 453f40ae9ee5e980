//! Taps: tensors of a model's forward pass that a selector or policy wants to see.

use super::Wanted;
use crate::error::{Error, ErrorKind, Result};
use crate::shape::CacheShape;
use std::collections::BTreeMap;

/// Which tensor of a layer, always `[rows][width]` in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TapKind {
    /// The normalised input of the layer's attention: what its queries, keys and values are projected from.
    Hidden,
    /// The residual stream after the layer.
    Residual,
    /// Queries of all heads before they are turned to their positions: `[query heads][k_dim]`.
    QueriesPreRope,
    /// Queries as they attend. [`crate::engine::Step::attend`] gives them itself, right before the layer's attention.
    Queries,
}

impl TapKind {
    /// The word for it in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            TapKind::Hidden => "hidden",
            TapKind::Residual => "residual",
            TapKind::QueriesPreRope => "queries before RoPE",
            TapKind::Queries => "queries",
        }
    }
}

/// A tap that a selector or policy cannot do without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapNeed {
    /// Which tensor.
    pub kind: TapKind,
    /// Of which model layers.
    pub layers: Vec<usize>,
    /// It is handed over in the first step that has rows and every so many such steps after that; at least 1.
    pub period_steps: u64,
}

/// A tap that the engine's caller gives in every step, by [`crate::engine::Step::tap`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapOffer {
    /// Which tensor.
    pub kind: TapKind,
    /// Of which model layers, those without a KV cache included.
    pub layers: Vec<usize>,
    /// Values of a row.
    pub width: usize,
}

/// Who wanted a tap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TapUser {
    Selector,
    Policy,
}

/// The taps of an engine: what is offered, and what of it is wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taps {
    /// Width of a row by tap, [`TapKind::Queries`] included.
    offered: BTreeMap<(TapKind, usize), usize>,
    /// Users of each tap, and their periods.
    wanted: BTreeMap<(TapKind, usize), Vec<(TapUser, u64)>>,
}

impl Taps {
    /// Brings what `wanted` (selector, then policy) declare together with what the caller offers.
    ///
    /// # Errors
    /// `Unsupported` for a tap that is wanted and not offered, naming who wants what of which layers; `Usage` for a period
    /// of 0, or an offer that is empty, made twice, or the engine's own to make.
    pub fn new(shape: &CacheShape, wanted: &[Wanted; 2], offers: &[TapOffer]) -> Result<Self> {
        let mut taps = Taps::default();
        for group in &shape.groups {
            let own = group.layers.iter().map(|&layer| ((TapKind::Queries, layer), group.q_heads * group.k_dim));
            taps.offered.extend(own);
        }
        for TapOffer { kind, layers, width } in offers {
            let kind_name = kind.as_str();
            let refuse = |what: String, remedy: &str| Err(Error::new(ErrorKind::Usage, what, remedy));
            if *kind == TapKind::Queries {
                return refuse(format!("the tap {kind_name} is offered"), "leave it out: attend gives it");
            }
            if *width == 0 {
                return refuse(format!("the tap {kind_name} is offered with rows of 0 values"), "give its width");
            }
            for &layer in layers {
                if taps.offered.insert((*kind, layer), *width).is_some() {
                    return refuse(format!("the tap {kind_name} of layer {layer} is offered twice"), "offer it once");
                }
            }
        }
        for (Wanted { who, needs }, user) in wanted.iter().zip([TapUser::Selector, TapUser::Policy]) {
            for TapNeed { kind, layers, period_steps } in &needs.taps {
                if *period_steps == 0 {
                    let message = format!("{who} wants the tap {} every 0 steps", kind.as_str());
                    return Err(Error::new(ErrorKind::Usage, message, "declare a period of at least 1"));
                }
                let missing: Vec<usize> =
                    layers.iter().copied().filter(|&layer| !taps.offered.contains_key(&(*kind, layer))).collect();
                if !missing.is_empty() {
                    return Err(Error::new(
                        ErrorKind::Unsupported,
                        format!("{who} needs the tap {} of layers {missing:?}, which nobody gives", kind.as_str()),
                        "list it in EngineOptions::taps and call Step::tap, or choose another selector or policy",
                    ));
                }
                for &layer in layers {
                    taps.wanted.entry((*kind, layer)).or_default().push((user, *period_steps));
                }
            }
        }
        Ok(taps)
    }

    /// Values of a row of an offered tap.
    pub fn width(&self, kind: TapKind, layer: usize) -> Option<usize> {
        self.offered.get(&(kind, layer)).copied()
    }

    /// Who gets a tap in the step with number `step` among those with rows: each user once.
    pub fn due(&self, kind: TapKind, layer: usize, step: u64) -> Vec<TapUser> {
        let users = self.wanted.get(&(kind, layer)).map_or(&[][..], Vec::as_slice);
        let mut due: Vec<TapUser> =
            users.iter().filter(|(_, period)| step.is_multiple_of(*period)).map(|(user, _)| *user).collect();
        due.sort_unstable();
        due.dedup();
        due
    }

    /// Taps that the caller has to give in that step.
    pub fn expected(&self, step: u64) -> impl Iterator<Item = (TapKind, usize)> {
        let of_caller = self.wanted.keys().filter(|(kind, _)| *kind != TapKind::Queries);
        of_caller.copied().filter(move |&(kind, layer)| !self.due(kind, layer, step).is_empty())
    }

    /// Whether a user wants any tap.
    pub fn uses(&self, user: TapUser) -> bool {
        self.wanted.values().flatten().any(|(other, _)| *other == user)
    }
}
