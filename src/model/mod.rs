//! Models: GGUF files, tokenizer, chat template, sampler, and the Llama-family forward pass.

pub mod chat_template;
pub mod gguf;
pub mod sampler;
pub mod tokenizer;
