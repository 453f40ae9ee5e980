//! The mask in words: a tooltip, a table.

use super::gone::Gone;
use super::lines::{Line, Lines, Whose, step_facts};
use super::pattern::{counts, words};
use crate::store::Store;
use crate::view::Table;
use crate::view::axis::thousands;
use kvarto::engine::Reads;
use std::collections::BTreeMap;

/// Rows of a table beyond which lists are not told one by one.
const MOST_ROWS: usize = 1 << 20;

fn percent(share: f32) -> String {
    if share.is_nan() { "no number".into() } else { format!("{:.1} %", share * 100.0) }
}

/// Lines of a tooltip: a name and what it is.
pub fn lines(
    store: &Store,
    whose: Whose,
    line: &Line,
    qualities: &BTreeMap<u64, [f32; 2]>,
    page: Option<u32>,
    gone: &Gone,
) -> Vec<(&'static str, String)> {
    let read = &line.read;
    let (count, visible) = counts(read, whose.row, whose.rows);
    let lists = if whose.row.is_none() { format!(", the mean of {} lists", whose.rows) } else { String::new() };
    let share = whose.share(read).map_or("nothing visible".into(), |share| percent(share as f32));
    let whole = if count.fract() == 0.0 { format!("{count:.0}") } else { format!("{count:.1}") };
    let mut told = vec![
        ("step", thousands(read.step)),
        ("read", format!("{whole} of {} visible pages ({share}){lists}", thousands(visible))),
        ("pattern", words(read, whose.row, whose.rows)),
    ];
    if let Some(facts) = step_facts(store, read.step) {
        told.push((
            "bytes",
            format!("{} bytes of pages read by the step's decoding rows", thousands(facts.read_bytes)),
        ));
    }
    if let Some([mass, recall]) = qualities.get(&read.step) {
        told.push(("mass kept", format!("{} of the attention mass", percent(*mass))));
        told.push(("recall", format!("{} of the pages with most mass", percent(*recall))));
    }
    if let Some(page) = page {
        let lists = if whose.row.is_some() { 1 } else { whose.rows };
        let lost = gone.before(line.event, lists).into_iter().find(|(run, _)| run.contains(&page));
        let rows = if whose.row.is_some() || !matches!(read.read, Reads::Rows(_)) { 1 } else { whose.rows };
        let having = match whose.row {
            Some(row) => usize::from(read.of_row(row).contains(page)),
            None => (0..rows).filter(|row| read.of_row(*row).contains(page)).count(),
        };
        let words = match (read.visible.contains(&page), having, lost) {
            (false, ..) => "not visible to the step".into(),
            (_, 0, Some((_, 1.0))) => "evicted before".into(),
            (_, 0, Some((_, share))) => format!("evicted before in {} of the lists", percent(share)),
            (_, 0, None) => "not read".into(),
            (_, having, _) if having == rows => "read".to_string(),
            (_, having, _) => format!("read by {having} of {rows} lists"),
        };
        told.push(("page", format!("{}: {words}", thousands(page.into()))));
    }
    told
}

/// All steps before the cursor.
pub fn table(store: &Store, whose: Whose) -> Option<Table> {
    let head =
        ["step", "layer", "KV head", "pages read", "pages visible", "share read (%)", "mass kept (%)", "recall (%)"];
    let mut table = Table { head: head.map(String::from).to_vec(), rows: Vec::new() };
    let mut lines = Lines::default();
    lines.update(store, whose);
    let differ = lines.lines.iter().any(|line| matches!(line.read.read, Reads::Rows(_)));
    let one_by_one = whose.row.is_none() && differ && lines.lines.len().saturating_mul(whose.rows) <= MOST_ROWS;
    let lists: Vec<Option<usize>> = if one_by_one { (0..whose.rows).map(Some).collect() } else { vec![whose.row] };
    let mut rows = Vec::new();
    for row in lists {
        let whose = Whose { row, ..whose };
        let mut own = Lines::default();
        own.update(store, whose);
        let place = row.and_then(|row| store.layer_and_head(whose.group, row));
        let word = |n: Option<u32>| n.map_or("all".to_string(), |n| n.to_string());
        for line in &own.lines {
            let (count, visible) = counts(&line.read, row, whose.rows);
            let share = whose.share(&line.read).map_or(String::new(), |share| format!("{:.2}", share * 100.0));
            let quality = own.qualities.get(&line.read.step);
            let quality = [0, 1].map(|at| quality.map_or(String::new(), |pair| format!("{:.2}", pair[at] * 100.0)));
            let [mass, recall] = quality;
            let (layer, head) = (word(place.map(|(layer, _)| layer)), word(place.map(|(_, head)| head)));
            let words = vec![
                line.read.step.to_string(),
                layer,
                head,
                format!("{}", (count * 1000.0).round() / 1000.0),
                visible.to_string(),
                share,
                mass,
                recall,
            ];
            rows.push((line.event, words));
        }
    }
    rows.sort_by_key(|(event, _)| *event);
    table.rows = rows.into_iter().map(|(_, words)| words).collect();
    Some(table)
}
