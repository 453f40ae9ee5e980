//! Kvarto keeps the key-value cache of a language model in pages whose precision and place differ
//! page by page, and computes one exact softmax over what it reads.
//!
//! An [`engine::Engine`] holds sequences over one page table on a [`backend::Backend`]: begin a step, append keys and
//! values, attend. [`mod@format`] says how pages are laid out, [`kernel`] what runs, [`plan`] how a step's work is cut;
//! [`select`] and [`policy`] decide what is read and what becomes of pages. `model` (a feature) runs GGUF models on it.

#![deny(unsafe_code)]
#![warn(missing_docs)]

// Files that unit tests share with the test programs name the library from outside.
#[cfg(test)]
extern crate self as kvarto;

mod bounded;
pub mod error;
pub mod shape;

pub mod basis;
pub mod format;
pub mod num;

pub mod backend;
pub mod kernel;

pub mod bench;
pub mod conformance;
pub mod engine;
pub mod footprint;
pub mod needs;
pub mod page;
pub mod parameters;
pub mod plan;
pub mod policy;
pub mod profile;
pub mod select;
pub mod selftest;

#[cfg(feature = "model")]
pub mod calibration;
#[cfg(feature = "model")]
pub mod model;
#[cfg(feature = "trace")]
pub mod trace;
#[cfg(all(feature = "cuda", feature = "model"))]
pub mod usual;

#[cfg(feature = "eval")]
pub mod eval;

pub use error::{Error, ErrorKind, Result};

/// The wgpu that [`backend::wgpu`] is built with, for callers with a device of their own.
#[cfg(feature = "wgpu")]
pub use wgpu;
