use proptest::prelude::*;

use super::*;
use crate::num::testing::Normal;

fn attention(q: &[f32], bias: f32, keys: &[Vec<f32>], values: &[Vec<f32>]) -> (Vec<f32>, Vec<f32>) {
    let scores: Vec<f32> = keys.iter().map(|k| q.iter().zip(k).map(|(a, b)| a * b).sum::<f32>() + bias).collect();
    let most = scores.iter().copied().fold(f32::MIN, f32::max);
    let weights: Vec<f32> = scores.iter().map(|s| (s - most).exp()).collect();
    let total: f32 = weights.iter().sum();
    let output =
        (0..values[0].len()).map(|c| weights.iter().zip(values).map(|(w, v)| w * v[c]).sum::<f32>() / total).collect();
    (scores, output)
}

proptest! {
    /// Scores and outputs are what they are without a basis, whatever the head size and the mean.
    #[test]
    fn attention_is_unchanged(seed in any::<u64>(), eighths in 1usize..=32, tokens in 1usize..20, with_mean: bool) {
        let dim = 8 * eighths;
        let mut normal = Normal::new(seed);
        let q: Vec<f32> = normal.row(dim).iter().map(|x| x / (dim as f32).sqrt()).collect();
        let keys: Vec<_> = (0..tokens).map(|_| normal.row(dim)).collect();
        let values: Vec<_> = (0..tokens).map(|_| normal.row(dim)).collect();
        let means = [normal.row(dim), normal.row(dim)];
        let [k_mean, v_mean] = [0, 1].map(|i: usize| with_mean.then_some(means[i].as_slice()));
        let (scores, output) = attention(&q, 0.0, &keys, &values);
        for basis in BasisRegistry::builtin().iter() {
            let stored = |rows: &[Vec<f32>], mean: Option<&[f32]>| -> Vec<Vec<f32>> {
                rows.iter().map(|row| {
                    let mut row = row.clone();
                    basis.forward(mean, &mut row);
                    row
                }).collect()
            };
            let mut turned = q.clone();
            let bias = basis.query(k_mean, &mut turned);
            let (got, mut out) = attention(&turned, bias, &stored(&keys, k_mean), &stored(&values, v_mean));
            basis.inverse(v_mean, &mut out);
            for (a, b) in got.iter().zip(&scores).chain(out.iter().zip(&output)) {
                prop_assert!((a - b).abs() < 2e-5, "{}: {a} {b}", basis.name());
            }
        }
    }
}

#[test]
fn bases_by_name() {
    let registry = BasisRegistry::builtin();
    let names: Vec<_> = registry.iter().map(|b| b.name().to_owned()).collect();
    assert_eq!(names, ["none", "hadamard", "mean"]);
    let flags = |name: &str| registry.by_name(name).map(|b| (b.rotates(), b.removes_mean())).ok();
    assert_eq!(
        [flags("none"), flags("hadamard"), flags("mean")],
        [Some((false, false)), Some((true, false)), Some((true, true))]
    );
    let Err(error) = registry.by_name("hadamar") else { panic!("there is no such basis") };
    assert_eq!(
        error.to_string(),
        "no basis is named `hadamar` (did you mean `hadamard`? There are none, hadamard, mean)"
    );
    assert!(registry.with(Arc::new(NoBasis)).is_err());
}
