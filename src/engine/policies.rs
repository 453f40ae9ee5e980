//! What the policy is shown before a step, and the moves that it answers with.

use super::journal::Journal;
use super::moves::Transfer;
use super::prepare::no_layer;
use super::{Engine, Event, SeqRows};
use crate::error::{Error, ErrorKind, Result};
use crate::format::FormatId;
use crate::page::flags;
use crate::policy::{Move, PageView};
use std::collections::BTreeSet;

impl Engine {
    pub(super) fn apply_policy(
        &mut self,
        rows: &[SeqRows],
        journal: &mut Journal,
        moved: &mut [[Vec<Transfer>; 2]],
        events: &mut Vec<Event>,
    ) -> Result<()> {
        if !self.policy.watches() {
            return Ok(());
        }
        let views = self.views(rows)?;
        let mut done = BTreeSet::new();
        for Move::Convert { sequence, layer, kv_head, page, k, v, reason } in self.policy.decide(&views) {
            let (index, layer_in_group) = self.shape.locate(layer).ok_or_else(|| no_layer(layer))?;
            let heads = self.groups[index].shape.kv_heads;
            let row = (kv_head < heads).then_some(layer_in_group * heads + kv_head);
            let held = &self.sequence(sequence)?.groups[index];
            let id = row.and_then(|row| held.page(row, page));
            let Some(id) = id else {
                return Err(Error::new(
                    ErrorKind::Shape,
                    format!("the policy moves page {page} of layer {layer}, head {kv_head}, which is not there"),
                    "",
                ));
            };
            let held = &self.groups[index].pool.page(id).descriptor;
            if !held.sealed() || held.flags & flags::PINNED != 0 {
                return Err(Error::new(
                    ErrorKind::Shape,
                    format!("the policy moves page {page} of layer {layer}, head {kv_head}, which is open or pinned"),
                    "",
                ));
            }
            let (k, v) = (self.registry.formats.by_name(&k)?.0, self.registry.formats.by_name(&v)?.0);
            if done.insert((index, id)) && (held.k_format, held.v_format) != (k, v) {
                self.change_if_room(index, id, k, v, reason, journal, &mut moved[index][1], events)?;
            }
        }
        Ok(())
    }

    fn views(&self, rows: &[SeqRows]) -> Result<Vec<PageView>> {
        let mut views = Vec::new();
        let name = |id: FormatId| self.registry.formats.get(id).map_or("?".into(), |f| f.name().to_string());
        for r in rows {
            let sequence = self.sequence(r.seq)?;
            for (group, held) in self.groups.iter().zip(&sequence.groups) {
                for row in 0..held.pages.len() {
                    for (at, id) in held.numbered(row, 0..usize::MAX) {
                        let page = group.pool.page(id);
                        let pinned = page.descriptor.flags & flags::PINNED != 0;
                        if !page.descriptor.sealed() || pinned {
                            continue;
                        }
                        views.push(PageView {
                            sequence: r.seq,
                            layer: group.shape.layers[row / group.shape.kv_heads],
                            kv_head: row % group.shape.kv_heads,
                            page: at,
                            formats: (name(page.descriptor.k_format), name(page.descriptor.v_format)),
                            age_tokens: (sequence.committed as usize)
                                .saturating_sub((at + 1) * group.shape.page_tokens),
                            references: page.references,
                            pinned,
                        });
                    }
                }
            }
        }
        Ok(views)
    }
}
