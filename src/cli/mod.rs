//! The `kvarto` program: one file a command.

pub mod models;
