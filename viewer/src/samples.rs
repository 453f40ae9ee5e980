//! The traces that come with the program, so that it shows something without any file.

use std::path::PathBuf;

const MINIMA: &[u8] = include_bytes!("../../assets/traces/minima-kv.kvtr");
const CHAT: &[u8] = include_bytes!("../../assets/traces/chat-fork.kvtr");

/// Minima-KV at about 4 000 tokens, conversions in flight.
///
/// # Errors
/// Where the temporary folder cannot be written to, in words.
pub fn minima() -> Result<PathBuf, String> {
    unpacked("minima-kv", MINIMA)
}

/// A chat with a fork.
///
/// # Errors
/// As [`minima`].
pub fn chat() -> Result<PathBuf, String> {
    unpacked("chat-fork", CHAT)
}

/// A file of the user's temporary folder with these bytes.
fn unpacked(name: &str, bytes: &[u8]) -> Result<PathBuf, String> {
    let folder = std::env::temp_dir().join("kvarto-samples");
    let path = folder.join(format!("{name}-{}.kvtr", env!("CARGO_PKG_VERSION")));
    if std::fs::read(&path).is_ok_and(|there| there == bytes) {
        return Ok(path);
    }
    let part = folder.join(format!("{name}-{}.part", std::process::id()));
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&part, bytes))
        .and_then(|()| std::fs::rename(&part, &path))
        .map_err(|e| {
            format!("the sample cannot be unpacked into {}: {e}; give a trace with --trace", folder.display())
        })?;
    Ok(path)
}
