//! Writes small GGUF files for tests, well-formed or wrong on purpose.
#![allow(dead_code, reason = "each test file uses its own part")]

/// A metadata value and its type tag.
#[derive(Clone, Debug)]
pub enum V {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    Str(String),
    U64(u64),
    I64(i64),
    F64(f64),
    Strs(Vec<String>),
    F32s(Vec<f32>),
    I32s(Vec<i32>),
    U32s(Vec<u32>),
    /// Type tag and bytes, written as they are.
    Raw(u32, Vec<u8>),
}

impl From<&str> for V {
    fn from(text: &str) -> Self {
        V::Str(text.into())
    }
}

struct Tensor {
    name: String,
    ty: u32,
    shape: Vec<u64>,
    data: Vec<u8>,
    offset: Option<u64>,
}

/// Collects metadata and tensors; `build` lays them out.
pub struct GgufWriter {
    version: u32,
    alignment: u64,
    metadata: Vec<(String, V)>,
    tensors: Vec<Tensor>,
    counts: (Option<u64>, Option<u64>),
}

impl GgufWriter {
    /// An empty file of version 2 or 3.
    pub fn new(version: u32) -> Self {
        GgufWriter { version, alignment: 32, metadata: Vec::new(), tensors: Vec::new(), counts: (None, None) }
    }

    /// Adds a key; the same key may be added twice.
    pub fn key(mut self, key: &str, value: impl Into<V>) -> Self {
        self.metadata.push((key.into(), value.into()));
        self
    }

    /// Replaces the value of a key, or adds it.
    pub fn set(mut self, key: &str, value: impl Into<V>) -> Self {
        self.metadata.retain(|(k, _)| k != key);
        self.key(key, value)
    }

    /// Takes a key away.
    pub fn without(mut self, key: &str) -> Self {
        self.metadata.retain(|(k, _)| k != key);
        self
    }

    /// Lays tensors out at multiples of `alignment` and writes `general.alignment`.
    pub fn alignment(mut self, alignment: u32) -> Self {
        self.alignment = u64::from(alignment.max(1));
        self.key("general.alignment", V::U32(alignment))
    }

    /// Adds a tensor of ggml type `ty`.
    pub fn tensor(mut self, name: &str, ty: u32, shape: &[u64], data: Vec<u8>) -> Self {
        self.tensors.push(Tensor { name: name.into(), ty, shape: shape.into(), data, offset: None });
        self
    }

    /// Adds an F32 tensor.
    pub fn tensor_f32(self, name: &str, shape: &[u64], data: &[f32]) -> Self {
        self.tensor(name, 0, shape, data.iter().flat_map(|x| x.to_le_bytes()).collect())
    }

    /// Takes a tensor away.
    pub fn without_tensor(mut self, name: &str) -> Self {
        self.tensors.retain(|t| t.name != name);
        self
    }

    /// Lies about the offset of the last tensor added.
    pub fn at_offset(mut self, offset: u64) -> Self {
        self.tensors.last_mut().expect("a tensor").offset = Some(offset);
        self
    }

    /// The same file for another architecture: its name, and `llama.` keys under it.
    pub fn architecture(mut self, name: &str) -> Self {
        for (key, _) in &mut self.metadata {
            if let Some(rest) = key.strip_prefix("llama.") {
                *key = format!("{name}.{rest}");
            }
        }
        self.set("general.architecture", name)
    }

    /// Lies about the counts in the header: tensors, metadata pairs.
    pub fn claiming(mut self, tensors: Option<u64>, pairs: Option<u64>) -> Self {
        self.counts = (tensors, pairs);
        self
    }

    /// The file's bytes.
    pub fn build(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend(self.counts.0.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        out.extend(self.counts.1.unwrap_or(self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            string(&mut out, key);
            write_value(&mut out, value);
        }
        let mut offset = 0u64;
        for tensor in &self.tensors {
            string(&mut out, &tensor.name);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().for_each(|size| out.extend(size.to_le_bytes()));
            out.extend(tensor.ty.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(offset).to_le_bytes());
            offset += (tensor.data.len() as u64).next_multiple_of(self.alignment);
        }
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
            out.extend(&tensor.data);
        }
        out
    }
}

fn string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn write_value(out: &mut Vec<u8>, value: &V) {
    let tagged = |out: &mut Vec<u8>, tag: u32, bytes: &[u8]| {
        out.extend(tag.to_le_bytes());
        out.extend(bytes);
    };
    let array = |out: &mut Vec<u8>, element: u32, count: usize| {
        out.extend(9u32.to_le_bytes());
        out.extend(element.to_le_bytes());
        out.extend((count as u64).to_le_bytes());
    };
    match value {
        V::U8(v) => tagged(out, 0, &v.to_le_bytes()),
        V::I8(v) => tagged(out, 1, &v.to_le_bytes()),
        V::U16(v) => tagged(out, 2, &v.to_le_bytes()),
        V::I16(v) => tagged(out, 3, &v.to_le_bytes()),
        V::U32(v) => tagged(out, 4, &v.to_le_bytes()),
        V::I32(v) => tagged(out, 5, &v.to_le_bytes()),
        V::F32(v) => tagged(out, 6, &v.to_le_bytes()),
        V::Bool(v) => tagged(out, 7, &[u8::from(*v)]),
        V::Str(v) => {
            out.extend(8u32.to_le_bytes());
            string(out, v);
        }
        V::U64(v) => tagged(out, 10, &v.to_le_bytes()),
        V::I64(v) => tagged(out, 11, &v.to_le_bytes()),
        V::F64(v) => tagged(out, 12, &v.to_le_bytes()),
        V::Strs(v) => {
            array(out, 8, v.len());
            v.iter().for_each(|text| string(out, text));
        }
        V::F32s(v) => {
            array(out, 6, v.len());
            v.iter().for_each(|x| out.extend(x.to_le_bytes()));
        }
        V::I32s(v) => {
            array(out, 5, v.len());
            v.iter().for_each(|x| out.extend(x.to_le_bytes()));
        }
        V::U32s(v) => {
            array(out, 4, v.len());
            v.iter().for_each(|x| out.extend(x.to_le_bytes()));
        }
        V::Raw(tag, bytes) => tagged(out, *tag, bytes),
    }
}

/// [`tiny_llama`] with `layers` layers, which differ.
pub fn tiny_llama_of(version: u32, layers: u32) -> GgufWriter {
    let mut writer = tiny_llama(version).set("llama.block_count", V::U32(layers));
    for layer in 1..layers {
        let weights =
            |n: u64| (0..n).map(|i| ((i * (37 + u64::from(layer)) % 101) as f32 - 50.0) / 100.0).collect::<Vec<f32>>();
        for (name, shape) in TINY_BLOCK {
            writer = writer.tensor_f32(&format!("blk.{layer}.{name}.weight"), shape, &weights(shape.iter().product()));
        }
    }
    writer
}

const TINY_BLOCK: [(&str, &[u64]); 9] = [
    ("attn_norm", &[16]),
    ("attn_q", &[16, 16]),
    ("attn_k", &[16, 8]),
    ("attn_v", &[16, 8]),
    ("attn_output", &[16, 16]),
    ("ffn_norm", &[16]),
    ("ffn_gate", &[16, 24]),
    ("ffn_up", &[16, 24]),
    ("ffn_down", &[24, 16]),
];

/// A whole `llama` model of one layer: width 16, two query heads and one KV head of 8, 24 feed-forward, tied
/// output, F32 weights, and a byte-level tokenizer without merges but `a b`.
pub fn tiny_llama(version: u32) -> GgufWriter {
    let mut tokens: Vec<String> = byte_alphabet().into_iter().map(String::from).collect();
    tokens.extend(["ab".into(), "<|im_start|>".into(), "<|im_end|>".into(), "<tool>".into()]);
    let mut types = vec![1i32; tokens.len() - 3];
    types.extend([3, 3, 4]);
    let vocab = tokens.len() as u64;
    let weights = |n: u64| (0..n).map(|i| ((i * 37 % 101) as f32 - 50.0) / 100.0).collect::<Vec<f32>>();
    let mut writer = GgufWriter::new(version)
        .key("general.architecture", "llama")
        .key("llama.block_count", V::U32(1))
        .key("llama.context_length", V::U32(128))
        .key("llama.embedding_length", V::U32(16))
        .key("llama.feed_forward_length", V::U32(24))
        .key("llama.attention.head_count", V::U32(2))
        .key("llama.attention.head_count_kv", V::U32(1))
        .key("llama.attention.layer_norm_rms_epsilon", V::F32(1e-5))
        .key("tokenizer.ggml.model", "gpt2")
        .key("tokenizer.ggml.pre", "smollm")
        .key("tokenizer.ggml.tokens", V::Strs(tokens))
        .key("tokenizer.ggml.token_type", V::I32s(types))
        .key("tokenizer.ggml.merges", V::Strs(vec!["a b".into()]))
        .key("tokenizer.ggml.bos_token_id", V::U32(257))
        .key("tokenizer.ggml.eos_token_id", V::U32(258));
    for (name, shape) in [
        ("token_embd", vec![16, vocab]),
        ("output_norm", vec![16]),
        ("blk.0.attn_norm", vec![16]),
        ("blk.0.attn_q", vec![16, 16]),
        ("blk.0.attn_k", vec![16, 8]),
        ("blk.0.attn_v", vec![16, 8]),
        ("blk.0.attn_output", vec![16, 16]),
        ("blk.0.ffn_norm", vec![16]),
        ("blk.0.ffn_gate", vec![16, 24]),
        ("blk.0.ffn_up", vec![16, 24]),
        ("blk.0.ffn_down", vec![24, 16]),
    ] {
        writer = writer.tensor_f32(&format!("{name}.weight"), &shape, &weights(shape.iter().product()));
    }
    writer
}

/// GPT-2's 256 characters, by the byte they stand for.
pub fn byte_alphabet() -> Vec<char> {
    let mut next = 256;
    (0..=255u32)
        .map(|byte| {
            let itself = matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
            let code = if itself { byte } else { next };
            next += u32::from(!itself);
            char::from_u32(code).expect("below the surrogates")
        })
        .collect()
}
