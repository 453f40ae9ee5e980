//! The profiles that come with the crate: files of `assets/profiles`, part of the program.

/// Name and text of each, in the order that lists show them.
pub const TEXTS: &[(&str, &str)] = &[
    ("dense", include_str!("../../assets/profiles/dense.toml")),
    ("fp8", include_str!("../../assets/profiles/fp8.toml")),
    ("k8v3", include_str!("../../assets/profiles/k8v3.toml")),
    ("k4v3", include_str!("../../assets/profiles/k4v3.toml")),
    ("tq4", include_str!("../../assets/profiles/tq4.toml")),
    ("tq3", include_str!("../../assets/profiles/tq3.toml")),
    ("tq2", include_str!("../../assets/profiles/tq2.toml")),
    ("q8_0", include_str!("../../assets/profiles/q8_0.toml")),
    ("q4_0", include_str!("../../assets/profiles/q4_0.toml")),
    ("q3_affine", include_str!("../../assets/profiles/q3_affine.toml")),
    ("streaming", include_str!("../../assets/profiles/streaming.toml")),
    ("minima-kv", include_str!("../../assets/profiles/minima-kv.toml")),
    ("minima-kv-paper", include_str!("../../assets/profiles/minima-kv-paper.toml")),
];

/// Their names.
pub fn names() -> impl Iterator<Item = &'static str> {
    TEXTS.iter().map(|(name, _)| *name)
}
