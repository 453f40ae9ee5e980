//! How long a cache stays as it is: rows that one step may take so that each sees what it would see in a step of its own.

use super::{Engine, SeqId};
use crate::error::Result;

impl Engine {
    /// Decoding steps so far, and the sum of their bits read by cached value.
    #[cfg(feature = "eval")]
    pub(crate) fn reads(&self) -> (u64, f64) {
        (self.counters.decode_steps, self.counters.read_bits_sum)
    }

    /// Most committed rows (1 or more) that each sequence of `seqs` can get in the next step so that every one of them sees
    /// the pages it would see if it came in a step of its own: no page falls due for sealing and no move of the policy comes
    /// in between. A step of that many rows from the same state is a stepwise run, done at once.
    ///
    /// 1 where nothing can be said: shared pages, a selector that chooses by position, a policy that does not tell when it
    /// would answer otherwise, moves that wait for room.
    ///
    /// # Errors
    /// `Shape` for an unknown sequence.
    pub fn steady_rows(&self, seqs: &[SeqId]) -> Result<u32> {
        if !self.selector.reads_all() || self.counters.deferred > 0 || self.pending.iter().any(|p| !p.is_empty()) {
            return Ok(1);
        }
        let mut most = u32::MAX;
        let mut seals = false;
        for &seq in seqs {
            let sequence = self.sequence(seq)?;
            if sequence.committed != sequence.logical {
                return Ok(1);
            }
            let committed = sequence.committed as usize;
            for (group, rows) in self.groups.iter().zip(&sequence.groups) {
                if rows.all().any(|page| group.pool.page(page).references > 1) {
                    return Ok(1);
                }
                let size = group.shape.page_tokens;
                let sealed = committed.saturating_sub(self.profile.exact_tail_tokens) / size;
                // The step that begins with this many tokens committed finds one page more to seal.
                let next = (sealed + 1) * size + self.profile.exact_tail_tokens;
                most = most.min(u32::try_from(next - committed).unwrap_or(u32::MAX));
                let first = rows.sealed_to.max(self.profile.exact_sink_tokens.div_ceil(size));
                seals |= first < sealed;
            }
        }
        if self.policy.watches() {
            // A page sealed now is shown to the policy by the step after this one.
            let calm = if seals { None } else { self.policy_rests(seqs)? };
            most = most.min(calm.map_or(1, |rows| rows.saturating_add(1)));
        }
        Ok(most.max(1))
    }
}
