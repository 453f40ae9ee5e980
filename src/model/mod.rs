//! Models: GGUF files, tokenizer, chat template, sampler, and the Llama-family forward pass.

pub mod chat_template;
pub mod config;
pub mod gguf;
pub mod sampler;
#[cfg(feature = "cli")]
pub mod store;
pub mod tokenizer;
