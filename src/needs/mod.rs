//! What selectors and policies ask of an engine beside pages, said once and checked when the engine is built.
//!
//! An engine gathers the [`Needs`] of its selector and its policy. *Side planes* are small records kept with every page
//! and brought up to date as rows are appended. *Taps* are tensors of the caller's
//! forward pass that pass through the engine; what is needed and not given is refused when the engine is built.

mod plane;
mod tap;

pub(crate) use plane::PlaneSet;
pub use plane::PlaneSpec;
pub use tap::{TapKind, TapNeed, TapOffer};
pub(crate) use tap::{TapUser, Taps};

use crate::engine::TapCall;
use crate::error::{Error, ErrorKind};
use crate::policy::Policy;
use crate::select::Selector;
use crate::shape::CacheShape;

/// What a selector or a policy cannot do without.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Records of its own with every page. A plane that both declare, under one name and with one kernel, is kept once.
    pub planes: Vec<PlaneSpec>,
    /// Tensors that it is to be handed.
    pub taps: Vec<TapNeed>,
}

/// Needs, and whose they are, for messages: `selector "quest"`.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub who: String,
    pub needs: Needs,
}

impl Wanted {
    /// Those of an engine's selector, then of its policy.
    pub fn of(selector: &dyn Selector, policy: &dyn Policy, shape: &CacheShape) -> [Wanted; 2] {
        [
            Wanted { who: format!("selector {:?}", selector.name()), needs: selector.needs(shape) },
            Wanted { who: format!("policy {:?}", policy.name()), needs: policy.needs(shape) },
        ]
    }
}

/// The refusal of a tap that was declared and is not taken.
pub(crate) fn untaken(what: &str, name: &str, call: &TapCall<'_>) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        format!("{what} {name:?} declares the tap {} and takes none", call.kind.as_str()),
        "implement `tap`, or declare no taps",
    )
}
