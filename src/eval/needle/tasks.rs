//! The tasks, and the cases made of them: contexts of a length with what is asked hidden at a depth.

use super::words::{filler, keys, number};
use crate::error::{Error, ErrorKind, Result};
use crate::model::tokenizer::Tokenizer;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

/// What a case asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// One code, no other.
    Single,
    /// One code among eight.
    MultiKey,
    /// The three codes of one thing, in one answer.
    MultiValue,
    /// The codes of four things, four questions.
    MultiQuery,
    /// The code at the end of a chain of three names, beside another chain.
    Variables,
    /// The three words that a list repeats most.
    FrequentWords,
}

impl Task {
    /// All of them.
    pub const ALL: [Task; 6] =
        [Task::Single, Task::MultiKey, Task::MultiValue, Task::MultiQuery, Task::Variables, Task::FrequentWords];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Task::Single => "single",
            Task::MultiKey => "multi-key",
            Task::MultiValue => "multi-value",
            Task::MultiQuery => "multi-query",
            Task::Variables => "variables",
            Task::FrequentWords => "frequent-words",
        }
    }
}

/// A question after a context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its tokens; the answer goes on from the last.
    pub ids: Vec<u32>,
    /// Texts that a full answer holds; each counts alike.
    pub wanted: Vec<String>,
    /// Tokens of the answer.
    pub answer_tokens: usize,
}

/// A context and its questions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The task.
    pub task: Task,
    /// Most tokens of context, question and answer together.
    pub length: usize,
    /// Where in the context the asked-for stands, in percent.
    pub depth: usize,
    /// Its number among those of this task, length and depth.
    pub index: usize,
    /// The context's tokens.
    pub context: Vec<u32>,
    /// What is asked.
    pub questions: Vec<Question>,
}

/// Which cases to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The tasks.
    pub tasks: Vec<Task>,
    /// Tokens of a case.
    pub lengths: Vec<usize>,
    /// Percent of the context before the asked-for.
    pub depths: Vec<usize>,
    /// Cases of each task, length and depth.
    pub cases: usize,
    /// Where random choices begin.
    pub seed: u64,
}

/// Tokens that the shortest case needs for its needles, question and answer.
const LEAST_TOKENS: usize = 256;

/// Most cases of a run: each is held in memory, and takes a prefill.
const MOST_CASES: usize = 100_000;

impl Grid {
    /// How many cases it makes.
    pub fn len(&self) -> usize {
        let kinds = self.tasks.len().saturating_mul(self.lengths.len()).saturating_mul(self.depths.len());
        kinds.saturating_mul(self.cases)
    }

    /// Whether it makes none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Refuses what cannot be made for a model of `positions` positions.
    ///
    /// # Errors
    /// `Usage` with the limit and the value.
    pub fn check(&self, positions: usize) -> Result<()> {
        let usage = |what: String, remedy: String| Err(Error::new(ErrorKind::Usage, what, remedy));
        if self.is_empty() {
            return usage("no case is asked for".into(), "give at least one task, length, depth and case".into());
        }
        if self.len() > MOST_CASES {
            return usage(
                format!("{} cases, {MOST_CASES} are the most", self.len()),
                "give fewer --cases, tasks, lengths or depths".into(),
            );
        }
        let odd = self.lengths.iter().find(|&&length| !(LEAST_TOKENS..=positions).contains(&length));
        if let Some(length) = odd {
            return usage(
                format!("a length of {length} tokens"),
                format!("give lengths from {LEAST_TOKENS} to {positions}"),
            );
        }
        match self.depths.iter().find(|&&depth| depth > 100) {
            Some(depth) => usage(format!("a depth of {depth} %"), "give depths from 0 to 100".into()),
            None => Ok(()),
        }
    }

    /// Makes the cases, shortest first.
    ///
    /// # Errors
    /// What the tokenizer says.
    pub fn make(&self, tokenizer: &Tokenizer) -> Result<Vec<Case>> {
        let mut cases = Vec::with_capacity(self.len());
        for &length in &self.lengths {
            for &task in &self.tasks {
                for &depth in &self.depths {
                    for index in 0..self.cases {
                        // Each case its own numbers, whatever else is in the grid.
                        let words = [task as u64 + 1, length as u64, depth as u64 + 1, index as u64 + 1];
                        let seed = words
                            .iter()
                            .fold(self.seed, |s, w| (s ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
                        cases.push(case(tokenizer, task, length, depth, index, &mut StdRng::seed_from_u64(seed))?);
                    }
                }
            }
        }
        Ok(cases)
    }
}

/// What a context is made of: sentences with the share of the filler before each, and the questions in words.
struct Script {
    opening: &'static str,
    needles: Vec<(f64, String)>,
    /// Sentence `n` of the filler.
    filler: fn(&mut StdRng) -> String,
    questions: Vec<(String, Vec<String>, usize)>,
}

fn case(
    tokenizer: &Tokenizer,
    task: Task,
    length: usize,
    depth: usize,
    index: usize,
    random: &mut StdRng,
) -> Result<Case> {
    let share = depth as f64 / 100.0;
    if task == Task::FrequentWords {
        return frequent_words(tokenizer, length, depth, index, random);
    }
    let script = script(task, share, random);
    let encode = |text: &str| tokenizer.encode_further(text, false);
    let mut questions = Vec::new();
    for (text, wanted, answer_tokens) in &script.questions {
        questions.push(Question { ids: encode(text)?, wanted: wanted.clone(), answer_tokens: *answer_tokens });
    }
    let asked = questions.iter().map(|q| q.ids.len() + q.answer_tokens).max().unwrap_or(0);
    let mut needles = Vec::new();
    for (at, text) in &script.needles {
        needles.push((*at, encode(text)?));
    }
    needles.sort_by(|a, b| a.0.total_cmp(&b.0));
    let opening: Vec<u32> =
        tokenizer.bos().filter(|_| tokenizer.add_bos()).into_iter().chain(encode(script.opening)?).collect();
    let taken = opening.len() + asked + needles.iter().map(|(_, ids)| ids.len()).sum::<usize>();
    let room = length.saturating_sub(taken);
    let mut context = opening;
    let (mut filled, mut next) = (0, needles.into_iter().peekable());
    loop {
        while let Some((_, ids)) = next.next_if(|(at, _)| filled as f64 >= at * room as f64) {
            context.extend(ids);
        }
        let sentence = encode(&(script.filler)(random))?;
        if filled + sentence.len() > room {
            break;
        }
        filled += sentence.len();
        context.extend(sentence);
    }
    // Those at the very end.
    context.extend(next.flat_map(|(_, ids)| ids));
    Ok(Case { task, length, depth, index, context, questions })
}

fn code(key: &str, number: &str) -> String {
    format!(" The secret code of the {key} is {number}.")
}

fn script(task: Task, share: f64, random: &mut StdRng) -> Script {
    const OPENING: &str = "Here is a long story. It hides some secret codes; remember them.";
    let ask = |key: &str| format!(" The secret code of the {key} is");
    let anywhere = |random: &mut StdRng| random.random_range(0.0..1.0);
    let mut script = Script { opening: OPENING, needles: Vec::new(), filler, questions: Vec::new() };
    match task {
        Task::Single | Task::MultiKey => {
            let others = if task == Task::Single { 0 } else { 7 };
            for (at, key) in keys(random, 1 + others).into_iter().enumerate() {
                let number = number(random);
                let place = if at == 0 { share } else { anywhere(random) };
                script.needles.push((place, code(key, &number)));
                if at == 0 {
                    script.questions.push((ask(key), vec![number], 8));
                }
            }
        }
        Task::MultiQuery => {
            for (at, key) in keys(random, 4).into_iter().enumerate() {
                let number = number(random);
                let place = if at == 0 { share } else { anywhere(random) };
                script.needles.push((place, code(key, &number)));
                script.questions.push((ask(key), vec![number], 8));
            }
        }
        Task::MultiValue => {
            let key = keys(random, 1)[0];
            let numbers: Vec<String> = (0..3).map(|_| number(random)).collect();
            for (at, number) in numbers.iter().enumerate() {
                let place = if at == 0 { share } else { anywhere(random) };
                script.needles.push((place, code(key, number)));
            }
            script.questions.push((format!(" The three secret codes of the {key} are"), numbers, 28));
        }
        Task::Variables | Task::FrequentWords => {
            // A chain that is asked for, and another beside it: the only number would be no riddle.
            let names = keys(random, 6);
            let same = |of: &str, like: &str| format!(" The {of} has the same secret code as the {like}.");
            for (at, names) in names.chunks_exact(3).enumerate() {
                let number = number(random);
                // A chain's links in order; those of the first from the depth asked for on.
                let from = if at == 0 { share } else { anywhere(random) };
                let mut places = [from, from + (1.0 - from) * anywhere(random), from + (1.0 - from) * anywhere(random)];
                places.sort_by(f64::total_cmp);
                let links = [code(names[0], &number), same(names[1], names[0]), same(names[2], names[1])];
                script.needles.extend(places.into_iter().zip(links));
                if at == 0 {
                    script.questions.push((ask(names[2]), vec![number], 8));
                }
            }
        }
    }
    script
}

/// A list of words, of which three come every few words and the rest seldom; depth says nothing here.
fn frequent_words(
    tokenizer: &Tokenizer,
    length: usize,
    depth: usize,
    index: usize,
    random: &mut StdRng,
) -> Result<Case> {
    let words = keys(random, 40);
    let (often, seldom) = words.split_at(3);
    let encode = |text: &str| tokenizer.encode_further(text, false);
    let question = encode("\nThe three most frequent words in the list above are:")?;
    let answer_tokens = 16;
    let mut context: Vec<u32> = tokenizer.bos().filter(|_| tokenizer.add_bos()).into_iter().collect();
    context.extend(encode("Here is a list of words. A few of them are repeated often.\nList:")?);
    let room = length.saturating_sub(question.len() + answer_tokens);
    loop {
        // Two words of five are frequent ones.
        let word = match random.random_range(0..5) {
            0 | 1 => often[random.random_range(0..often.len())],
            _ => seldom[random.random_range(0..seldom.len())],
        };
        let ids = encode(&format!(" {word},"))?;
        if context.len() + ids.len() > room {
            break;
        }
        context.extend(ids);
    }
    let wanted = often.iter().map(|word| word.to_string()).collect();
    let questions = vec![Question { ids: question, wanted, answer_tokens }];
    Ok(Case { task: Task::FrequentWords, length, depth, index, context, questions })
}
