//! What goes wrong around the library, at every moment: allocations refused, devices lost, work cut into submissions.
//! Refusals and cuts change no bit; a loss is an error, and what comes after it can be built anew.

#[path = "../support/mod.rs"]
mod support;

#[path = "../support/hooked.rs"]
mod hooked;
mod refusals;
mod script;

#[cfg(feature = "wgpu")]
mod flat;
#[cfg(all(feature = "wgpu", feature = "model"))]
mod loss;
#[cfg(feature = "wgpu")]
mod loss_in_step;
#[cfg(feature = "model")]
mod model;
#[cfg(feature = "wgpu")]
mod splitting;
