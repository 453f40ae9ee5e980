//! Keys and values of a prefill, taken once from a dense cache and replayed into others.

use crate::engine::{Engine, Input, SeqId, SeqRows};
use crate::error::{Error, ErrorKind, Result};
use crate::shape::Side;
use half::f16;

/// Rows of a sequence's first tokens by model layer, as a 16-bit cache without a change of coordinates holds them.
#[derive(Clone, Debug, PartialEq)]
pub struct Prefill {
    tokens: usize,
    layers: Vec<Layer>,
}

/// K and V of a layer, `[token][KV head][dim]`.
#[derive(Clone, Debug, Default, PartialEq)]
struct Layer {
    rows: [Vec<f16>; 2],
    /// Floats of a token, K and V.
    widths: [usize; 2],
}

impl Prefill {
    /// Takes the first `tokens` tokens' rows of `seq`. The engine's formats must be `f16` and its basis `none`, and nothing
    /// may have been evicted or left behind a window.
    ///
    /// # Errors
    /// `Shape` where that is not so; what the device says.
    pub fn take(engine: &mut Engine, seq: SeqId, tokens: usize) -> Result<Self> {
        let held = engine.lengths(seq)?.logical as usize;
        let plain = engine.bases().iter().all(|&basis| basis == ("none", "none"));
        if tokens > held || !plain {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("rows of {tokens} tokens are taken from a cache of {held}, in bases {:?}", engine.bases()),
                "take them from a dense cache that holds them",
            ));
        }
        let mut layers = vec![Layer::default(); engine.shape().model_layers()];
        for index in 0..engine.shape().groups.len() {
            let shape = engine.shape().groups[index].clone();
            let pages = engine.stored_pages(seq, index)?;
            let dims = [shape.k_dim, shape.v_dim];
            for (at, &layer) in shape.layers.iter().enumerate() {
                let to = &mut layers[layer];
                to.widths = dims.map(|dim| dim * shape.kv_heads);
                to.rows = to.widths.map(|width| vec![f16::NAN; tokens * width]);
                for head in 0..shape.kv_heads {
                    let row = &pages[at * shape.kv_heads + head];
                    for (side, dim) in dims.into_iter().enumerate() {
                        let mut token = 0;
                        for page in row {
                            if page.formats[side] != "f16" {
                                return Err(not_exact(layer, &page.formats[side]));
                            }
                            for values in page.rows[side].chunks_exact(dim).take(tokens - token) {
                                let start = token * to.widths[side] + head * dim;
                                let place = &mut to.rows[side][start..start + dim];
                                place.iter_mut().zip(values).for_each(|(to, &from)| *to = f16::from_f32(from));
                                token += 1;
                            }
                            if token == tokens {
                                break;
                            }
                        }
                        if token != tokens {
                            return Err(not_exact(layer, &format!("{token} of {tokens} tokens")));
                        }
                    }
                }
            }
        }
        Ok(Prefill { tokens, layers })
    }

    /// Tokens held.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Bytes held on the host.
    pub fn bytes(&self) -> u64 {
        self.layers.iter().flat_map(|l| &l.rows).map(|rows| rows.len() as u64 * 2).sum()
    }

    /// One KV head's rows of one side, `[token][dim]`, in f32.
    ///
    /// # Errors
    /// `Shape` for a layer or head that is not there.
    pub fn head(&self, layer: usize, side: Side, kv_head: usize, kv_heads: usize) -> Result<Vec<f32>> {
        let index = usize::from(side == Side::V);
        let found = self.layers.get(layer).filter(|_| kv_head < kv_heads);
        let Some(found) = found else {
            return Err(Error::new(ErrorKind::Shape, format!("layer {layer}, KV head {kv_head} is not held"), ""));
        };
        let (width, dim) = (found.widths[index], found.widths[index] / kv_heads);
        let rows = found.rows[index].chunks_exact(width.max(1));
        Ok(rows.flat_map(|row| row[kv_head * dim..][..dim].iter().map(|x| x.to_f32())).collect())
    }

    /// Appends the tokens to `seq` in steps of `chunk` rows, as a prefill by that many does, with no forward pass and no
    /// attention.
    ///
    /// # Errors
    /// `Shape` for another model's layers; as [`Engine::begin_step`].
    pub fn replay(&self, engine: &mut Engine, seq: SeqId, chunk: usize) -> Result<()> {
        if engine.shape().model_layers() != self.layers.len() {
            let what = format!("rows of {} layers for a cache of {}", self.layers.len(), engine.shape().model_layers());
            return Err(Error::new(ErrorKind::Shape, what, "replay into a cache of the same model"));
        }
        let mut floats = [Vec::new(), Vec::new()];
        let chunk = chunk.max(1);
        for start in (0..self.tokens).step_by(chunk) {
            let end = (start + chunk).min(self.tokens);
            let mut step = engine.begin_step(&[SeqRows { seq, rows: (end - start) as u32, committed: true }])?;
            for (index, layer) in self.layers.iter().enumerate() {
                for ((to, rows), width) in floats.iter_mut().zip(&layer.rows).zip(layer.widths) {
                    to.clear();
                    to.extend(rows[start * width..end * width].iter().map(|x| x.to_f32()));
                }
                let [k, v] = &floats;
                step.append(index, Input::Host(k), Input::Host(v))?;
                // Host rows lie in staging buffers until they have run.
                step.submit()?;
            }
            step.finish()?;
        }
        Ok(())
    }
}

fn not_exact(layer: usize, what: &str) -> Error {
    Error::new(
        ErrorKind::Shape,
        format!("layer {layer} holds {what}, no exact row of every token"),
        "take rows from a dense cache that keeps all pages",
    )
}
