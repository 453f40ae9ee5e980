//! A model file from a stranger: parsed, its tokenizer and template built and used, every tensor decoded.
#![no_main]

#[path = "../../tests/support/gguf_body.rs"]
mod gguf_body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    gguf_body::read(data);
});
