//! The head of a trace: what an old reader can still name.

use crate::backend::Timing;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::shape::GroupKind;
use serde::{Deserialize, Serialize};
use std::io::Read;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The first four bytes.
pub const MAGIC: [u8; 4] = *b"KVTR";

/// The version written, and the one that is read: others are refused by name. Version 1 had no checksum of the header.
pub const VERSION: u16 = 2;

/// Most bytes of the JSON.
const MAX_HEADER_BYTES: u32 = 16 << 20;

/// What was traced. Fields that a reader does not know are ignored; those that are missing have their default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// The version of this library that wrote it.
    pub version: String,
    /// What was run, such as `generate`.
    pub command: String,
    /// When it began, milliseconds since 1970 (UTC).
    pub started_unix_ms: u64,
    /// The model, if one ran.
    pub model: Option<ModelHeader>,
    /// Cache groups.
    pub groups: Vec<GroupHeader>,
    /// Name of the profile.
    pub profile: String,
    /// Its text, as `kvarto profiles show` prints it.
    pub profile_text: String,
    /// `cpu`, `vulkan`, …
    pub backend: String,
    /// The adapter's name.
    pub adapter: String,
    /// The kernel tier.
    pub tier: String,
    /// What the adapter copies, bytes read and written a second, if it was measured.
    pub copy_bytes_per_s: Option<f64>,
    /// Bound on slots in use.
    pub kv_budget_bytes: Option<u64>,
    /// `none`, `steps` or `kernels`.
    pub timing: String,
}

/// A model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ModelHeader {
    /// As it was named.
    pub name: String,
    /// SHA-256 of its file, hexadecimal.
    pub sha256: String,
    /// Its architecture.
    pub architecture: String,
    /// Bytes of its weights on the device.
    pub weight_bytes: u64,
}

/// A cache group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupHeader {
    /// Model layers.
    pub layers: Vec<u32>,
    /// `full` or `window`.
    pub kind: String,
    /// Tokens of the window, if there is one.
    pub window: Option<u32>,
    /// Tokens of a page.
    pub page_tokens: u32,
    /// Query heads.
    pub q_heads: u32,
    /// KV heads.
    pub kv_heads: u32,
    /// Channels of keys.
    pub k_dim: u32,
    /// Channels of values.
    pub v_dim: u32,
    /// Basis of K and of V.
    pub basis: [String; 2],
}

impl Header {
    /// What an engine says of itself; `command` and `model` are the caller's to add.
    pub fn of(engine: &mut Engine) -> Self {
        let bases = engine.bases();
        let group = |(group, basis): (&crate::shape::CacheGroup, &(&str, &str))| GroupHeader {
            layers: group.layers.iter().map(|&layer| layer as u32).collect(),
            kind: if matches!(group.kind, GroupKind::Full) { "full".into() } else { "window".into() },
            window: match group.kind {
                GroupKind::Window(tokens) => u32::try_from(tokens).ok(),
                GroupKind::Full => None,
            },
            page_tokens: group.page_tokens as u32,
            q_heads: group.q_heads as u32,
            kv_heads: group.kv_heads as u32,
            k_dim: group.k_dim as u32,
            v_dim: group.v_dim as u32,
            basis: [basis.0.into(), basis.1.into()],
        };
        let groups = engine.shape().groups.iter().zip(&bases).map(group).collect();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let timing = match engine.timing() {
            Timing::None => "none",
            Timing::Steps => "steps",
            Timing::Kernels => "kernels",
            Timing::Spans(_) => "spans",
        };
        let (profile, profile_text) = (engine.profile().name.clone(), engine.profile().to_toml());
        let kv_budget_bytes = engine.memory_classes().budget_bytes;
        let caps = engine.backend().caps();
        Header {
            version: env!("CARGO_PKG_VERSION").into(),
            command: String::new(),
            started_unix_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            model: None,
            groups,
            profile,
            profile_text,
            backend: caps.api.clone(),
            adapter: caps.adapter.clone(),
            tier: caps.tier.clone(),
            copy_bytes_per_s: None,
            kv_budget_bytes,
            timing: timing.into(),
        }
    }

    /// The bytes that a trace begins with.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        let fault = |e: &dyn std::fmt::Display| Error::new(ErrorKind::File, format!("the trace's header: {e}"), "");
        let json = serde_json::to_vec(self).map_err(|e| fault(&e))?;
        let length = u32::try_from(json.len()).ok().filter(|&n| n <= MAX_HEADER_BYTES);
        let length = length.ok_or_else(|| fault(&format!("{} bytes; {MAX_HEADER_BYTES} at most", json.len())))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        bytes.extend(json);
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        Ok(bytes)
    }

    /// Reads a trace's beginning; also how many bytes it takes.
    ///
    /// # Errors
    /// `File` for another kind of file, a newer version, or a header that is cut short, damaged or no JSON.
    pub(super) fn read(from: &mut dyn Read) -> Result<(Self, u64)> {
        let foreign =
            |what: String, remedy: &str| Error::new(ErrorKind::File, format!("the trace's header {what}"), remedy);
        let mut fixed = [0u8; 10];
        read_all(from, &mut fixed).map_err(|(got, e)| {
            if got >= 4 && fixed[..4] != MAGIC || got < 4 && !MAGIC.starts_with(&fixed[..got]) {
                return not_a_trace(&fixed[..got.min(4)]);
            }
            foreign(format!("is cut short: {got} bytes at offset 0, 10 are wanted{}", why(&e)), "record it anew")
        })?;
        if fixed[..4] != MAGIC {
            return Err(not_a_trace(&fixed[..4]));
        }
        let version = u16::from_le_bytes([fixed[4], fixed[5]]);
        let length = u32::from_le_bytes([fixed[6], fixed[7], fixed[8], fixed[9]]);
        if length > MAX_HEADER_BYTES {
            let what = format!("at offset 6 says {length} bytes of JSON, {MAX_HEADER_BYTES} at most are read");
            return Err(foreign(what, "the file is damaged"));
        }
        let mut json = Vec::new();
        let read = from.take(u64::from(length)).read_to_end(&mut json);
        let why_not = read.err().map(|e| why(&e)).unwrap_or_default();
        if json.len() < length as usize {
            let what = format!("is cut short: {} of {length} bytes of JSON at offset 10{why_not}", json.len());
            return Err(foreign(what, "record it anew"));
        }
        if version != VERSION {
            let by = serde_json::from_slice::<Header>(&json).map(|h| h.version).unwrap_or_default();
            let by = if by.is_empty() { String::new() } else { format!(", written by kvarto {}", by.escape_debug()) };
            return Err(Error::new(
                ErrorKind::File,
                format!("the trace has version {version}{by}; this program reads version {VERSION}"),
                "use a program of that version",
            ));
        }
        let at = 10 + u64::from(length);
        let mut stored = [0u8; 8];
        read_all(from, &mut stored).map_err(|(got, e)| {
            let what = format!("is cut short: {got} of 8 bytes of its checksum at offset {at}{}", why(&e));
            foreign(what, "record it anew")
        })?;
        let mut sum = Xxh3::new();
        sum.update(&fixed);
        sum.update(&json);
        let (sum, stored) = (sum.digest(), u64::from_le_bytes(stored));
        if sum != stored {
            let what = format!("at offset 0 is damaged: its checksum is {sum:016x}, {stored:016x} is wanted");
            return Err(foreign(what, "record it anew, or fetch it again"));
        }
        let header = serde_json::from_slice(&json)
            .map_err(|e| foreign(format!("at offset 10 is no JSON of a trace: {e}"), "record it anew"))?;
        Ok((header, at + 8))
    }
}

fn not_a_trace(begins: &[u8]) -> Error {
    let begins = begins.escape_ascii();
    Error::new(
        ErrorKind::File,
        format!("this is no trace: it begins with \"{begins}\", a trace with \"KVTR\""),
        "give a file that --trace wrote",
    )
}

fn why(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => String::new(),
        _ => format!(" ({error})"),
    }
}

/// Fills `bytes`; where that fails, how many came.
pub(super) fn read_all(from: &mut dyn Read, bytes: &mut [u8]) -> Result<(), (usize, std::io::Error)> {
    let mut got = 0;
    while got < bytes.len() {
        match from.read(&mut bytes[got..]) {
            Ok(0) => return Err((got, std::io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => got += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err((got, e)),
        }
    }
    Ok(())
}
