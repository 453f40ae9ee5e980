use super::*;

fn options(temperature: f32) -> SamplerOptions {
    SamplerOptions { temperature, top_k: 0, top_p: 1.0, min_p: 0.0, seed: Some(7), ..SamplerOptions::default() }
}

/// How often each token is drawn in `draws` draws.
fn histogram(options: SamplerOptions, logits: &[f32], draws: usize) -> Vec<usize> {
    let mut sampler = Sampler::new(options).unwrap();
    let mut counts = vec![0; logits.len()];
    for _ in 0..draws {
        counts[sampler.sample(&mut logits.to_vec(), &[]).unwrap() as usize] += 1;
    }
    counts
}

#[track_caller]
fn near(counts: &[usize], expected: &[f64]) {
    let draws: usize = counts.iter().sum();
    for (id, (&count, &p)) in counts.iter().zip(expected).enumerate() {
        let (share, sigma) = (count as f64 / draws as f64, (p * (1.0 - p) / draws as f64).sqrt());
        assert!((share - p).abs() <= 4.0 * sigma + 1e-12, "token {id}: {share} drawn, {p} expected");
    }
}

#[test]
fn draws_follow_the_softmax_at_the_temperature() {
    let logits = [0.0, 1.0, 2.0, -1.0, f32::NEG_INFINITY];
    for temperature in [0.5, 1.0, 2.0] {
        let weights: Vec<f64> = logits.iter().map(|&l| (f64::from(l) / f64::from(temperature)).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let expected: Vec<f64> = weights.iter().map(|w| w / sum).collect();
        near(&histogram(options(temperature), &logits, 40_000), &expected);
    }
}

#[test]
fn filters_keep_what_they_should() {
    // Probabilities 0.5, 0.25, 0.15, 0.1, out of order.
    let logits = [0.15f32.ln(), 0.5f32.ln(), 0.1f32.ln(), 0.25f32.ln()];
    let kept = |options: SamplerOptions| -> Vec<usize> {
        let counts = histogram(options, &logits, 4000);
        (0..4).filter(|&id| counts[id] > 0).collect()
    };
    let base = options(1.0);
    assert_eq!(kept(SamplerOptions { top_k: 2, ..base.clone() }), [1, 3]);
    assert_eq!(kept(SamplerOptions { top_k: 99, ..base.clone() }), [0, 1, 2, 3]);
    assert_eq!(kept(SamplerOptions { top_p: 0.7, ..base.clone() }), [1, 3]);
    assert_eq!(kept(SamplerOptions { top_p: 0.8, ..base.clone() }), [0, 1, 3]);
    assert_eq!(kept(SamplerOptions { top_p: 0.0, ..base.clone() }), [1]);
    assert_eq!(kept(SamplerOptions { min_p: 0.4, ..base.clone() }), [1, 3]);
    assert_eq!(kept(SamplerOptions { min_p: 1.0, ..base.clone() }), [1]);
    // Filters see probabilities before the temperature: a hot draw keeps the same tokens.
    assert_eq!(kept(SamplerOptions { temperature: 5.0, min_p: 0.4, ..base.clone() }), [1, 3]);
    near(&histogram(SamplerOptions { top_k: 2, ..base }, &logits, 40_000), &[0.0, 2.0 / 3.0, 0.0, 1.0 / 3.0]);
}

#[test]
fn temperature_zero_takes_the_first_of_the_likeliest() {
    let mut sampler = Sampler::new(options(0.0)).unwrap();
    assert_eq!(sampler.sample(&mut [1.0, 3.0, 3.0, 2.0], &[]).unwrap(), 1);
    assert_eq!(sampler.sample(&mut [f32::NEG_INFINITY, -9.0], &[]).unwrap(), 1);
    assert_eq!(sampler.sample(&mut [-0.0, 0.0], &[]).unwrap(), 0);
}

#[test]
fn the_penalty_counts_recent_tokens_once() {
    let strong = SamplerOptions { repeat_penalty: 2.0, repeat_last_n: 3, ..options(0.0) };
    let mut sampler = Sampler::new(strong.clone()).unwrap();
    let mut logits = [4.0, 3.0, -1.0, 0.0];
    assert_eq!(sampler.sample(&mut logits, &[1, 0, 0, 2]).unwrap(), 1);
    assert_eq!(logits, [2.0, 3.0, -2.0, 0.0]);
    let mut logits = [4.0, 3.0];
    assert_eq!(sampler.sample(&mut logits, &[5]).unwrap_err().kind(), ErrorKind::Shape);
    let mut off = Sampler::new(SamplerOptions { repeat_last_n: 0, ..strong }).unwrap();
    assert_eq!(off.sample(&mut [4.0, 3.0], &[0]).unwrap(), 0);
}

#[test]
fn one_seed_one_sequence() {
    let logits: Vec<f32> = (0..1000).map(|i| (i * 7919 % 1000) as f32 / 300.0).collect();
    let run = |seed: u64| -> Vec<u32> {
        let mut sampler = Sampler::new(SamplerOptions { seed: Some(seed), ..SamplerOptions::default() }).unwrap();
        (0..50).map(|_| sampler.sample(&mut logits.clone(), &[]).unwrap()).collect()
    };
    assert_eq!(run(1), run(1));
    // From a separate implementation in Python: every platform must give these.
    assert_eq!(run(1)[..6], [741, 988, 877, 457, 457, 309]);
    assert_ne!(run(1), run(2));
    let free = Sampler::new(SamplerOptions { seed: None, ..SamplerOptions::default() }).unwrap();
    assert_eq!(Sampler::new(SamplerOptions { seed: Some(free.seed()), ..options(1.0) }).unwrap().seed(), free.seed());
}

#[test]
fn logits_that_are_no_numbers_are_device_errors() {
    for temperature in [0.0, 1.0] {
        let mut sampler = Sampler::new(options(temperature)).unwrap();
        for bad in [f32::NAN, f32::INFINITY] {
            let error = sampler.sample(&mut [0.0, bad], &[]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Device);
            assert!(error.message().contains("token 1"), "{error}");
        }
        assert_eq!(sampler.sample(&mut [f32::NEG_INFINITY; 2], &[]).unwrap_err().kind(), ErrorKind::Device);
        assert_eq!(sampler.sample(&mut [], &[]).unwrap_err().kind(), ErrorKind::Shape);
        // The widest spread there is still leaves one token.
        assert_eq!(sampler.sample(&mut [f32::MIN, f32::MAX], &[]).unwrap(), 1);
    }
}

#[test]
fn wrong_options_name_their_flag() {
    let base = SamplerOptions::default();
    for (flag, wrong) in [
        ("--temperature", SamplerOptions { temperature: f32::NAN, ..base.clone() }),
        ("--temperature", SamplerOptions { temperature: -1.0, ..base.clone() }),
        ("--top-p", SamplerOptions { top_p: 1.5, ..base.clone() }),
        ("--top-p", SamplerOptions { top_p: f32::NAN, ..base.clone() }),
        ("--min-p", SamplerOptions { min_p: -0.1, ..base.clone() }),
        ("--repeat-penalty", SamplerOptions { repeat_penalty: 0.0, ..base.clone() }),
        ("--repeat-penalty", SamplerOptions { repeat_penalty: f32::INFINITY, ..base.clone() }),
    ] {
        let error = Sampler::new(wrong).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.message().contains(flag), "{error}");
    }
}
