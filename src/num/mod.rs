//! Numbers: how stored values are read.

pub mod rope;
pub mod weights;
