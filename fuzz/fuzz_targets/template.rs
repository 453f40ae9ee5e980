//! A chat template and a message from a stranger, apart at the first zero byte: compiled and rendered.
#![no_main]

#[path = "../../tests/support/fuzz_bodies.rs"]
#[allow(dead_code, reason = "each target uses its own part")]
mod fuzz_bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    fuzz_bodies::template(data);
});
