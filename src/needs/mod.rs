//! What selectors and policies ask of an engine beside pages, said once and checked when the engine is built.
//!
//! An engine gathers the [`Needs`] of its selector and its policy. *Side planes* are small records kept with every page
//! and brought up to date as rows are appended.

mod plane;

pub(crate) use plane::PlaneSet;
pub use plane::PlaneSpec;

use crate::policy::Policy;
use crate::select::Selector;
use crate::shape::CacheShape;

/// What a selector or a policy cannot do without.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// Records of its own with every page. A plane that both declare, under one name and with one kernel, is kept once.
    pub planes: Vec<PlaneSpec>,
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
