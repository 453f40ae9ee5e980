//! The bodies of the fuzz targets (`fuzz/`) but that for whole files (`gguf_fuzz.rs`), on random words and bytes: what one
//! test run affords, with a seed of its own each time. `KVARTO_FUZZ_SEED=N` repeats a run.
#![cfg(feature = "model")]

#[path = "support/fuzz_bodies.rs"]
mod fuzz_bodies;
#[path = "support/gguf_writer.rs"]
mod gguf_writer;

use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;

/// SplitMix64.
struct Random(u64);

impl Random {
    /// A generator whose seed is told, above any panic's message.
    fn told() -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let given = std::env::var("KVARTO_FUZZ_SEED").ok().and_then(|v| v.parse().ok());
        let seed = given.unwrap_or(now.as_nanos() as u64);
        println!("KVARTO_FUZZ_SEED={seed}");
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// Up to `most` of the words, with a byte of any value between them now and then.
    fn sentence(&mut self, words: &[&str], most: usize) -> Vec<u8> {
        let mut text = Vec::new();
        for _ in 0..self.below(most + 1) {
            match self.below(12) {
                0 => text.push(self.next() as u8),
                _ => text.extend(words[self.below(words.len())].bytes()),
            }
        }
        text
    }
}

#[test]
fn texts_come_back_from_the_tokenizer() {
    let gguf = Gguf::parse(gguf_writer::tiny_llama(3).build()).expect("well-formed");
    let (tokenizer, mut random) = (Tokenizer::from_gguf(&gguf).expect("a tokenizer"), Random::told());
    let words =
        ["a", "b", "ab", " ", "\n\n", "<|im_start|>", "<|im_end|", ">", "<tool>", "é", "日", "🙂", "\u{301}", "7"];
    for _ in 0..20_000 {
        fuzz_bodies::tokenizer(&tokenizer, &random.sentence(&words, 40));
    }
}

#[test]
fn templates_end_with_a_text_or_an_error() {
    let mut random = Random::told();
    let words = [
        "{{ ",
        " }}",
        "{% ",
        " %}",
        "for m in messages",
        "endfor",
        "if ",
        "endif",
        "m.content",
        "set x = ",
        "x",
        "[",
        "]",
        "(",
        ")",
        "range(9)",
        " | ",
        "tojson",
        "+",
        "~",
        "'a'",
        "1",
        ".upper()",
        "macro f(x)",
        "endmacro",
        "f(f)",
        "{#",
        "#}",
        "\0",
        "raise_exception('no')",
        "strftime_now('%d')",
        "loop.index",
        "break",
        "content",
        "bos_token",
    ];
    let rendered = (0..30_000).filter(|_| fuzz_bodies::template(&random.sentence(&words, 20))).count();
    println!("{rendered} of 30000 rendered");
    assert!(rendered > 0 && rendered < 30_000, "{rendered}");
}

#[test]
fn kv_words_are_formats_or_refused() {
    let mut random = Random::told();
    let words = ["k", "v", "=", ",", "f16", "fp8", "tq3", "q8_0", " ", "k=fp8,v=tq3", "K", "mix:"];
    let read = (0..50_000).filter(|_| fuzz_bodies::kv(&random.sentence(&words, 6))).count();
    assert!(read > 0 && read < 50_000, "{read}");
}

#[test]
fn page_tables_hold_what_they_say() {
    let mut random = Random::told();
    let mut refused = 0;
    for _ in 0..1000 {
        let calls: Vec<u8> = (0..240).map(|_| random.next() as u8).collect();
        refused += fuzz_bodies::page_table(&calls);
    }
    println!("{refused} calls were refused");
    assert!(refused > 1000, "{refused}");
}
