//! Shared by the test programs.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod affine;
pub mod calibrations;
pub mod dawn;
#[cfg(feature = "wgpu")]
pub mod gpu;
#[cfg(feature = "cli")]
pub mod model;

/// Prints why something is not tested here, or fails where `KVARTO_REQUIRE` (a comma-separated list such as
/// `cpu,vulkan,gl,dawn,cuda`) says that it must be.
pub fn require_or_skip(what: &str, reason: &str) {
    let required = std::env::var("KVARTO_REQUIRE").unwrap_or_default();
    if required.split(',').any(|name| name.trim() == what) {
        panic!("KVARTO_REQUIRE asks for {what}: {reason}");
    }
    println!("skipped, no {what}: {reason}");
}
