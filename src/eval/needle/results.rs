//! What profiles found beside dense: paired accuracies, grids, and the cases that were lost.

use super::super::plot::HeatMap;
use super::super::statistics::{mean, standard_error};
use super::ask::Outcome;
use super::tasks::Task;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json as value};
use std::collections::BTreeMap;

/// A profile's outcome of one case, beside dense's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The profile's label.
    pub label: String,
    /// The task.
    pub task: Task,
    /// Tokens of the case.
    pub length: usize,
    /// Percent of the context before the asked-for.
    pub depth: usize,
    /// The case's number.
    pub index: usize,
    /// Dense's outcome.
    pub dense: Outcome,
    /// The profile's.
    pub own: Outcome,
    /// Bits of slots in use a cached value, all cases of the batch.
    pub resident_bits_per_value: Option<f64>,
}

/// A profile on a task, or on all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskSummary {
    /// The profile's label.
    pub label: String,
    /// The task, or `all`.
    pub task: String,
    /// Cases.
    pub cases: usize,
    /// Mean score.
    pub accuracy: Option<f64>,
    /// Dense's on the same cases.
    pub dense: Option<f64>,
    /// Mean of the paired differences.
    pub difference: Option<f64>,
    /// Its standard error.
    pub standard_error: Option<f64>,
    /// Cases that scored below dense.
    pub lost: usize,
    /// Cases that scored above.
    pub won: usize,
    /// Bits of slots in use a cached value, mean over cases.
    pub resident_bits_per_value: Option<f64>,
}

/// Summaries by profile in the order in which they first come: all tasks together, then each.
pub fn verdicts(all: &[Verdict]) -> Vec<TaskSummary> {
    let mut summaries = Vec::new();
    for label in labels(all) {
        let own: Vec<&Verdict> = all.iter().filter(|v| v.label == label).collect();
        summaries.push(one(label, "all", &own));
        for task in Task::ALL {
            let of_task: Vec<&Verdict> = own.iter().copied().filter(|v| v.task == task).collect();
            if !of_task.is_empty() {
                summaries.push(one(label, task.as_str(), &of_task));
            }
        }
    }
    summaries
}

fn labels(all: &[Verdict]) -> Vec<&str> {
    let mut labels: Vec<&str> = Vec::new();
    for verdict in all {
        if !labels.contains(&verdict.label.as_str()) {
            labels.push(&verdict.label);
        }
    }
    labels
}

fn one(label: &str, task: &str, verdicts: &[&Verdict]) -> TaskSummary {
    let of = |value: fn(&Verdict) -> f64| -> Vec<f64> { verdicts.iter().map(|v| value(v)).collect() };
    let differences = of(|v| v.own.score - v.dense.score);
    let bits: Vec<f64> = verdicts.iter().filter_map(|v| v.resident_bits_per_value).collect();
    TaskSummary {
        label: label.into(),
        task: task.into(),
        cases: verdicts.len(),
        accuracy: mean(&of(|v| v.own.score)),
        dense: mean(&of(|v| v.dense.score)),
        difference: mean(&differences),
        standard_error: standard_error(&differences),
        lost: differences.iter().filter(|&&d| d < 0.0).count(),
        won: differences.iter().filter(|&&d| d > 0.0).count(),
        resident_bits_per_value: mean(&bits),
    }
}

/// The cases that scored below dense, as lines.
pub fn lost(all: &[Verdict]) -> Vec<String> {
    let below = all.iter().filter(|v| v.own.score < v.dense.score);
    let line = |v: &Verdict| {
        format!(
            "{}: {} of {} tokens at {} %, case {}: wanted {:?}, said {:?}, dense {:?}",
            v.label,
            v.task.as_str(),
            v.length,
            v.depth,
            v.index,
            v.own.wanted,
            v.own.answers,
            v.dense.answers
        )
    };
    below.map(line).collect()
}

/// Accuracy by depth and length, a map a profile, dense's own first.
pub fn grid(all: &[Verdict]) -> Vec<HeatMap> {
    let mut lengths: Vec<usize> = all.iter().map(|v| v.length).collect();
    let mut depths: Vec<usize> = all.iter().map(|v| v.depth).collect();
    for list in [&mut lengths, &mut depths] {
        list.sort_unstable();
        list.dedup();
    }
    let labels = labels(all);
    let map = |title: String, chosen: &dyn Fn(&Verdict) -> Option<f64>| {
        let mut cells: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
        for verdict in all {
            // Depth says nothing of lists of words.
            if let Some(score) = chosen(verdict).filter(|_| verdict.task != Task::FrequentWords) {
                cells.entry((verdict.depth, verdict.length)).or_default().push(score);
            }
        }
        HeatMap {
            title,
            columns: lengths.iter().map(|n| n.to_string()).collect(),
            rows: depths.iter().map(|n| format!("depth {n} %")).collect(),
            cells: depths
                .iter()
                .map(|&d| lengths.iter().map(|&l| cells.get(&(d, l)).and_then(|scores| mean(scores))).collect())
                .collect(),
        }
    };
    let first = labels.first().copied().unwrap_or_default();
    let mut maps = vec![map("dense".into(), &|v| (v.label == first).then_some(v.dense.score))];
    for label in labels {
        let short: String = label.chars().take(26).collect();
        maps.push(map(short, &|v| (v.label == label).then_some(v.own.score)));
    }
    maps
}

/// The whole of a run.
pub fn json(all: &[Verdict], subject: &Value) -> Value {
    value!({ "schema": 1, "run": subject, "summaries": verdicts(all), "lost": lost(all), "cases": all })
}

/// Summaries as a table, then the lost cases.
pub fn markdown(all: &[Verdict]) -> String {
    let mut out = String::from(
        "| profile | task | cases | resident | accuracy | dense | difference | standard error | lost | won |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let show = |value: Option<f64>, digits: usize| value.map_or("-".into(), |v| format!("{v:.digits$}"));
    for s in verdicts(all) {
        out += &format!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
            s.label.replace('|', "\\|"),
            s.task,
            s.cases,
            show(s.resident_bits_per_value, 2),
            show(s.accuracy, 3),
            show(s.dense, 3),
            s.difference.map_or("-".into(), |d| format!("{d:+.3}")),
            show(s.standard_error, 3),
            s.lost,
            s.won
        );
    }
    let lost = lost(all);
    if !lost.is_empty() {
        out += &format!("\nLost cases:\n\n{}\n", lost.iter().map(|line| format!("- {line}\n")).collect::<String>());
    }
    out
}
