//! A backend with helpers to fill buffers and read them, random numbers, and weights with their f64 values.

use half::{bf16, f16};
use kvarto::backend::{
    Backend, BufferId, BufferSlice, CpuBackend, Dispatch, PipelineId, Recording, Specialisation, read_blocking,
};
use kvarto::kernel::RowView;
use kvarto::kernel::linear::LinearPath;
use kvarto::num::weights::WeightType;

/// The NaN that outputs and gaps start as.
const POISON: u32 = 0x7fc0_dead;

/// A backend under test.
pub struct Rig<'a> {
    backend: &'a mut dyn Backend,
    gpu: bool,
    buffers: Vec<BufferId>,
    /// Every word read so far.
    seen: Vec<u32>,
}

/// Runs `check` on the CPU.
pub fn on_cpu(check: impl Fn(&mut Rig)) {
    let mut backend = CpuBackend::new(0).unwrap();
    check(&mut Rig { backend: &mut backend, gpu: false, buffers: Vec::new(), seen: Vec::new() });
}

/// Runs `check` on every GPU API there is, or says why not.
#[cfg(feature = "wgpu")]
pub fn on_gpu(check: impl Fn(&mut Rig)) {
    crate::support::gpu::on_each(|backend| {
        check(&mut Rig { backend, gpu: true, buffers: Vec::new(), seen: Vec::new() })
    });
}

/// Runs `check` on Vulkan as it is and with workgroup memory full of NaN patterns at each kernel's entry: what it reads
/// must be the same, bit for bit.
#[cfg(feature = "wgpu")]
pub fn poisoned_and_not(check: impl Fn(&mut Rig)) {
    use kvarto::backend::wgpu::OpenOptions;
    let words = |backend: &mut dyn Backend| {
        let mut rig = Rig { backend, gpu: true, buffers: Vec::new(), seen: Vec::new() };
        check(&mut rig);
        std::mem::take(&mut rig.seen)
    };
    crate::support::gpu::on("vulkan", |plain| {
        let poison = OpenOptions { poison_workgroup: true, ..OpenOptions::default() };
        let mut poisoned = crate::support::gpu::open("vulkan", &poison).expect("a second device");
        let (plain, poisoned) = (words(plain), words(&mut poisoned));
        assert!(!plain.is_empty() && plain == poisoned, "some kernel read what it had not written");
    });
}

/// Two tests of one check, so that a failure names its backend.
#[macro_export]
macro_rules! on_every_backend {
    ($($name:ident),+ $(,)?) => {
        mod on_the_cpu {
            $(#[test] fn $name() { $crate::dense::rig::on_cpu(super::$name); })+
        }
        #[cfg(feature = "wgpu")]
        mod on_a_gpu {
            $(#[test] fn $name() { $crate::dense::rig::on_gpu(super::$name); })+
        }
    };
}

impl Drop for Rig<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(feature = "cuda")]
impl<'a> Rig<'a> {
    /// Of a backend that is at hand.
    pub fn over(backend: &'a mut dyn Backend) -> Self {
        Rig { backend, gpu: true, buffers: Vec::new(), seen: Vec::new() }
    }
}

impl Rig<'_> {
    /// Paths worth testing with `rows` rows: every one on a GPU, and the CPU has but one name for all.
    pub fn paths(&self, rows: u32) -> Vec<LinearPath> {
        if self.gpu { LinearPath::ALL.to_vec() } else { vec![LinearPath::for_rows(rows)] }
    }

    /// The cases to test in a turn: all, or on a GPU every third, beginning at another one each turn (a software
    /// driver takes most of a second for a pipeline, and all types take the same way through a kernel).
    pub fn some<T>(&self, turn: usize, cases: Vec<T>) -> Vec<T> {
        let wanted = |at: usize| !self.gpu || at % 3 == turn % 3;
        cases.into_iter().enumerate().filter(|(at, _)| wanted(*at)).map(|(_, case)| case).collect()
    }

    pub fn words(&mut self, words: &[u32]) -> BufferSlice {
        let bytes = 4 * words.len() as u64;
        let buffer = self.backend.alloc("test", bytes).unwrap();
        self.backend.write(buffer, 0, bytemuck::cast_slice(words)).unwrap();
        self.buffers.push(buffer);
        BufferSlice::whole(buffer, bytes)
    }

    pub fn floats(&mut self, values: &[f32]) -> BufferSlice {
        self.words(bytemuck::cast_slice(values))
    }

    /// Bytes, filled up to whole words with a pattern.
    pub fn bytes(&mut self, bytes: &[u8]) -> BufferSlice {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(4), 0xff);
        let words: Vec<u32> = padded.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
        self.words(&words)
    }

    /// Rows at an offset and stride, poison around them.
    pub fn strided(&mut self, values: &[f32], rows: u32, width: u32, offset: u32, stride: u32) -> RowView {
        let mut words = vec![POISON; (offset + rows * stride + 7) as usize];
        for row in 0..rows {
            for i in 0..width {
                words[(offset + row * stride + i) as usize] = values[(row * width + i) as usize].to_bits();
            }
        }
        RowView { slice: self.words(&words), offset, stride }
    }

    /// A place for rows, all poison.
    pub fn strided_poison(&mut self, rows: u32, width: u32, offset: u32, stride: u32) -> RowView {
        assert!(width <= stride);
        RowView { slice: self.words(&vec![POISON; (offset + rows * stride + 7) as usize]), offset, stride }
    }

    pub fn read_words(&mut self, slice: BufferSlice) -> Vec<u32> {
        let bytes = read_blocking(self.backend, slice.buffer, slice.offset, slice.bytes).unwrap();
        let words: Vec<u32> = bytes.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap())).collect();
        self.seen.extend(&words);
        words
    }

    /// The rows of a view; all that lies around them must still be poison.
    pub fn rows(&mut self, view: RowView, rows: u32, width: u32) -> Vec<f32> {
        let words = self.read_words(view.slice);
        let mut inside = Vec::new();
        for (at, &word) in words.iter().enumerate() {
            let from_first = (at as u32).wrapping_sub(view.offset);
            if from_first / view.stride < rows && from_first % view.stride < width {
                inside.push(f32::from_bits(word));
            } else {
                assert_eq!(word, POISON, "word {at} beside the rows was written");
            }
        }
        assert_eq!(inside.len(), (rows * width) as usize);
        inside
    }

    pub fn prepare(&mut self, spec: &Specialisation) -> PipelineId {
        self.backend.prepare(spec).unwrap()
    }

    pub fn submit(&mut self, recording: Recording) -> kvarto::Result<()> {
        self.backend.submit(recording).map(|_| ())
    }

    pub fn try_submit(&mut self, dispatch: Dispatch) -> kvarto::Result<()> {
        let mut recording = Recording::new();
        recording.dispatch(dispatch);
        self.submit(recording)
    }

    pub fn run(&mut self, spec: &Specialisation, dispatch: impl FnOnce(PipelineId) -> kvarto::Result<Dispatch>) {
        let pipeline = self.prepare(spec);
        self.try_submit(dispatch(pipeline).unwrap()).unwrap();
    }

    /// Gives all buffers back.
    pub fn clear(&mut self) {
        self.buffers.drain(..).for_each(|b| self.backend.free(b));
    }
}

/// Fails unless `got` is within `tolerance` of `want`; a NaN on either side fails.
pub fn close(got: f32, want: f64, tolerance: f64, what: &str) {
    assert!((f64::from(got) - want).abs() <= tolerance, "{what}: {got}, not {want} within {tolerance:e}");
}

/// SplitMix64.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Within `±size`.
    pub fn float(&mut self, size: f32) -> f32 {
        ((self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * size
    }

    pub fn floats(&mut self, count: usize, size: f32) -> Vec<f32> {
        (0..count).map(|_| self.float(size)).collect()
    }
}

/// A weight tensor as stored, and its values by the definition of its type.
pub struct Weights {
    pub weight: WeightType,
    pub columns: u32,
    pub rows: u32,
    data: Vec<u8>,
}

impl Weights {
    /// Every code occurs; scales are of both signs, some subnormal.
    pub fn random(weight: WeightType, columns: u32, rows: u32) -> Self {
        let mut rng = Rng::new(u64::from(columns) * 31 + u64::from(rows));
        let mut data = Vec::new();
        let scale = |rng: &mut Rng, data: &mut Vec<u8>| {
            let value = if rng.next().is_multiple_of(16) { 3e-6 } else { 0.1 };
            data.extend(f16::from_f32(rng.float(value)).to_le_bytes());
        };
        for _ in 0..rows * columns / 8 {
            // Blocks are begun every fourth time.
            let begins = data.len() % weight.bytes_of_32().max(1) == 0;
            match weight {
                WeightType::F32 => (0..8).for_each(|_| data.extend(rng.float(1.0).to_le_bytes())),
                WeightType::F16 => (0..4).for_each(|_| {
                    data.extend(f16::from_f32(rng.float(1.0)).to_le_bytes());
                    data.extend(f16::from_f32(rng.float(4e-5)).to_le_bytes());
                }),
                WeightType::BF16 => (0..8).for_each(|_| data.extend(bf16::from_f32(rng.float(1.0)).to_le_bytes())),
                WeightType::Q4_0 | WeightType::Q4_1 => {
                    if begins {
                        scale(&mut rng, &mut data);
                        if weight == WeightType::Q4_1 {
                            scale(&mut rng, &mut data);
                        }
                    }
                    data.extend((rng.next() as u32).to_le_bytes());
                }
                WeightType::Q8_0 => {
                    if begins {
                        scale(&mut rng, &mut data);
                    }
                    data.extend(rng.next().to_le_bytes());
                }
                WeightType::Wide => {
                    if begins {
                        (0..3).for_each(|_| data.extend(rng.float(0.1).to_le_bytes()));
                    }
                    data.extend(rng.next().to_le_bytes());
                }
            }
        }
        assert_eq!(data.len(), rows as usize * weight.row_bytes(columns as usize).unwrap());
        Weights { weight, columns, rows, data }
    }

    /// Q8_0 rows of ones.
    pub fn ones(weight: WeightType, columns: u32, rows: u32) -> Self {
        assert_eq!(weight, WeightType::Q8_0);
        let mut block = f16::ONE.to_le_bytes().to_vec();
        block.resize(34, 1);
        Weights { weight, columns, rows, data: block.repeat((rows * columns / 32) as usize) }
    }

    /// The stored bytes of some rows.
    pub fn row_bytes(&self, first: u32, count: u32) -> Vec<u8> {
        let row = self.data.len() / self.rows as usize;
        self.data[first as usize * row..][..count as usize * row].to_vec()
    }

    /// A row's values, after the definitions of ggml's types.
    pub fn values(&self, row: usize) -> Vec<f64> {
        let bytes = self.row_bytes(row as u32, 1);
        let half = |at: usize| f64::from(f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32());
        let nibble = |at: usize, i: usize| f64::from((bytes[at + i % 16] >> (i / 16 * 4)) & 15);
        (0..self.columns as usize)
            .map(|c| {
                let (block, i) = (c / 32, c % 32);
                match self.weight {
                    WeightType::F32 => f64::from(f32::from_le_bytes(bytes[4 * c..][..4].try_into().unwrap())),
                    WeightType::F16 => half(2 * c),
                    WeightType::BF16 => f64::from(bf16::from_le_bytes([bytes[2 * c], bytes[2 * c + 1]]).to_f32()),
                    WeightType::Q4_0 => (nibble(18 * block + 2, i) - 8.0) * half(18 * block),
                    WeightType::Q4_1 => nibble(20 * block + 4, i) * half(20 * block) + half(20 * block + 2),
                    WeightType::Q8_0 => f64::from(bytes[34 * block + 2 + i] as i8) * half(34 * block),
                    WeightType::Wide => {
                        let number = |n: usize| {
                            f64::from(f32::from_le_bytes(bytes[44 * block + 4 * n..][..4].try_into().unwrap()))
                        };
                        f64::from(bytes[44 * block + 12 + i] as i8) * number(i / 16) + number(2)
                    }
                }
            })
            .collect()
    }

    /// The size of the terms that a value is the sum of: what rounding is measured by.
    pub fn size(&self, row: usize, column: usize) -> f64 {
        let bytes = self.row_bytes(row as u32, 1);
        let half = |at: usize| f64::from(f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()).abs();
        let block = column / 32;
        match self.weight {
            WeightType::Q4_1 => 15.0 * half(20 * block) + half(20 * block + 2),
            WeightType::Wide => {
                let number = |n: usize| {
                    f64::from(f32::from_le_bytes(bytes[44 * block + 4 * n..][..4].try_into().unwrap())).abs()
                };
                128.0 * number(column % 32 / 16) + number(2)
            }
            _ => self.values(row)[column].abs(),
        }
    }
}
