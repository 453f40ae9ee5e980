//! A run of the command: model, texts and windows loaded once, records found or made.

use super::super::backend;
use super::super::models::Bar;
use super::flags::RunFlags;
use super::progress::Meter;
use kvarto::engine::Registry;
use kvarto::eval::corpus;
use kvarto::eval::{Candidate, Folder, Identity, Mode, Plan, Record, Runner, Subject, Text, Windows};
use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use kvarto::model::{LoadOptions, Model, store};
use kvarto::profile::Profile;
use kvarto::{Result, model::config::ModelConfig};

/// Rows of the longest steps, prefill and scoring alike.
const CHUNK_TOKENS: usize = 256;

/// What a run has at hand.
pub struct Session {
    runner: Runner,
    subject: Subject,
    /// One for each length of window.
    plans: Vec<Plan>,
    folder: Option<Folder>,
    fresh: bool,
}

/// How a mode is told on standard error.
pub fn explain(mode: Mode) -> String {
    match mode {
        Mode::Stepwise => "one token a step".into(),
        Mode::Emulated => {
            "steps cut where the cache changes: every query sees what it would see in a step of its own".into()
        }
        Mode::Chunked(rows) => format!(
            "steps of {rows} tokens: their exact tails are up to {rows} tokens longer than in decoding, so results flatter"
        ),
    }
}

impl Session {
    /// Loads what the flags name.
    ///
    /// # Errors
    /// `Usage` for windows that do not fit the model or a text; `File` for a text or model that cannot be read; what the
    /// backend says.
    pub fn open(flags: &RunFlags, registry: Registry) -> Result<Self> {
        let wanted = flags.backend.wanted()?;
        let texts = flags.text.iter().map(|word| Text::open(&corpus::resolve(word)?)).collect::<Result<Vec<_>>>()?;
        let folder = flags.folder()?;
        let bar = Bar::new();
        let path = store::resolve_or_fetch(&flags.model, &bar)?;
        bar.finish();
        let gguf = Gguf::open(&path)?;
        let config = ModelConfig::from_gguf(&gguf)?;
        let tokenizer = Tokenizer::from_gguf(&gguf)?;
        let mut plans = Vec::with_capacity(flags.window.len());
        for &tokens in &flags.window {
            let cut = Windows { tokens, count: flags.windows };
            let mut windows = Vec::new();
            for (at, text) in texts.iter().enumerate() {
                windows.extend(cut.cut(&tokenizer, text, at)?);
            }
            let plan = Plan {
                texts: texts.clone(),
                windows,
                score_tokens: flags.score_tokens,
                mode: flags.mode(),
                logit_bytes: (flags.logits_mib as u64) << 20,
            };
            plan.check(config.context_length)?;
            plans.push(plan);
        }
        let backend = backend::open(&wanted, &flags.backend)?.backend;
        let caps = backend.caps().clone();
        let load = LoadOptions { chunk_tokens: CHUNK_TOKENS, logit_rows: CHUNK_TOKENS, ..LoadOptions::default() };
        let model = Model::load(&gguf, backend, Profile::dense(), registry.clone(), &load)?;
        let subject = Subject {
            label: String::new(),
            profile: String::new(),
            model: flags.model.clone(),
            model_sha256: gguf.sha256().into(),
            architecture: config.architecture.name.into(),
            backend: caps.api.clone(),
            adapter: caps.adapter.clone(),
            tier: caps.tier.to_string(),
            version: env!("CARGO_PKG_VERSION").into(),
            command: std::env::args().collect(),
        };
        let runner = Runner::new(model, registry, subject.clone());
        Ok(Session { runner, subject, plans, folder, fresh: flags.fresh })
    }

    /// The records of all candidates on all windows, by length, candidate and window.
    ///
    /// # Errors
    /// As [`Runner::run`]; `File` for a record that cannot be kept.
    pub fn score(&mut self, candidates: &[Candidate], meter: &mut Meter) -> Result<Vec<Record>> {
        let Session { runner, subject, plans, folder, fresh } = self;
        let mut found: Vec<Vec<Vec<Option<Record>>>> = Vec::with_capacity(plans.len());
        let mut work = 0;
        for plan in plans.iter() {
            let of = |candidate: &Candidate, window: usize| {
                let folder = folder.as_ref().filter(|_| !*fresh)?;
                let record = folder.record(&identity(
                    &subject_of(subject, candidate),
                    &plan.window_of(window),
                    &plan.mode.to_string(),
                ))?;
                // The same profile may go by another word now.
                let subject = Subject { label: candidate.label.clone(), ..record.subject };
                Some(Record { subject, ..record })
            };
            let kept: Vec<Vec<_>> = candidates
                .iter()
                .map(|candidate| (0..plan.windows.len()).map(|window| of(candidate, window)).collect())
                .collect();
            work += runner.work(plan, candidates, &|c, w| kept[c][w].is_none());
            found.push(kept);
        }
        meter.begin(work);
        for (plan, found) in plans.iter().zip(&mut found) {
            let missing: Vec<Vec<bool>> = found.iter().map(|row| row.iter().map(Option::is_none).collect()).collect();
            let mut done = |candidate: usize, window: usize, record: Record| {
                if let Some(folder) = folder.as_ref() {
                    folder.save(&identity(&record.subject, &record.window, &record.mode).file(), &record)?;
                }
                found[candidate][window] = Some(record);
                Ok(())
            };
            runner.run(plan, candidates, &|c, w| missing[c][w], meter, &mut done)?;
        }
        Ok(found.into_iter().flatten().flatten().flatten().collect())
    }
}

fn subject_of(subject: &Subject, candidate: &Candidate) -> Subject {
    Subject { label: candidate.label.clone(), profile: candidate.profile.to_toml(), ..subject.clone() }
}

fn identity<'a>(subject: &'a Subject, window: &'a kvarto::eval::WindowOf, mode: &'a str) -> Identity<'a> {
    Identity { subject, window, mode }
}
