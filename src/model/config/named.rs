//! Shapes of models by name, for measurements without a file.

use super::{Architecture, ModelConfig, Rope};
use crate::error::{Error, ErrorKind, Result};
use crate::num::rope::RopeScaling;

/// A Llama's numbers: name, layers, width, width of the feed-forward part, query heads, KV heads, head size, vocabulary,
/// positions, base of the rotary frequencies, whether the embedding is the output too.
type Row = (&'static str, usize, usize, usize, usize, usize, usize, usize, usize, f32, bool);

/// Figures are those of the models' own files; `tiny` is nobody's.
const ROWS: [Row; 4] = [
    ("tiny", 2, 64, 128, 4, 2, 16, 512, 1024, 10_000.0, true),
    ("smollm2-135m", 30, 576, 1536, 9, 3, 64, 49_152, 8192, 100_000.0, true),
    ("llama-3.2-1b", 16, 2048, 8192, 32, 8, 64, 128_256, 131_072, 500_000.0, true),
    ("llama-3.1-8b", 32, 4096, 14_336, 32, 8, 128, 128_256, 131_072, 500_000.0, false),
];

impl ModelConfig {
    /// Names that [`ModelConfig::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ROWS.iter().map(|row| row.0)
    }

    /// The shape of a model of the `llama` architecture by its name. Rotary frequencies are not stretched: nothing that
    /// runs differs by that.
    ///
    /// # Errors
    /// `Usage` for a name that is not known.
    pub fn named(name: &str) -> Result<Self> {
        let row = ROWS.iter().find(|row| row.0 == name);
        let (Some(row), Some(architecture)) = (row, Architecture::find("llama")) else {
            let names: Vec<&str> = ModelConfig::names().collect();
            return Err(Error::new(
                ErrorKind::Usage,
                format!("no model shape is named `{}`", name.escape_debug()),
                format!("give one of {}", names.join(", ")),
            ));
        };
        let &(_, layers, hidden, ffn, q_heads, kv_heads, head_dim, vocab, context_length, base, tied_output) = row;
        Ok(ModelConfig {
            architecture,
            layers,
            hidden,
            ffn,
            q_heads,
            kv_heads,
            head_dim,
            vocab,
            rms_eps: 1e-5,
            rope: Rope { dim_count: head_dim, base, pairing: architecture.pairing, scaling: RopeScaling::None },
            sliding: None,
            attention_scale: 1.0 / (head_dim as f32).sqrt(),
            context_length,
            tied_output,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_shapes_and_others_are_told_them() {
        for name in ModelConfig::names() {
            let config = ModelConfig::named(name).unwrap();
            assert!(config.q_heads.is_multiple_of(config.kv_heads) && config.hidden.is_multiple_of(32), "{name}");
            config.cache_shape(64).validate().unwrap();
        }
        let error = ModelConfig::named("llama").unwrap_err();
        assert!(error.kind() == ErrorKind::Usage && error.remedy().contains("llama-3.1-8b"), "{error}");
    }
}
