//! Names that a mistyped one may have meant.

/// Up to three of `known`, the fewest edits from `name` first.
pub(super) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut known: Vec<_> = known.map(|candidate| (edits(name, candidate), candidate)).collect();
    known.sort();
    known.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

/// Levenshtein's distance: single characters put in, taken out or changed.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    // A name longer than this is no mistyping of any of ours.
    for (i, a) in from.chars().take(100).enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_comes_first() {
        assert_eq!((edits("kitten", "sitting"), edits("", "abc"), edits("abc", "")), (3, 3, 3));
        assert_eq!(nearest("smolm2", ["gemma", "smollm2", "llama", "qwen"].into_iter())[0], "smollm2");
    }
}
