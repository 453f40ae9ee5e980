//! What two sets of logits of one token say about each other, in f64.

/// Ranks that top-5 agreement looks at.
const FEW: usize = 5;

/// One token scored: a candidate's logits beside the reference's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowScore {
    /// Negative log-likelihood of the token that follows, nats, by the candidate.
    pub nll: f64,
    /// The same by the reference.
    pub nll_reference: f64,
    /// Kullback-Leibler divergence of the candidate from the reference, nats: Σ p (ln p − ln q), p the reference's.
    pub kl: f64,
    /// Whether both find the same token likeliest.
    pub top1: bool,
    /// How many of the reference's five likeliest tokens are among the candidate's five.
    pub top5: u8,
}

/// Compares the logits of one position; `target` is the token that follows it.
///
/// Both have one number for each token of the vocabulary, none of them NaN. The divergence is rounded up to 0: sums in f64
/// may end a hair below.
pub fn score_row(reference: &[f32], candidate: &[f32], target: u32) -> RowScore {
    let (p, q) = (log_sum(reference), log_sum(candidate));
    let shift = q - p;
    let mut kl = 0.0;
    for (&x, &y) in reference.iter().zip(candidate) {
        let (x, y) = (f64::from(x), f64::from(y));
        let weight = (x - p).exp();
        // A token that the reference excludes weighs nothing, whatever the candidate says.
        if weight > 0.0 {
            kl += weight * (x - y + shift);
        }
    }
    let (few_p, few_q) = (likeliest(reference), likeliest(candidate));
    let at = target as usize;
    let logit = |row: &[f32]| row.get(at).map_or(f64::NAN, |&x| f64::from(x));
    RowScore {
        nll: q - logit(candidate),
        nll_reference: p - logit(reference),
        kl: if kl < 0.0 { 0.0 } else { kl },
        top1: few_p.first() == few_q.first(),
        top5: few_p.iter().filter(|id| few_q.contains(id)).count() as u8,
    }
}

/// ln Σ exp.
pub fn log_sum(logits: &[f32]) -> f64 {
    let most = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    most + logits.iter().map(|&x| (f64::from(x) - most).exp()).sum::<f64>().ln()
}

/// The few likeliest tokens, the likeliest first; of equals the one that comes first.
fn likeliest(logits: &[f32]) -> Vec<usize> {
    let mut best: Vec<usize> = Vec::with_capacity(FEW + 1);
    for (at, &x) in logits.iter().enumerate() {
        if best.len() == FEW && best.last().is_some_and(|&last| x <= logits[last]) {
            continue;
        }
        let place = best.partition_point(|&other| logits[other] >= x);
        best.insert(place, at);
        best.truncate(FEW);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_against_itself_costs_nothing() {
        let row: Vec<f32> = (0..100).map(|i| (i * 37 % 100) as f32 / 9.0).collect();
        let score = score_row(&row, &row, 3);
        assert_eq!((score.kl, score.top1, score.top5), (0.0, true, 5));
        assert_eq!(score.nll, score.nll_reference);
        let direct = -(f64::from(row[3]).exp() / row.iter().map(|&x| f64::from(x).exp()).sum::<f64>()).ln();
        assert!((score.nll - direct).abs() < 1e-12, "{} for {direct}", score.nll);
    }

    #[test]
    fn divergence_and_agreement_are_those_of_their_definitions() {
        // p = (1/2, 1/4, 1/4), q = (1/4, 1/2, 1/4): KL = (1/2) ln 2 − (1/4) ln 2.
        let p = [0.5f32.ln(), 0.25f32.ln(), 0.25f32.ln()];
        let q = [0.25f32.ln() + 7.0, 0.5f32.ln() + 7.0, 0.25f32.ln() + 7.0];
        let score = score_row(&p, &q, 0);
        assert!((score.kl - 0.25 * 2f64.ln()).abs() < 1e-6, "{}", score.kl);
        assert!((score.nll - 4f64.ln()).abs() < 1e-6 && (score.nll_reference - 2f64.ln()).abs() < 1e-6);
        assert!(!score.top1);
        assert_eq!(score.top5, 3);
        // What neither allows counts for nothing; what only the candidate forbids costs everything.
        let cut = [0.0, f32::NEG_INFINITY, f32::NEG_INFINITY];
        assert_eq!(score_row(&cut, &cut, 0).kl, 0.0);
        assert_eq!(score_row(&[0.0, 0.0, 0.0], &cut, 0).kl, f64::INFINITY);
    }

    #[test]
    fn the_likeliest_are_found_in_order() {
        let row: Vec<f32> = (0..1000).map(|i| ((i * 7919) % 1000) as f32).collect();
        let best = likeliest(&row);
        let values: Vec<f32> = best.iter().map(|&i| row[i]).collect();
        assert_eq!(values, [999.0, 998.0, 997.0, 996.0, 995.0]);
        assert_eq!(likeliest(&[1.0, 1.0, 2.0]), [2, 0, 1]);
    }
}
