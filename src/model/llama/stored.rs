//! How a model's matrices are stored: what its dense kernels are specialised for, beside its configuration.

use crate::error::{Error, ErrorKind, Result};
use crate::model::config::ModelConfig;
use crate::model::gguf::{GgmlType, Gguf, READ, widens};
use crate::num::weights::WeightType;

/// Types of a model's matrices, each kind of product once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The embedding's type and columns.
    pub(super) embedding: (WeightType, u32),
    /// Type and columns of a product, and whether it is added to the residual stream; each once.
    pub(super) products: Vec<(WeightType, u32, bool)>,
}

impl Stored {
    /// As the file says, without reading a weight.
    ///
    /// # Errors
    /// `File` for a tensor that is not there, `Unsupported` for a type that is not read, `Shape` for one that is no
    /// matrix.
    pub fn of_file(gguf: &Gguf, config: &ModelConfig) -> Result<Self> {
        let matrix = |name: &str| -> Result<(WeightType, u32)> {
            let tensor = gguf.tensor(name)?;
            let &[columns, _] = tensor.shape.as_slice() else {
                return Err(Error::new(ErrorKind::Shape, format!("tensor `{name}` is not a matrix"), ""));
            };
            Ok((weight_type(name, tensor.ty)?, columns as u32))
        };
        let added = !config.architecture.post_norms;
        let mut stored = Stored { embedding: matrix("token_embd.weight")?, products: Vec::new() };
        for layer in 0..config.layers {
            for (part, accumulate) in PRODUCTS {
                let (weight, columns) = matrix(&format!("blk.{layer}.{part}.weight"))?;
                stored.product(weight, columns, accumulate && added);
            }
        }
        let head = if config.tied_output { stored.embedding } else { matrix("output.weight")? };
        stored.product(head.0, head.1, false);
        Ok(stored)
    }

    /// One type for the embedding and the logits, and one for all blocks.
    pub fn uniform(config: &ModelConfig, embedding: WeightType, blocks: WeightType) -> Self {
        let added = !config.architecture.post_norms;
        let hidden = config.hidden as u32;
        let mut stored = Stored { embedding: (embedding, hidden), products: Vec::new() };
        for (part, accumulate) in PRODUCTS {
            let columns = match part {
                "attn_output" => (config.q_heads * config.head_dim) as u32,
                "ffn_down" => config.ffn as u32,
                _ => hidden,
            };
            stored.product(blocks, columns, accumulate && added);
        }
        stored.product(embedding, hidden, false);
        stored
    }

    fn product(&mut self, weight: WeightType, columns: u32, accumulate: bool) {
        if !self.products.contains(&(weight, columns, accumulate)) {
            self.products.push((weight, columns, accumulate));
        }
    }
}

/// A block's matrices, and whether each ends a half of the block.
const PRODUCTS: [(&str, bool); 7] = [
    ("attn_q", false),
    ("attn_k", false),
    ("attn_v", false),
    ("attn_output", true),
    ("ffn_gate", false),
    ("ffn_up", false),
    ("ffn_down", true),
];

/// How a tensor of the file is kept on the device.
///
/// # Errors
/// `Unsupported` for a type that is not read.
pub(super) fn weight_type(name: &str, ty: GgmlType) -> Result<WeightType> {
    Ok(match ty {
        GgmlType::F32 => WeightType::F32,
        GgmlType::F16 => WeightType::F16,
        GgmlType::BF16 => WeightType::BF16,
        GgmlType::Q4_0 => WeightType::Q4_0,
        GgmlType::Q4_1 => WeightType::Q4_1,
        GgmlType::Q8_0 => WeightType::Q8_0,
        spread if widens(spread) => WeightType::Wide,
        other => {
            return Err(Error::new(ErrorKind::Unsupported, format!("tensor `{name}` is stored as {other}"), READ));
        }
    })
}
