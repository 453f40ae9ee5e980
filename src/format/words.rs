//! Words: remedies for one that names nothing, and numbers as text.

/// "did you mean `fp8`? There are f32, f16": the nearest of `names`, if near, and all of them.
pub(crate) fn suggest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.collect();
    let lower = word.to_lowercase();
    let nearest = names.iter().map(|n| (distance(&lower, &n.to_lowercase()), n)).min();
    let all = names.join(", ");
    match nearest {
        Some((d, name)) if d <= 1.max(name.len() / 2) => format!("did you mean `{name}`? There are {all}"),
        _ => format!("there are {all}"),
    }
}

/// A float so that it reads back bit for bit and looks like one, in shaders too.
pub(crate) fn float(x: f32) -> String {
    format!("{x:?}")
}

/// Insertions, deletions and substitutions between two words (Levenshtein, 1966).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggests_the_nearest() {
        let names = ["f32", "f16", "bf16", "fp8", "tq3"];
        assert_eq!(suggest("tq4", names.into_iter()), "did you mean `tq3`? There are f32, f16, bf16, fp8, tq3");
        assert!(suggest("FP-8", names.into_iter()).starts_with("did you mean `fp8`?"));
        assert!(suggest("hadamard", names.into_iter()).starts_with("there are"));
    }
}
