//! Calibrations as files: safetensors, bound to a model by its hash and to themselves by a checksum.
//!
//! Tensors are `k.mean` and `v.mean` `[layers][KV heads][dim]`, `k.map` and `v.map` `[layers][KV heads][dim][dim]` (F by
//! rows), and, where they were kept, `k.covariance`, `q.moment`, `v.covariance` and `output.moment` of the maps' shape; all
//! F32. The metadata's one entry, `kvcal`, is the [`Header`] as JSON.

use super::moments::SecondMoments;
use crate::basis::{Calibration, HeadMap, LayerMaps};
use crate::bounded;
use crate::error::{Error, ErrorKind, Result};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// The version of the layout that this crate writes, and the only one that it reads.
pub const VERSION: u32 = 1;

/// The name of the metadata's entry.
const ENTRY: &str = "kvcal";

/// Larger files are not read: the maps of a model with 64 layers, 16 KV heads of 256 take half of it.
const MOST_BYTES: u64 = 1 << 30;

/// Where a calibration comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// Version of the program that wrote it.
    pub kvarto: String,
    /// SHA-256 of the model's file, lower-case hexadecimal.
    pub model_sha256: String,
    /// What the model was called.
    pub model: String,
    /// The model's architecture.
    pub architecture: String,
    /// SHA-256 of the text.
    pub text_sha256: String,
    /// Tokens that the model ran over.
    pub tokens: usize,
    /// Windows that they came in.
    pub windows: usize,
    /// Tokens of a window.
    pub window_tokens: usize,
    /// First tokens of each window that the moments leave out.
    pub skipped_tokens: usize,
    /// XXH3 (128 bits) of the other entries and all tensors, in hexadecimal; filled in when written.
    #[serde(default)]
    pub checksum: String,
}

/// A calibration's file, read or to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrationFile {
    /// Where it comes from.
    pub header: Header,
    /// Means and maps by layer.
    pub layers: Vec<LayerMaps>,
    /// The moments, where they are kept.
    pub moments: Option<SecondMoments>,
}

fn damaged(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::File, message, "calibrate the model again with `kvarto calibrate`")
}

/// Names, shapes and values of the tensors, in the order of the checksum.
type Tensors = Vec<(&'static str, Vec<usize>, Vec<f32>)>;

impl CalibrationFile {
    /// The file's bytes; the same for the same contents.
    ///
    /// # Errors
    /// `Shape` for layers of different sizes.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let tensors = self.tensors()?;
        let mut header = self.header.clone();
        header.checksum = checksum(&header, &tensors)?;
        let text = serde_json::to_string(&header).map_err(|e| damaged(e.to_string()))?;
        let views = tensors.iter().map(|(name, shape, values)| {
            let view = TensorView::new(Dtype::F32, shape.clone(), bytemuck::cast_slice(values));
            Ok((*name, view.map_err(|e| damaged(format!("tensor {name}: {e}")))?))
        });
        let views = views.collect::<Result<Vec<_>>>()?;
        safetensors::serialize(views, Some(HashMap::from([(ENTRY.to_string(), text)])))
            .map_err(|e| damaged(format!("the calibration cannot be written: {e}")))
    }

    fn tensors(&self) -> Result<Tensors> {
        let mut tensors = Tensors::new();
        let (layers, mut square) = (self.layers.len(), vec![]);
        type Of = fn(&LayerMaps) -> &Vec<HeadMap>;
        for (mean, map, of) in [("k.mean", "k.map", (|l| &l.k) as Of), ("v.mean", "v.map", |l| &l.v)] {
            let heads = self.layers.first().map_or(0, |layer| of(layer).len());
            let dim = self.layers.first().and_then(|layer| of(layer).first()).map_or(0, |head| head.mean.len());
            let all = || self.layers.iter().flat_map(of);
            let even = self.layers.iter().all(|layer| of(layer).len() == heads)
                && all().all(|head| head.mean.len() == dim && head.map.len() == dim * dim);
            if !even || heads == 0 || dim == 0 {
                let message = format!("layers of a calibration need the same heads and head sizes: {mean}, {map}");
                return Err(Error::new(ErrorKind::Shape, message, ""));
            }
            square = vec![layers, heads, dim, dim];
            tensors.push((mean, square[..3].to_vec(), all().flat_map(|head| head.mean.iter().copied()).collect()));
            tensors.push((map, square.clone(), all().flat_map(|head| head.map.iter().copied()).collect()));
        }
        let moments = self.moments.iter().flat_map(|m| {
            [("k.covariance", &m.k), ("q.moment", &m.q), ("v.covariance", &m.v), ("output.moment", &m.output)]
        });
        tensors.extend(moments.map(|(name, values)| (name, square.clone(), values.clone())));
        Ok(tensors)
    }

    /// Reads a file's bytes.
    ///
    /// # Errors
    /// `File` for one that is damaged, cut short, of a later version or no calibration at all.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let tensors =
            SafeTensors::deserialize(bytes).map_err(|e| damaged(format!("it is no whole safetensors file: {e}")))?;
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(|e| damaged(e.to_string()))?;
        let text = metadata.metadata().as_ref().and_then(|entries| entries.get(ENTRY));
        let text = text.ok_or_else(|| damaged("it is a safetensors file, but no calibration of kvarto"))?;
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let fault = |e: serde_json::Error| damaged(format!("its header does not read: {e}"));
        let Versioned { version } = serde_json::from_str(text).map_err(fault)?;
        if version != VERSION {
            return Err(damaged(format!("it is of version {version}, this program reads version {VERSION}")));
        }
        let header: Header = serde_json::from_str(text).map_err(fault)?;
        let read = |name: &str, rank: usize| -> Result<(Vec<usize>, Vec<f32>)> {
            let view = tensors.tensor(name).map_err(|_| damaged(format!("tensor {name} is missing")))?;
            if view.dtype() != Dtype::F32 || view.shape().len() != rank || view.shape().contains(&0) {
                let message =
                    format!("tensor {name} is {:?} of {:?}, not F32 of {rank} sizes", view.dtype(), view.shape());
                return Err(damaged(message));
            }
            Ok((view.shape().to_vec(), bytemuck::pod_collect_to_vec(view.data())))
        };
        let mut layers: Vec<LayerMaps> = Vec::new();
        let mut square = Vec::new();
        for (mean, map, is_k) in [("k.mean", "k.map", true), ("v.mean", "v.map", false)] {
            let ((sizes, means), (of_map, maps)) = (read(mean, 3)?, read(map, 4)?);
            let [count, heads, dim] = sizes[..] else { return Err(damaged(format!("tensor {mean} is {sizes:?}"))) };
            if of_map != [count, heads, dim, dim] || (!is_k && count != layers.len()) {
                return Err(damaged(format!("tensor {mean} is {sizes:?} beside {map} of {of_map:?}")));
            }
            layers.resize_with(count, LayerMaps::default);
            let both = means.chunks_exact(dim).zip(maps.chunks_exact(dim * dim));
            let mut all = both.map(|(mean, map)| HeadMap { mean: mean.to_vec(), map: map.to_vec() });
            for layer in &mut layers {
                let side = if is_k { &mut layer.k } else { &mut layer.v };
                side.extend(all.by_ref().take(heads));
            }
            square = of_map;
        }
        let moments = match tensors.tensor("q.moment").is_ok() {
            false => None,
            true => {
                let of = |name: &str| match read(name, 4)? {
                    (shape, values) if shape == square => Ok(values),
                    (shape, _) => Err(damaged(format!("tensor {name} is {shape:?}, not {square:?}"))),
                };
                let (k, q, v) = (of("k.covariance")?, of("q.moment")?, of("v.covariance")?);
                Some(SecondMoments { k, q, v, output: of("output.moment")? })
            }
        };
        let file = CalibrationFile { header, layers, moments };
        let sum = checksum(&file.header, &file.tensors()?)?;
        if sum != file.header.checksum {
            return Err(damaged(format!("it is damaged: its checksum is {sum}, it says {:?}", file.header.checksum)));
        }
        Ok(file)
    }

    /// Reads a file; its SHA-256 comes along, which names it in content keys.
    ///
    /// # Errors
    /// `File` for one that is missing, unreadable or too large, and as [`CalibrationFile::parse`]; the path is named.
    pub fn read(path: &Path) -> Result<(Self, String)> {
        let named = |what: String| damaged(format!("{}: {what}", path.display()));
        let bytes = bounded::read(path, MOST_BYTES).map_err(named)?;
        let file = CalibrationFile::parse(&bytes).map_err(|e| e.context(path.display().to_string()))?;
        Ok((file, hex(&Sha256::digest(&bytes))))
    }

    /// Means and maps, ready to be used, under the name `id`.
    ///
    /// # Errors
    /// As [`Calibration::new`].
    pub fn calibration(self, id: &str) -> Result<Calibration> {
        Calibration::new(id, self.layers)
    }
}

/// XXH3 of everything but the checksum itself.
fn checksum(header: &Header, tensors: &Tensors) -> Result<String> {
    let header = Header { checksum: String::new(), ..header.clone() };
    let mut sum = Xxh3::new();
    sum.update(serde_json::to_string(&header).map_err(|e| damaged(e.to_string()))?.as_bytes());
    for (name, shape, values) in tensors {
        sum.update(format!("{name}{shape:?}").as_bytes());
        sum.update(bytemuck::cast_slice(values));
    }
    Ok(format!("{:032x}", sum.digest128()))
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
