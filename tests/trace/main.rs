//! Traces: what is recorded comes back, adds up, survives damage, and costs the engine nothing to wait for.
#![cfg(feature = "trace")]

mod damage;
mod record;
mod rig;
#[path = "../support/rng.rs"]
mod rng;
mod samples;
mod serve;
mod shipped;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/trace_parts.rs"]
mod trace_parts;
