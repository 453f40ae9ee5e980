//! The map as a table: runs of equal pages.

use super::lists::Held;
use crate::store::{Place, Store};
use crate::view::{Selection, Table};
use kvarto::engine::Formats;
use std::ops::Range;

/// What pages of a run have in common.
#[derive(PartialEq)]
struct Kind {
    /// Formats and bytes; `None` of an evicted page.
    stored: Option<(Formats, u64)>,
    anchored: bool,
    pinned: bool,
    owners: usize,
}

/// All lists of the selection.
pub fn table(store: &Store, selection: &Selection) -> Option<Table> {
    let held = Held::of(store, selection)?;
    let head = [
        "layer",
        "KV head",
        "first page",
        "last page",
        "K format",
        "V format",
        "bytes a page",
        "bytes",
        "anchored",
        "pinned",
        "owners (sequences)",
    ];
    let mut table = Table { head: head.map(String::from).to_vec(), rows: Vec::new() };
    for (row, pages) in held.pages.rows.iter().enumerate() {
        let Some((layer, head)) = store.layer_and_head(held.group, row) else { continue };
        let mut run: Option<(Range<u32>, Kind)> = None;
        for at in 0..pages.len() {
            let number = held.base().saturating_add(u32::try_from(at).unwrap_or(u32::MAX));
            let kind = kind(store, &held, row, number);
            match &mut run {
                Some((numbers, known)) if *known == kind => numbers.end = number.saturating_add(1),
                _ => {
                    table.rows.extend(run.take().map(|run| words(layer, head, run)));
                    run = Some((number..number.saturating_add(1), kind));
                }
            }
        }
        table.rows.extend(run.map(|run| words(layer, head, run)));
    }
    Some(table)
}

fn kind(store: &Store, held: &Held<'_>, row: usize, number: u32) -> Kind {
    let place = Place { sequence: held.sequence, group: held.group, row, number };
    let first = number.saturating_mul(held.page_tokens);
    let end = first.saturating_add(held.page_tokens);
    let touches = |ranges: &[Range<u32>]| ranges.iter().any(|range| range.start < end && first < range.end);
    let page = store.page_at(place);
    Kind {
        owners: if page.is_some() { store.owners(place) } else { 0 },
        stored: page.map(|page| (page.formats, page.bytes)),
        anchored: touches(&held.facts.anchors),
        pinned: touches(&held.facts.pins),
    }
}

fn words(layer: u32, head: u32, (numbers, kind): (Range<u32>, Kind)) -> Vec<String> {
    let (k, v, bytes) = match &kind.stored {
        Some(((k, v), bytes)) => (k.to_string(), v.to_string(), *bytes),
        None => ("evicted".into(), "evicted".into(), 0),
    };
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_string();
    let all = bytes.saturating_mul(u64::from(numbers.end - numbers.start));
    let last = numbers.end.saturating_sub(1);
    let owners = kind.owners.to_string();
    let (anchored, pinned) = (yes(kind.anchored), yes(kind.pinned));
    let [layer, head, first, last] = [layer, head, numbers.start, last].map(|n| n.to_string());
    vec![layer, head, first, last, k, v, bytes.to_string(), all.to_string(), anchored, pinned, owners]
}
