//! What a cache costs in quality, bits and time, measured on a model and a text.
//!
//! A window of the text is prefilled once, with keys and values at 16 bits; its rows are then replayed into the cache of each
//! profile ([`Prefill`]), so that all of them start from the same numbers and nothing but the cache differs. The window's last
//! tokens are scored ([`Runner`]) against what the dense cache says of them: causally, one query a step, or in longer steps
//! that are cut where the cache changes ([`Mode`]).

mod attention;
mod candidates;
#[cfg(feature = "cli")]
pub mod corpus;
mod figures;
mod folder;
mod mode;
pub mod needle;
pub mod plot;
mod prefill;
mod record;
mod reference;
mod runner;
mod scores;
pub mod statistics;
mod summary;
mod windows;

pub use attention::{AttentionErrors, ExactAttention, HeadError};
pub use figures::CacheFigures;
pub use folder::{Folder, Identity, needle_file};
pub use mode::{Mode, Pace, feed};
pub use prefill::Prefill;
pub use record::{Record, SCHEMA, Subject, TokenScores, WindowOf};
pub use reference::Reference;
pub use runner::{CacheHook, Candidate, Plan, Progress, Runner};
pub use scores::{RowScore, score_row};
pub use summary::{Bucket, Summary, json, markdown};
pub use windows::{Text, Window, Windows};
