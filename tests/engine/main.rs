//! The engine through its public interface, on the CPU, against a host model that keeps exact rows.
#![cfg(feature = "trace")]

mod anchors;
mod budget;
mod calibrated;
#[path = "../support/calibrations.rs"]
mod calibrations;
mod evict;
mod failures;
mod figures;
mod footprint;
#[path = "../support/hooked.rs"]
mod hooked;
mod keys;
mod mirror;
mod model;
mod random;
#[path = "../support/rng.rs"]
mod rng;
mod rounds;
mod rules;
mod steady;
mod window;
