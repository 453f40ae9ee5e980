//! `kvarto chat`: a conversation whose past stays in the cache.

mod lines;

use super::arguments;
use super::backend::{self, BackendFlags, Chosen};
use super::cache_flags::CacheFlags;
use super::generate::introduce;
use super::models::Bar;
use super::output::{Out, say};
use super::report::{bytes, fault, figure};
use super::sampling_flags::SamplingFlags;
use super::trace_flags::{EventFlags, Opened, TraceFlags};
use clap::Args;
use kvarto::engine::Registry;
use kvarto::model::chat_template::ChatTemplate;
use kvarto::model::conversation::{Conversation, refuse_control};
use kvarto::model::generate::{FinishReason, GenerateOptions, Generation};
use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use kvarto::model::{LoadOptions, Model, store};
use kvarto::{Error, ErrorKind};
use lines::{Line, Lines};
use std::cell::RefCell;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Talk with a model; the past stays in the cache.
#[derive(Debug, Args)]
pub struct ChatCommand {
    /// A system message, before everything said
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Most new tokens of an answer
    #[arg(long, allow_negative_numbers = true, value_parser = arguments::count, default_value_t = 512, value_name = "N")]
    max_tokens: usize,
    #[command(flatten)]
    sampling: SamplingFlags,
    /// A name from `kvarto models list`, or a path that ends in .gguf
    #[arg(long, default_value = "smollm2-135m", value_name = "NAME-or-FILE")]
    model: String,
    #[command(flatten)]
    backend: BackendFlags,
    #[command(flatten)]
    cache: CacheFlags,
    #[command(flatten)]
    trace: TraceFlags,
    #[command(flatten)]
    events: EventFlags,
}

const HELP: &str = "\
/stats      what the cache holds, and what the last turn read
/reset      forget everything but the system message
/fork       a second chat with the same past; both share its pages
/switch N   go to chat N
/help       this
/quit       end (Ctrl-D as well)";

/// Runs the command.
pub fn run(command: &ChatCommand, verbose: u8) -> anyhow::Result<ExitCode> {
    let registry = Registry::builtin();
    let profile = command.cache.profile(&registry)?;
    let options =
        GenerateOptions { max_tokens: command.max_tokens, sampler: command.sampling.options()?, stop: vec![] };
    if command.max_tokens == 0 {
        return Err(Error::new(ErrorKind::Usage, "--max-tokens 0", "an answer has at least one token").into());
    }
    let wanted = command.backend.wanted()?;
    let bar = Bar::new();
    let path = store::resolve_or_fetch(&command.model, &bar)?;
    bar.finish();
    let gguf = Gguf::open(&path)?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let template = ChatTemplate::from_gguf(&gguf)?;
    if let Some(system) = &command.system {
        refuse_control(&tokenizer, system)?;
    }
    let mut trace = command.trace.open(&command.events)?;
    let load = LoadOptions { page_tokens: profile.page_tokens, logit_rows: 1, ..LoadOptions::default() };
    let rehearse = |backend| Model::rehearse(&gguf, backend, profile.clone(), registry.clone(), &load);
    let Chosen { mut backend, why } = backend::open_for(&wanted, &command.backend, rehearse)?;
    if let Some(trace) = &mut trace {
        trace.measure(backend.as_mut());
    }
    let caps = backend.caps().clone();
    let mut model = Model::load(&gguf, backend, profile, registry, &load)?;
    introduce(&mut model, &caps, &why, &path, verbose);
    let start = |trace: Opened| trace.start_model(&mut model, &tokenizer, (&command.model, &gguf), "chat");
    let tracing = trace.map(start).transpose()?;

    let cancelled = Arc::new(AtomicBool::new(false));
    let waiting = Arc::new(AtomicBool::new(false));
    let (flag, idle) = (cancelled.clone(), waiting.clone());
    ctrlc::set_handler(move || {
        // Nothing is under way while a line is waited for; and a second signal during an answer means it.
        if idle.load(Ordering::SeqCst) || flag.swap(true, Ordering::SeqCst) {
            std::process::exit(130);
        }
    })?;
    let first = Conversation::new(&mut model, command.system.clone())?;
    let mut chat = Chat {
        model,
        tokenizer,
        template,
        options,
        branches: vec![Branch { talk: first, last: None }],
        current: 0,
        cancelled,
    };
    let result = talk(&mut chat, &waiting);
    if let Some(tracing) = tracing {
        tracing.finish();
    }
    result
}

/// Hears lines until the end.
fn talk(chat: &mut Chat, waiting: &AtomicBool) -> anyhow::Result<ExitCode> {
    let mut lines = Lines::new()?;
    if lines.terminal() {
        say("say something; /help lists the commands\n");
    }
    loop {
        chat.cancelled.store(false, Ordering::SeqCst);
        waiting.store(true, Ordering::SeqCst);
        let line = lines.next()?;
        waiting.store(false, Ordering::SeqCst);
        let text = match line {
            Line::Said(text) => text,
            Line::End => return Ok(ExitCode::SUCCESS),
            Line::Interrupted => return Ok(ExitCode::from(130)),
        };
        match chat.hear(text.trim()) {
            // What was read from a pipe was not typed after the signal.
            Ok(Next::Line) if chat.cancelled.load(Ordering::SeqCst) && !lines.terminal() => {
                return Ok(ExitCode::from(130));
            }
            Ok(Next::Line) => {}
            Ok(Next::End) => return Ok(ExitCode::SUCCESS),
            // A device that is gone stays gone; anything else leaves the chat as it was.
            Err(error) if lost(&error) => return Err(error),
            Err(error) if lines.terminal() => fault(&error, false),
            Err(error) => return Err(error),
        }
    }
}

fn lost(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<Error>().map(Error::kind);
    matches!(kind, None | Some(ErrorKind::Device | ErrorKind::DeviceLost))
}

/// What comes after a line.
enum Next {
    Line,
    End,
}

/// A chat and the last answer of it.
struct Branch {
    talk: Conversation,
    last: Option<Generation>,
}

struct Chat {
    model: Model,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    options: GenerateOptions,
    branches: Vec<Branch>,
    current: usize,
    cancelled: Arc<AtomicBool>,
}

impl Chat {
    /// One line of the user's.
    fn hear(&mut self, line: &str) -> anyhow::Result<Next> {
        let Some(word) = line.strip_prefix('/') else {
            return if line.is_empty() { Ok(Next::Line) } else { self.answer(line) };
        };
        let (word, rest) = word.split_once(char::is_whitespace).unwrap_or((word, ""));
        match (word, rest.trim()) {
            ("quit" | "exit", "") => return Ok(Next::End),
            ("help", "") => say(HELP),
            ("stats", "") => self.stats(),
            ("reset", "") => {
                self.branches[self.current].talk.reset(&mut self.model)?;
                self.branches[self.current].last = None;
                say(&format!("chat {} is empty", self.current + 1));
            }
            ("fork", "") => {
                let talk = self.branches[self.current].talk.fork(&mut self.model)?;
                self.branches.push(Branch { talk, last: None });
                say(&format!("chat {} has the past of chat {}", self.branches.len(), self.current + 1));
                self.current = self.branches.len() - 1;
            }
            ("switch", number) => {
                let there = self.branches.len();
                let at = number.parse::<usize>().ok().filter(|n| (1..=there).contains(n));
                let at = at.ok_or_else(|| {
                    let message = format!("/switch {}: there are chats 1 to {there}", number.escape_debug());
                    Error::new(ErrorKind::Usage, message, "give one of these numbers")
                })?;
                self.current = at - 1;
                say(&format!("chat {at}"));
            }
            _ => {
                let message = format!("{} is no command", line.escape_debug());
                return Err(Error::new(ErrorKind::Usage, message, "/help lists them").into());
            }
        }
        Ok(Next::Line)
    }

    fn answer(&mut self, line: &str) -> anyhow::Result<Next> {
        let out = RefCell::new(Out::stdout());
        let cancelled = &self.cancelled;
        let generation = self.branches[self.current].talk.say(
            &mut self.model,
            &self.tokenizer,
            &self.template,
            line,
            &self.options,
            |piece| out.borrow_mut().speak(piece),
            || out.borrow().ended() || cancelled.load(Ordering::SeqCst),
        )?;
        let mut out = out.into_inner();
        out.write("\n");
        out.result()?;
        match generation.finish_reason {
            FinishReason::Length => say(&format!("(cut after {} tokens)", generation.token_ids.len())),
            FinishReason::Cancelled => say("(stopped)"),
            FinishReason::Stop => {}
        }
        self.branches[self.current].last = Some(generation);
        // Nobody reads any more.
        Ok(if out.ended() { Next::End } else { Next::Line })
    }

    fn stats(&mut self) {
        let Branch { talk: branch, last } = &self.branches[self.current];
        let turn = branch.turn();
        let messages = branch.messages().count();
        let lengths = self.model.engine().lengths(branch.sequence()).ok();
        let stats = self.model.engine().stats();
        let cached = lengths.map_or(0, |l| l.cached);
        say(&format!(
            "chat      {} of {}, {messages} messages, {cached} tokens cached",
            self.current + 1,
            self.branches.len()
        ));
        say(&format!(
            "last turn {} tokens from the cache, {} read, {} of them again",
            turn.kept, turn.read, turn.read_again
        ));
        if let Some(last) = last {
            say(&format!(
                "speed     prefill {} tok/s, decode {} tok/s",
                figure(last.prefill_tokens_per_s()),
                figure(last.decode_tokens_per_s())
            ));
        }
        let pages: Vec<String> = stats.pages.iter().map(|((k, v), n)| format!("{n} of {k}/{v}")).collect();
        say(&format!("all chats {}", if pages.is_empty() { "none".into() } else { pages.join(", ") }));
        say(&format!(
            "moves     {} pages converted, {} read and written for moves, {} pages evicted",
            stats.conversions,
            bytes(stats.moved_bytes),
            stats.evicted
        ));
        say(&format!(
            "bytes     {} in pages, {} in all; bits a value: resident {}, read {}, metadata {}",
            bytes(stats.memory.used_slot_bytes),
            bytes(stats.memory.allocated()),
            figure(stats.resident_bits_per_value),
            figure(stats.read_bits_per_value),
            figure(stats.metadata_bits_per_value)
        ));
    }
}
