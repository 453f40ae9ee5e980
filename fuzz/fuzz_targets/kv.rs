//! The value of `--kv`.
#![no_main]

#[path = "../../tests/support/fuzz_bodies.rs"]
#[allow(dead_code, reason = "each target uses its own part")]
mod fuzz_bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_bodies::kv(data);
});
