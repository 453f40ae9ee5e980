//! GGUF files as no tool writes them: mutations of well-formed ones, for some seconds. Whatever comes, reading ends with
//! a value or an error, never with a panic, and no allocation dwarfs the file.
//!
//! `KVARTO_FUZZ_SEED=N` repeats a run, `KVARTO_FUZZ_SECONDS=N` sets its length.
#![cfg(feature = "cli")]

#[path = "support/gguf_body.rs"]
mod gguf_body;
#[path = "support/gguf_writer.rs"]
mod gguf_writer;

use gguf_writer::{GgufWriter, V, tiny_llama};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The largest request since it was last set to 0.
static LARGEST: AtomicUsize = AtomicUsize::new(0);

struct Watching;

#[allow(unsafe_code)] // the trait is unsafe; the calls are the system's own
// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: `at` came from `alloc` above with this layout.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Numbers at which sizes, counts and offsets go wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 62,
    (1 << 63) - 1,
    u64::MAX - 31,
    u64::MAX,
];

fn mutate(random: &mut Random, file: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(file.len());
        match random.below(7) {
            0 if !file.is_empty() => file[at] ^= 1 << random.below(8),
            1 if !file.is_empty() => file[at] = random.next() as u8,
            2 | 3 => {
                let bytes = EDGES[random.below(EDGES.len())].to_le_bytes();
                let width = [1, 2, 4, 8][random.below(4)];
                for (to, from) in file.iter_mut().skip(at).zip(&bytes[..width]) {
                    *to = *from;
                }
            }
            4 => file.truncate(at),
            5 => {
                let end = (at + random.below(64)).min(file.len());
                let part = file[at..end].to_vec();
                let to = random.below(file.len() + 1);
                file.splice(to..to, part);
            }
            _ => {
                let end = (at + random.below(64)).min(file.len());
                file.drain(at..end);
            }
        }
    }
}

/// Well-formed beginnings: a model that runs, one with a tokenizer's and a template's keys, and odd values.
fn seeds() -> Vec<Vec<u8>> {
    let words: Vec<String> = ["a", "b", "ab", "<s>", "</s>"].map(String::from).to_vec();
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let with_words = tiny_llama(3)
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "smollm")
        .set("tokenizer.ggml.tokens", V::Strs(words))
        .set("tokenizer.ggml.merges", V::Strs(vec!["a b".into()]))
        .set("tokenizer.ggml.token_type", V::I32s(vec![1, 1, 1, 3, 3]))
        .set("tokenizer.chat_template", template);
    let odd = GgufWriter::new(2)
        .key("general.architecture", "llama")
        .key("numbers", V::F32s(vec![0.5; 9]))
        .tensor("six", 14, &[512], vec![7; 420])
        .tensor("four", 12, &[256], vec![9; 144]);
    vec![tiny_llama(3).build(), with_words.build(), odd.build()]
}

#[test]
fn mutations_end_with_a_value_or_an_error() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seed = number("KVARTO_FUZZ_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        now.as_nanos() as u64
    });
    let length = Duration::from_secs(number("KVARTO_FUZZ_SECONDS").unwrap_or(20));
    // First of all, so that it stands above a panic's message.
    println!("KVARTO_FUZZ_SEED={seed}");
    let seeds = seeds();
    assert!(seeds.iter().all(|file| gguf_body::read(file)), "the seeds themselves are well-formed");
    let (start, mut random, mut files, mut opened) = (Instant::now(), Random(seed), 0u64, 0u64);
    while start.elapsed() < length {
        let mut file = seeds[random.below(seeds.len())].clone();
        mutate(&mut random, &mut file);
        LARGEST.store(0, Ordering::Relaxed);
        opened += u64::from(gguf_body::read(&file));
        files += 1;
        let largest = LARGEST.load(Ordering::Relaxed);
        assert!(largest < 32 << 20, "seed {seed}, file {files}: {largest} bytes asked for at once, for {}", file.len());
    }
    println!("{files} files, {opened} of them opened");
    assert!(opened > 0 && opened < files, "mutations neither all hit nor all missed: {opened} of {files}");
}
