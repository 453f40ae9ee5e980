//! Shows a Kvarto cache as it lives: page formats, sparsity masks, memory.
//!
//! Events flow one way: a [`source`] reads them, the [`player`] brings the [`store`] along them, [`view`]s look at the
//! store and say what they wish; the [`app`] grants it. No view knows another. A new view is a file and a line in
//! [`view::all`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod app;
pub mod arguments;
pub mod benchmark;
pub mod export;
pub mod icons;
pub mod keys;
pub mod layout;
pub mod live;
pub mod offscreen;
pub mod palette;
pub mod pictures;
pub mod player;
pub mod plotting;
pub mod samples;
pub mod settings;
pub mod source;
pub mod store;
pub mod transport;
pub mod units;
pub mod view;
pub mod window;
