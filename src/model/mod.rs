//! Models: GGUF files, tokenizer, chat template, sampler, and the forward pass of Llama and its relatives.

pub mod chat_template;
pub mod config;
pub mod conversation;
pub mod generate;
pub mod gguf;
pub mod llama;
pub mod sampler;
#[cfg(feature = "store")]
pub mod store;
pub mod tokenizer;

pub use llama::{Answer, Answers, CacheOptions, Fallback, LoadOptions, Model, ModelRows, Observed};
