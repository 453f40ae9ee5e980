//! Evaluation: what it says of a model's cache must be what the cache does.
#![cfg(feature = "cli")]

#[path = "../support/mod.rs"]
mod support;

mod command;
mod needle;
mod scoring;
mod texts;
