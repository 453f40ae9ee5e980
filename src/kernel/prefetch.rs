//! Asks memory for what is read next. A core's own guess follows lines that lie one after another, and pages lie anywhere.

/// Words of a cache line.
const LINE_WORDS: usize = 16;

/// Asks for line `line` of `words`; nothing where there is none.
#[inline(always)]
#[allow(unsafe_code)]
pub(super) fn line(words: &[u32], line: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(word) = words.get(line * LINE_WORDS) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint reads nothing and cannot fault, whatever the address; this one is of a word that is there.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (words, line);
}

/// Asks for all of `words`.
pub(super) fn all(words: &[u32]) {
    (0..words.len().div_ceil(LINE_WORDS)).for_each(|at| line(words, at));
}
