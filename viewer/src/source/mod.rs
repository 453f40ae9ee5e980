//! Where events come from: always a trace file, finished or growing. What a program serves, and what an engine of our
//! own does, are written to a temporary trace first, so that all of it can be looked at again.

mod connect;
mod reader;
mod request;

pub use connect::{Connection, News};
pub use reader::{Reader, Wake};
pub use request::{Loaded, Reply, Request};
