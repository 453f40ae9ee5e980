//! Pages: descriptors, slabs of equal slots, and the pool that hands both out.
//!
//! Nothing here touches a device. The pool asks a [`Backing`] for memory and tells the truth about bytes.

mod budget;
mod descriptor;
mod key;
mod pool;
mod records;
mod slab;

pub use budget::Budget;
pub use descriptor::{NONE, PageDescriptor, Tier, flags};
pub use key::ContentKey;
pub use pool::{Backing, Change, Page, PageId, Pool, PoolBytes, SlotSpec, Slots};
pub use records::RecordSegment;
pub use slab::{SegmentKey, Slab};
