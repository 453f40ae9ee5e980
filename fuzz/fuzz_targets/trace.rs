//! A trace: the bytes of a file, and the payloads of one whose checksums fit.
#![no_main]

#[path = "../../tests/support/trace_parts.rs"]
#[allow(dead_code, reason = "each target uses its own part")]
mod trace_parts;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    trace_parts::stranger(data);
});
