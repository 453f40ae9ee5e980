//! Content keys: which tokens a sequence holds, as far as callers say, and what its pages are called by.

use super::sequence::{Rows, Sequence};
use super::storage::Group;
use super::{Engine, SeqId, SeqRows};
use crate::error::{Error, ErrorKind, Result};
use crate::page::ContentKey;

impl Engine {
    /// Names the exact weights that this engine's keys and values come from, such as the SHA-256 of the model's file.
    /// Content keys hold it.
    pub fn set_model_hash(&mut self, hash: impl Into<String>) {
        self.model_hash = Some(hash.into());
    }

    /// The name given with [`Engine::set_model_hash`] or the options.
    pub fn model_hash(&self) -> Option<&str> {
        self.model_hash.as_deref()
    }

    /// Content keys of a sequence's pages in a cache group, by page in sequence. Equal keys say: the same token ids
    /// from the sequence's start on, of the same model, in the same basis, whatever the formats.
    ///
    /// A page has its key once it is full and committed, also where the exact sink or tail, a pin or want of room keeps
    /// it from being sealed yet. `None` for other pages, for those behind a window, from the first token on whose id
    /// was not given, and for all without a model hash. A basis of measured means counts as the tokens they were
    /// measured over.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence or cache group.
    pub fn content_keys(&self, seq: SeqId, group: usize) -> Result<Vec<Option<ContentKey>>> {
        let sequence = self.sequence(seq)?;
        let (Some(of), Some(rows)) = (self.groups.get(group), sequence.groups.get(group)) else {
            let message = format!("cache group {group} of {}", self.groups.len());
            return Err(Error::new(ErrorKind::Shape, message, "groups are numbered from 0 in the shape's order"));
        };
        let size = of.shape.page_tokens;
        let mut keys = vec![None; (sequence.logical as usize).div_ceil(size)];
        let (Some(model), Some(basis)) = (self.model_hash(), basis_id(of, rows)) else {
            return Ok(keys);
        };
        let stand = sequence.ids.len().min(sequence.committed as usize) / size;
        let mut parent = None;
        for (page, (key, ids)) in keys.iter_mut().zip(sequence.ids.chunks_exact(size)).take(stand).enumerate() {
            parent = Some(ContentKey::of(parent, ids, model, &basis));
            *key = parent.filter(|_| page >= rows.first);
        }
        Ok(keys)
    }

    /// Refuses token ids that do not belong to the rows.
    pub(super) fn check_tokens(rows: &[SeqRows], tokens: &[Option<&[u32]>]) -> Result<()> {
        if !tokens.is_empty() && tokens.len() != rows.len() {
            return Err(Error::new(
                ErrorKind::Shape,
                format!("token ids for {} sequences, the step has {}", tokens.len(), rows.len()),
                "give one entry a sequence, None where ids are not known",
            ));
        }
        for (r, ids) in rows.iter().zip(tokens) {
            if let Some(ids) = ids.filter(|ids| ids.len() != r.rows as usize) {
                return Err(Error::new(
                    ErrorKind::Shape,
                    format!("{} token ids for {} rows of sequence {}", ids.len(), r.rows, r.seq.0),
                    "give one id a row",
                ));
            }
        }
        Ok(())
    }

    /// Remembers the ids of a finished step's rows.
    pub(super) fn learn(&mut self, r: &SeqRows, ids: Option<&[u32]>) -> Result<()> {
        let sequence = self.sequences.get_mut(&r.seq).ok_or_else(|| super::unknown(r.seq))?;
        let before = (sequence.logical - r.rows) as usize;
        // Behind a token without an id none has a key.
        if let Some(ids) = ids.filter(|_| sequence.ids.len() == before) {
            sequence.ids.extend_from_slice(ids);
        }
        if before == 0 && r.rows > 0 {
            let known = ids.map(|ids| ContentKey::of(None, ids, "", "mean"));
            sequence.groups.iter_mut().for_each(|rows| rows.mean_of = known);
        }
        Ok(())
    }
}

/// Names the coordinates that a sequence's pages of a group are in; `None` when that depends on ids not given.
fn basis_id(group: &Group, rows: &Rows) -> Option<String> {
    let [k, v] = &group.basis_ids;
    if !group.uses_means() {
        return Some(format!("{k}/{v}"));
    }
    rows.mean_of.map(|of| format!("{k}/{v} of {of}"))
}

impl Sequence {
    /// Forgets the ids of tokens that were taken back.
    pub(super) fn forget_ids(&mut self) {
        self.ids.truncate(self.logical as usize);
        if self.logical == 0 {
            self.groups.iter_mut().for_each(|rows| rows.mean_of = None);
        }
    }
}
