//! Texts from a stranger through a byte-level tokenizer: encoded, decoded, streamed.
#![no_main]

#[path = "../../tests/support/fuzz_bodies.rs"]
#[allow(dead_code, reason = "each target uses its own part")]
mod fuzz_bodies;
#[path = "../../tests/support/gguf_writer.rs"]
mod gguf_writer;

use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use std::sync::OnceLock;

static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let tokenizer = TOKENIZER.get_or_init(|| {
        let gguf = Gguf::parse(gguf_writer::tiny_llama(3).build()).expect("well-formed");
        Tokenizer::from_gguf(&gguf).expect("a tokenizer")
    });
    fuzz_bodies::tokenizer(tokenizer, data);
});
