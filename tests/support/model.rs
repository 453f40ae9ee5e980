//! The model that tests run: from the user's cache, fetched first where it is absent.

use super::require_or_skip;
use kvarto::model::gguf::Gguf;
use kvarto::model::store::{self, Silent};
use std::path::PathBuf;

/// The name the store knows it by.
pub const NAME: &str = "smollm2-135m";

/// The model's file, or `None` with the reason printed; `KVARTO_REQUIRE=model` makes that a failure.
pub fn path() -> Option<PathBuf> {
    match store::resolve_or_fetch(NAME, &Silent) {
        Ok(path) => Some(path),
        Err(error) => {
            require_or_skip("model", &error.to_string());
            None
        }
    }
}

/// The model's file, opened.
pub fn open() -> Option<Gguf> {
    path().map(|path| Gguf::open(&path).expect("the verified file opens"))
}

/// A golden file's JSON.
pub fn golden(name: &str) -> serde_json::Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    serde_json::from_slice(&std::fs::read(path).expect("the golden file is there")).expect("the golden file is JSON")
}

/// An array of token ids.
pub fn ids(value: &serde_json::Value) -> Vec<u32> {
    value.as_array().expect("ids").iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}
