//! Sequences over time: where each came from, and the text that it holds at any event.

use super::chronicle::Moment;
use kvarto::engine::{Event, SeqId, TokenPiece};
use std::collections::BTreeMap;

/// Most tokens that are kept.
const MOST_TOKENS: usize = 1 << 21;

/// Most sequences that are told apart: the last one stands for all further ones.
const MOST_LIVES: usize = 1 << 18;

/// What happened to a sequence's text.
#[derive(Clone, Debug)]
enum Turn {
    /// Tokens from a position on.
    Tokens(u32, Vec<TokenPiece>),
    /// It was cut to this many tokens.
    Cut(u32),
}

/// A sequence.
#[derive(Clone, Debug, Default)]
pub struct Life {
    /// When it was first heard of.
    pub born: Moment,
    /// When it ended, if it did.
    pub ended: Option<Moment>,
    /// The sequence that it was made from, and tokens in common.
    pub from: Option<(SeqId, u32)>,
    turns: Vec<(u64, Turn)>,
}

/// All sequences of a trace.
#[derive(Clone, Debug, Default)]
pub struct Lineage {
    lives: BTreeMap<SeqId, Life>,
    tokens: usize,
    left_out: u64,
}

impl Lineage {
    pub(super) fn take(&mut self, when: Moment, event: &Event) {
        match event {
            Event::SequenceCreated { sequence } => {
                self.life(*sequence, when);
            }
            Event::SequenceForked { sequence, from, at_tokens } => {
                self.life(*sequence, when).from = Some((*from, *at_tokens));
            }
            Event::SequenceTruncated { sequence, tokens } => {
                self.life(*sequence, when).turns.push((when.event, Turn::Cut(*tokens)));
            }
            Event::SequenceReleased { sequence } => self.life(*sequence, when).ended = Some(when),
            Event::Tokens { sequence, first_position, tokens } => {
                if self.tokens + tokens.len() > MOST_TOKENS {
                    self.left_out += tokens.len() as u64;
                    return;
                }
                self.tokens += tokens.len();
                let turn = Turn::Tokens(*first_position, tokens.clone());
                self.life(*sequence, when).turns.push((when.event, turn));
            }
            Event::Resync { snapshot, .. } => {
                for held in &snapshot.sequences {
                    self.life(held.sequence, when);
                }
            }
            _ => {}
        }
    }

    fn life(&mut self, sequence: SeqId, when: Moment) -> &mut Life {
        let known = self.lives.len() < MOST_LIVES || self.lives.contains_key(&sequence);
        let sequence = if known { sequence } else { self.lives.keys().next_back().copied().unwrap_or(sequence) };
        self.lives.entry(sequence).or_insert_with(|| Life { born: when, ..Life::default() })
    }

    /// All sequences, ascending.
    pub fn lives(&self) -> impl Iterator<Item = (SeqId, &Life)> {
        self.lives.iter().map(|(sequence, life)| (*sequence, life))
    }

    /// One of them.
    pub fn of(&self, sequence: SeqId) -> Option<&Life> {
        self.lives.get(&sequence)
    }

    /// Tokens beyond the bound, which are not kept.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether the trace has any text.
    pub fn has_text(&self) -> bool {
        self.tokens > 0
    }

    /// The tokens that a sequence holds before event `event`, by position; `None` where the trace does not say.
    pub fn text(&self, sequence: SeqId, event: u64) -> Vec<Option<&TokenPiece>> {
        let mut text = Vec::new();
        self.tell(sequence, event, 64, &mut text);
        text
    }

    /// A number that grows wherever [`Lineage::text`] changes: events that made the sequence's text before event `event`,
    /// those of its origins among them.
    pub fn text_stamp(&self, sequence: SeqId, event: u64) -> u64 {
        let (mut at, mut event, mut stamp) = (Some(sequence), event, 0);
        for _ in 0..64 {
            let Some(life) = at.and_then(|sequence| self.lives.get(&sequence)) else { break };
            stamp += 1 + life.turns.partition_point(|(told, _)| *told < event) as u64;
            event = event.min(life.born.event);
            at = life.from.map(|(from, _)| from);
        }
        stamp
    }

    fn tell<'a>(&'a self, sequence: SeqId, event: u64, depth: usize, text: &mut Vec<Option<&'a TokenPiece>>) {
        let Some(life) = self.lives.get(&sequence) else { return };
        if let (Some((from, common)), true) = (life.from, depth > 0) {
            self.tell(from, event.min(life.born.event), depth - 1, text);
            text.truncate(common as usize);
        }
        for (_, turn) in life.turns.iter().take_while(|(at, _)| *at < event) {
            match turn {
                Turn::Cut(tokens) => text.truncate(*tokens as usize),
                Turn::Tokens(first, pieces) => {
                    let first = *first as usize;
                    if first > MOST_TOKENS {
                        continue;
                    }
                    text.truncate(first);
                    text.resize(first, None);
                    text.extend(pieces.iter().map(Some));
                }
            }
        }
    }
}
