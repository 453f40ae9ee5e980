//! The traces that come with the program, so that it shows something without any file.

use std::path::PathBuf;

const MINIMA: &[u8] = include_bytes!("../../assets/traces/minima-kv.kvtr");
const CHAT: &[u8] = include_bytes!("../../assets/traces/chat-fork.kvtr");

/// Minima-KV at about 4 000 tokens, conversions in flight.
pub fn minima() -> Option<PathBuf> {
    unpacked("minima-kv", MINIMA)
}

/// A chat with a fork.
pub fn chat() -> Option<PathBuf> {
    unpacked("chat-fork", CHAT)
}

/// A file of the user's temporary folder with these bytes.
fn unpacked(name: &str, bytes: &[u8]) -> Option<PathBuf> {
    let folder = std::env::temp_dir().join("kvarto-samples");
    let path = folder.join(format!("{name}-{}.kvtr", env!("CARGO_PKG_VERSION")));
    let there = std::fs::read(&path).is_ok_and(|there| there == bytes);
    let written = there
        || std::fs::create_dir_all(&folder).is_ok() && {
            let part = folder.join(format!("{name}-{}.part", std::process::id()));
            std::fs::write(&part, bytes).and_then(|()| std::fs::rename(&part, &path)).is_ok()
        };
    if !written {
        log::warn!("{} cannot be written", path.display());
    }
    written.then_some(path)
}
