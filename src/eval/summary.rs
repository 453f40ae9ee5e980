//! Records summed up: one line a profile and context, as JSON and as a Markdown table.

use super::record::Record;
use super::statistics::{bootstrap, mean, quantile};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Buckets of positions.
const BUCKETS: usize = 4;

/// Scores of one stretch of positions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bucket {
    /// First position of the tokens predicted.
    pub from: usize,
    /// One past the last.
    pub to: usize,
    /// Mean KL to dense, nats.
    pub kl_mean: Option<f64>,
    /// Its 99th percentile.
    pub kl_p99: Option<f64>,
    /// Share of tokens whose likeliest is dense's.
    pub top1: Option<f64>,
    /// Mean share of dense's five likeliest that are among the profile's five.
    pub top5: Option<f64>,
}

/// A profile at a context, over some windows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The profile's label.
    pub label: String,
    /// The text, or `mean` of several: the mean of the texts' means.
    pub text: String,
    /// Tokens of a window.
    pub window_tokens: usize,
    /// Windows.
    pub windows: usize,
    /// Tokens scored in all.
    pub tokens: usize,
    /// exp of the mean negative log-likelihood.
    pub ppl: Option<f64>,
    /// Dense's on the same tokens.
    pub ppl_dense: Option<f64>,
    /// Mean difference of paired negative log-likelihoods, nats a token.
    pub nll_difference: Option<f64>,
    /// Its 95 % bootstrap interval over windows.
    pub nll_interval: Option<[f64; 2]>,
    /// Mean KL to dense, nats.
    pub kl_mean: Option<f64>,
    /// Its 95 % bootstrap interval over windows.
    pub kl_interval: Option<[f64; 2]>,
    /// Its 99th percentile over tokens.
    pub kl_p99: Option<f64>,
    /// Share of tokens whose likeliest is dense's.
    pub top1: Option<f64>,
    /// Mean share of dense's five likeliest that are among the profile's five.
    pub top5: Option<f64>,
    /// Bits of slots in use a cached value.
    pub resident_bits_per_value: Option<f64>,
    /// Bits of slots in use a value of all tokens so far, evicted ones too.
    pub resident_bits_per_seen_value: Option<f64>,
    /// Bits read a cached value and decoding step.
    pub read_bits_per_value: Option<f64>,
    /// Bits read a value of all tokens so far and decoding step.
    pub read_bits_per_seen_value: Option<f64>,
    /// Bits of descriptors, tables, side planes and means.
    pub metadata_bits_per_value: Option<f64>,
    /// Tokens a second of steps with one row a window.
    pub decode_tokens_per_s: Option<f64>,
    /// By position, equal stretches of the scored tokens.
    pub buckets: Vec<Bucket>,
}

impl Summary {
    /// Sums up records: for each label and window length (in the order in which they first come) each text, and the mean of
    /// texts where there are several.
    pub fn of(records: &[Record]) -> Vec<Summary> {
        let mut order: Vec<(usize, &str)> = Vec::new();
        let mut groups: BTreeMap<(usize, &str), Vec<&Record>> = BTreeMap::new();
        for record in records {
            let key = (record.window.tokens, record.subject.label.as_str());
            if !groups.contains_key(&key) {
                order.push(key);
            }
            groups.entry(key).or_default().push(record);
        }
        order.sort_by_key(|&(tokens, _)| tokens);
        let mut summaries = Vec::new();
        for key in order {
            let group = &groups[&key];
            let texts: BTreeSet<(&str, &str)> =
                group.iter().map(|r| (r.window.text.as_str(), r.window.text_sha256.as_str())).collect();
            let each: Vec<Summary> = texts
                .iter()
                .map(|&(name, hash)| {
                    let own: Vec<&Record> = group.iter().copied().filter(|r| r.window.text_sha256 == hash).collect();
                    one(name, &own)
                })
                .collect();
            if each.len() > 1 {
                summaries.push(over_texts(&each, group));
            }
            summaries.extend(each);
        }
        summaries
    }

    /// Whether it stands for all texts of its profile and context.
    pub fn overall(&self, all: &[Summary]) -> bool {
        let others = all.iter().filter(|s| s.label == self.label && s.window_tokens == self.window_tokens);
        others.count() == 1 || self.text == MEAN
    }
}

/// The word for the mean over texts.
const MEAN: &str = "mean";

fn one(text: &str, records: &[&Record]) -> Summary {
    let all = |list: fn(&Record) -> &Vec<f64>| -> Vec<f64> { records.iter().flat_map(|r| list(r)).copied().collect() };
    let by_window =
        |value: &dyn Fn(&Record) -> Option<f64>| -> Vec<f64> { records.iter().filter_map(|r| value(r)).collect() };
    let figure = |value: &dyn Fn(&Record) -> Option<f64>| mean(&by_window(value));
    let (kl, nll, dense) = (all(|r| &r.tokens.kl), all(|r| &r.tokens.nll), all(|r| &r.tokens.nll_dense));
    let differences = by_window(&|r| {
        let pairs: Vec<f64> = r.tokens.nll.iter().zip(&r.tokens.nll_dense).map(|(a, b)| a - b).collect();
        mean(&pairs)
    });
    Summary {
        label: records.first().map_or_else(String::new, |r| r.subject.label.clone()),
        text: text.into(),
        window_tokens: records.first().map_or(0, |r| r.window.tokens),
        windows: records.len(),
        tokens: kl.len(),
        ppl: mean(&nll).map(f64::exp),
        ppl_dense: mean(&dense).map(f64::exp),
        nll_difference: mean(&differences),
        nll_interval: bootstrap(&differences),
        kl_mean: mean(&kl),
        kl_interval: bootstrap(&by_window(&|r| mean(&r.tokens.kl))),
        kl_p99: quantile(&kl, 0.99),
        top1: share(records, |r| &r.tokens.top1, 1.0),
        top5: share(records, |r| &r.tokens.top5, 5.0),
        resident_bits_per_value: figure(&|r| r.cache.resident_bits_per_value),
        resident_bits_per_seen_value: figure(&|r| r.cache.resident_bits_per_seen_value),
        read_bits_per_value: figure(&|r| r.cache.read_bits_per_value),
        read_bits_per_seen_value: figure(&|r| r.cache.read_bits_per_seen_value),
        metadata_bits_per_value: figure(&|r| r.cache.metadata_bits_per_value),
        decode_tokens_per_s: figure(&|r| r.decode_tokens_per_s),
        buckets: buckets(records),
    }
}

fn share(records: &[&Record], list: fn(&Record) -> &Vec<u8>, whole: f64) -> Option<f64> {
    let values: Vec<f64> = records.iter().flat_map(|r| list(r)).map(|&x| f64::from(x) / whole).collect();
    mean(&values)
}

/// Texts count alike, whatever their windows; quantiles and buckets are those of all tokens.
fn over_texts(each: &[Summary], records: &[&Record]) -> Summary {
    let of = |value: fn(&Summary) -> Option<f64>| -> Option<f64> {
        let values: Vec<f64> = each.iter().filter_map(value).collect();
        mean(&values)
    };
    let pooled = one(MEAN, records);
    Summary {
        // A mean of logarithms: texts of high perplexity count no more than others.
        ppl: of(|s| s.ppl.map(f64::ln)).map(f64::exp),
        ppl_dense: of(|s| s.ppl_dense.map(f64::ln)).map(f64::exp),
        nll_difference: of(|s| s.nll_difference),
        kl_mean: of(|s| s.kl_mean),
        top1: of(|s| s.top1),
        top5: of(|s| s.top5),
        ..pooled
    }
}

fn buckets(records: &[&Record]) -> Vec<Bucket> {
    let Some(window) = records.first().map(|r| &r.window) else { return Vec::new() };
    let first = window.tokens - window.scored;
    let count = BUCKETS.min(window.scored);
    (0..count)
        .map(|at| {
            let range = window.scored * at / count..window.scored * (at + 1) / count;
            let kl: Vec<f64> =
                records.iter().flat_map(|r| r.tokens.kl.get(range.clone()).unwrap_or_default()).copied().collect();
            let cut = |list: fn(&Record) -> &Vec<u8>, whole: f64| {
                let values: Vec<f64> = records
                    .iter()
                    .flat_map(|r| list(r).get(range.clone()).unwrap_or_default())
                    .map(|&x| f64::from(x) / whole)
                    .collect();
                mean(&values)
            };
            Bucket {
                from: first + range.start,
                to: first + range.end,
                kl_mean: mean(&kl),
                kl_p99: quantile(&kl, 0.99),
                top1: cut(|r| &r.tokens.top1, 1.0),
                top5: cut(|r| &r.tokens.top5, 5.0),
            }
        })
        .collect()
}

/// The whole of a run: summaries, what was judged where, and every profile's text.
pub fn json(records: &[Record], command: &[String]) -> Value {
    let first = records.first();
    let subject = first.map(|r| &r.subject);
    let profiles: BTreeMap<&str, &str> =
        records.iter().map(|r| (r.subject.label.as_str(), r.subject.profile.as_str())).collect();
    let mut windows: Vec<Value> = Vec::new();
    for record in records {
        let window = serde_json::to_value(&record.window).unwrap_or_default();
        if !windows.contains(&window) {
            windows.push(window);
        }
    }
    let backends: BTreeSet<(&str, &str, &str)> = records
        .iter()
        .map(|r| (r.subject.backend.as_str(), r.subject.adapter.as_str(), r.subject.tier.as_str()))
        .collect();
    let modes: BTreeSet<&str> = records.iter().map(|r| r.mode.as_str()).collect();
    let versions: BTreeSet<&str> = records.iter().map(|r| r.subject.version.as_str()).collect();
    json!({
        "schema": super::record::SCHEMA,
        "versions": versions,
        "command": command,
        "model": subject.map(|s| json!({"name": s.model, "sha256": s.model_sha256, "architecture": s.architecture})),
        "backends": backends.iter().map(|(api, adapter, tier)| json!({"backend": api, "adapter": adapter, "tier": tier})).collect::<Vec<_>>(),
        "modes": modes,
        "replay": "every profile's prefill is the dense cache's rows, rounded to f16",
        "policy_moves": "unbounded",
        "windows": windows,
        "profiles": profiles,
        "summaries": Summary::of(records),
    })
}

/// Summaries as a table; figures that are missing are `-`.
pub fn markdown(summaries: &[Summary]) -> String {
    let mut out = String::from(
        "| profile | text | window | tokens | resident | of all tokens | read | metadata | ppl vs dense, % | mean KL, nat | 95 % of windows \
         | KL p99 | top-1 | top-5 | decode tok/s |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let show = |value: Option<f64>, digits: usize| value.map_or("-".into(), |v| format!("{v:.digits$}"));
    let small = |value: Option<f64>| value.map_or("-".into(), small);
    for s in summaries {
        let percent = s.nll_difference.map(|d| (d.exp() - 1.0) * 100.0);
        let interval =
            s.kl_interval.map_or("-".into(), |[low, high]| format!("{} to {}", self::small(low), self::small(high)));
        let cells = [
            s.label.replace('|', "\\|"),
            s.text.replace('|', "\\|"),
            s.window_tokens.to_string(),
            s.tokens.to_string(),
            show(s.resident_bits_per_value, 2),
            show(s.resident_bits_per_seen_value, 2),
            show(s.read_bits_per_value, 2),
            show(s.metadata_bits_per_value, 3),
            percent.map_or("-".into(), |p| format!("{p:+.2}")),
            small(s.kl_mean),
            interval,
            small(s.kl_p99),
            show(s.top1, 3),
            show(s.top5, 3),
            show(s.decode_tokens_per_s, 1),
        ];
        out += &format!("| {} |\n", cells.join(" | "));
    }
    out += "\nBeside a dense cache that was fed in steps of its own: what `dense` differs by is rounding alone.\n";
    out
}

/// Two figures or so, without an exponent down to a millionth.
fn small(value: f64) -> String {
    match value.abs() {
        v if v >= 0.1 => format!("{value:.3}"),
        v if v >= 0.001 => format!("{value:.5}"),
        0.0 => "0".into(),
        v if v >= 1e-6 => format!("{value:.7}"),
        _ => format!("{value:.1e}"),
    }
}
