//! Retrieval from long contexts: tasks in the manner of RULER (arXiv 2404.06654), with words, sentences and prompts of our own.
//!
//! A case is a context and questions that go on after it. Contexts are prefilled once on a dense cache and replayed into each
//! profile's; every question is asked on a fork, its tokens and the greedy answer one a step.

mod ask;
mod results;
mod run;
mod tasks;
mod words;

pub use ask::{Outcome, ask};
pub use results::{TaskSummary, Verdict, grid, json, lost, markdown, verdicts};
pub use run::batches;
pub use tasks::{Case, Grid, Question, Task};
