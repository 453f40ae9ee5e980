//! The thread that a live model runs on.

use super::gate::Gate;
use super::talk::Talk;
use super::{LiveOptions, LiveStatus, LiveWish, Phase, Turn};
use crate::source::Wake;
use kvarto::backend::cuda::{self, CudaBackend};
use kvarto::backend::wgpu::{AdapterChoice, OpenOptions, WgpuBackend};
use kvarto::backend::{Backend, CpuBackend};
use kvarto::engine::{Event, PageSampling, Registry, SeqId};
use kvarto::model::chat_template::ChatTemplate;
use kvarto::model::generate::{GenerateOptions, Generation};
use kvarto::model::gguf::Gguf;
use kvarto::model::sampler::SamplerOptions;
use kvarto::model::store::{self, Progress, Stage};
use kvarto::model::tokenizer::Tokenizer;
use kvarto::model::{CacheOptions, LoadOptions, Model};
use kvarto::profile::Profile;
use kvarto::trace::{Header, ModelHeader, Recorder, RecorderOptions, Target};
use kvarto::{Error, ErrorKind, Result, wgpu};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempPath;

/// Events wait at most this long before the window can read them.
const FLUSH: Duration = Duration::from_millis(30);

/// Turns that are kept for the window.
const MOST_TURNS: usize = 200;

/// What the thread shares with the window, and the traces that it wrote.
pub(super) struct Desk {
    pub status: Arc<Mutex<LiveStatus>>,
    pub wake: Wake,
    pub gate: Arc<Gate>,
    pub files: Vec<TempPath>,
}

/// What is loaded.
struct Loaded {
    model: Model,
    gguf: Gguf,
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    recorder: Option<Recorder>,
    talks: Vec<Talk>,
    present: Option<SeqId>,
}

struct Watched<'a>(&'a Desk, AtomicU64, Mutex<&'static str>);

impl Progress for Watched<'_> {
    fn stage(&self, stage: Stage, total_bytes: u64) {
        self.1.store(total_bytes, Ordering::Relaxed);
        *self.2.lock().unwrap_or_else(PoisonError::into_inner) = stage.as_str();
        self.advance(0);
    }

    fn advance(&self, done_bytes: u64) {
        let share = done_bytes as f32 / self.1.load(Ordering::Relaxed).max(1) as f32;
        let stage = *self.2.lock().unwrap_or_else(PoisonError::into_inner);
        self.0.tell(|status| status.phase = Phase::Starting(stage.into(), Some(share)));
    }

    fn notice(&self, text: &str) {
        self.0.tell(|status| status.phase = Phase::Starting(text.into(), None));
    }
}

impl Desk {
    fn tell(&self, change: impl FnOnce(&mut LiveStatus)) {
        change(&mut self.status.lock().unwrap_or_else(PoisonError::into_inner));
        (self.wake)();
    }

    /// Loads, and answers until the window goes.
    pub fn run(mut self, mut options: LiveOptions, heard: &Receiver<LiveWish>) {
        let mut loaded = match self.load(&mut options) {
            Ok(loaded) => loaded,
            Err(error) => return self.tell(|status| status.phase = Phase::Failed(error.to_string())),
        };
        self.tell(|status| status.phase = Phase::Ready);
        if let Some(text) = options.prompt.take() {
            let chat = loaded.template.is_some();
            self.prompt(&mut loaded, &options, &text, true, chat);
        }
        while !self.gate.has_ended() {
            let wish = match heard.recv_timeout(Duration::from_millis(200)) {
                Ok(wish) => wish,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            self.tell(|status| status.refused = None);
            match wish {
                LiveWish::Prompt { text, fresh, chat } => self.prompt(&mut loaded, &options, &text, fresh, chat),
                LiveWish::Fork { sequence, tokens } => self.fork(&mut loaded, sequence, tokens),
                LiveWish::Profile(name) => match self.change(loaded, &options, &name) {
                    Some(next) => loaded = next,
                    None => return,
                },
                LiveWish::Stop | LiveWish::Pace(_) | LiveWish::Step => {}
            }
        }
    }

    fn load(&mut self, options: &mut LiveOptions) -> Result<Loaded> {
        let profile = Profile::load(&options.profile, &Registry::builtin().names())?;
        let path = {
            let watched = Watched(self, AtomicU64::new(1), Mutex::new("looking for the model"));
            store::resolve_or_fetch(&options.model, &watched)?
        };
        self.tell(|status| status.phase = Phase::Starting("loading the model".into(), None));
        let gguf = Gguf::open(&path)?;
        let tokenizer = Tokenizer::from_gguf(&gguf)?;
        let (backend, why) = open(&options.backend, options.device.take())?;
        let title = format!("{}{why}", backend.caps().title());
        self.tell(|status| status.backend = title);
        let load = LoadOptions {
            page_tokens: profile.page_tokens,
            logit_rows: 1,
            calibrations: store::calibrations().ok(),
            ..LoadOptions::default()
        };
        let model = Model::load(&gguf, backend, profile, Registry::builtin(), &load)?;
        let template = ChatTemplate::from_gguf(&gguf).ok();
        let mut loaded = Loaded { model, gguf, tokenizer, template, recorder: None, talks: Vec::new(), present: None };
        self.record(&mut loaded, options)?;
        Ok(loaded)
    }

    /// Begins a new trace of the model's engine.
    fn record(&mut self, loaded: &mut Loaded, options: &LiveOptions) -> Result<()> {
        let file = tempfile::Builder::new().prefix("kvarto-live-").suffix(".kvtr").tempfile();
        let path = file.map_err(|e| Error::new(ErrorKind::File, format!("no temporary trace: {e}"), ""))?;
        let path = path.into_temp_path();
        let model = ModelHeader {
            name: options.model.clone(),
            sha256: loaded.gguf.sha256().into(),
            architecture: loaded.model.config().architecture.name.into(),
            weight_bytes: loaded.model.weight_bytes(),
        };
        loaded.model.tell_tokens(Some(loaded.tokenizer.clone()));
        let engine = loaded.model.engine();
        engine.sample_mass(options.mass_every);
        let pages =
            if options.pages_every == 0 { PageSampling::None } else { PageSampling::Every(options.pages_every) };
        engine.sample_pages(pages);
        let header = Header { command: "live".into(), model: Some(model), ..Header::of(engine) };
        let status = self.status.clone();
        let on_fault = move |error: &Error| {
            let why = format!("the trace ends here: {error}");
            status.lock().unwrap_or_else(PoisonError::into_inner).refused = Some(why);
        };
        let recorder = RecorderOptions {
            target: Some(Target::open(&path)?),
            flush_after: FLUSH,
            on_fault: Some(Box::new(on_fault)),
            ..RecorderOptions::default()
        };
        loaded.recorder = Some(Recorder::start(engine, &header, recorder)?);
        let (name, shown) = (engine.profile().name.clone(), path.to_path_buf());
        self.files.push(path);
        self.tell(|status| {
            status.profile = name;
            status.traces.push(shown);
        });
        Ok(())
    }

    fn prompt(&self, loaded: &mut Loaded, options: &LiveOptions, text: &str, fresh: bool, chat: bool) {
        let present = loaded.present.filter(|_| !fresh);
        let at = present.and_then(|sequence| loaded.talks.iter().position(|talk| talk.sequence() == sequence));
        let at = match at {
            Some(at) => Ok(at),
            None => Talk::new(&mut loaded.model, chat && loaded.template.is_some()).map(|talk| {
                loaded.talks.push(talk);
                loaded.talks.len() - 1
            }),
        };
        let at = match at {
            Ok(at) => at,
            Err(error) => return self.tell(|status| status.refused = Some(error.to_string())),
        };
        let sequence = loaded.talks[at].sequence();
        loaded.present = Some(sequence);
        self.tell(|status| {
            status.phase = Phase::Busy;
            if status.turns.len() >= MOST_TURNS {
                status.turns.remove(0);
            }
            status.turns.push(Turn { sequence: sequence.0, prompt: text.into(), ..Turn::default() });
        });
        self.gate.open();
        let generate = GenerateOptions {
            max_tokens: options.max_tokens,
            sampler: SamplerOptions { temperature: 0.0, ..SamplerOptions::default() },
            stop: Vec::new(),
        };
        let Loaded { model, tokenizer, template, talks, .. } = loaded;
        let mut since = Instant::now();
        let say = |piece: &str| {
            self.tell(|status| {
                if let Some(turn) = status.turns.last_mut() {
                    turn.answer.push_str(piece);
                }
            });
        };
        let cancelled = || {
            let pass = self.gate.pass(since);
            since = Instant::now();
            !pass
        };
        let answered = talks[at].answer(model, tokenizer, template.as_ref(), text, &generate, say, cancelled);
        self.tell(|status| {
            status.phase = Phase::Ready;
            match answered {
                Ok(generation) => {
                    if let Some(turn) = status.turns.last_mut() {
                        turn.figures = Some(figures(&generation));
                    }
                }
                Err(error) => status.refused = Some(error.to_string()),
            }
        });
    }

    fn fork(&self, loaded: &mut Loaded, sequence: u64, tokens: u32) {
        let Loaded { model, talks, .. } = loaded;
        let forked = match talks.iter().find(|talk| talk.sequence() == SeqId(sequence)) {
            Some(talk) => talk.fork(model, tokens).map_err(|error| error.to_string()),
            None => Err(format!("sequence {sequence} is not one of this model's: it has another profile's trace")),
        };
        match forked {
            Ok(talk) => {
                loaded.present = Some(talk.sequence());
                loaded.talks.push(talk);
                self.tell(|_| {});
            }
            Err(why) => self.tell(|status| status.refused = Some(why)),
        }
    }

    /// The same weights under another profile, in a trace of its own. `None` when the model is gone.
    fn change(&mut self, loaded: Loaded, options: &LiveOptions, name: &str) -> Option<Loaded> {
        let profile = match Profile::load(name, &Registry::builtin().names()) {
            Ok(profile) => profile,
            Err(error) => {
                self.tell(|status| status.refused = Some(error.to_string()));
                return Some(loaded);
            }
        };
        self.tell(|status| status.phase = Phase::Starting(format!("an empty cache under {name}"), None));
        let Loaded { model, recorder, .. } = loaded;
        drop(recorder);
        let cache = CacheOptions { page_tokens: profile.page_tokens, ..CacheOptions::default() };
        let made = model.with_cache(profile, Registry::builtin(), &cache);
        let model = match made {
            Ok(model) => model,
            Err(error) => {
                let why = format!("{error}; start the model again");
                self.tell(|status| status.phase = Phase::Failed(why));
                return None;
            }
        };
        let mut next = Loaded { model, recorder: None, talks: Vec::new(), present: None, ..loaded };
        match self.record(&mut next, options) {
            Ok(()) => {
                let engine = next.model.engine();
                let text = engine.profile().to_toml().into();
                engine.announce(Event::ProfileChanged { text });
                self.tell(|status| status.phase = Phase::Ready);
                Some(next)
            }
            Err(error) => {
                self.tell(|status| status.phase = Phase::Failed(error.to_string()));
                None
            }
        }
    }
}

fn figures(generation: &Generation) -> String {
    let rate = |rate: Option<f64>| rate.map_or("-".into(), |rate| format!("{rate:.0} tok/s"));
    format!(
        "{} tokens read at {}, {} written at {}; {}",
        generation.prompt_tokens,
        rate(generation.prefill_tokens_per_s()),
        generation.token_ids.len(),
        rate(generation.decode_tokens_per_s()),
        generation.finish_reason.as_str()
    )
}

/// Opens a backend by its word, or on the window's device; also why it is that one, where the word leaves it open.
fn open(word: &str, device: Option<(wgpu::Device, wgpu::Queue)>) -> Result<(Box<dyn Backend>, &'static str)> {
    if let Some((device, queue)) = device {
        // The window's own callbacks stay.
        let options = OpenOptions { take_callbacks: false, ..OpenOptions::default() };
        return Ok((Box::new(WgpuBackend::from_device(device, queue, &options)?), ", the window's device"));
    }
    let (name, number) = word.split_once(':').unwrap_or((word, "0"));
    let cpu = || -> Result<Box<dyn Backend>> { Ok(Box::new(CpuBackend::new(0)?)) };
    let choice = match (name, number.parse::<usize>()) {
        ("cpu", _) => return Ok((cpu()?, "")),
        ("cuda", Ok(index)) => return Ok((Box::new(CudaBackend::open(index)?), "")),
        // Any profile may be tried on it, so what comes with the crate need not do.
        ("auto", _) => match cuda::best().and_then(|device| cuda::compiles_for(&device).map(|()| device)) {
            Ok(device) => return Ok((Box::new(CudaBackend::open(device.index)?), ", the first CUDA device")),
            Err(error) => {
                log::info!("auto: {error}");
                AdapterChoice::Auto { allow_software: false }
            }
        },
        ("wgpu", _) => AdapterChoice::Auto { allow_software: true },
        ("vulkan" | "metal" | "dx12" | "gl", Ok(index)) => AdapterChoice::Api { api: name.into(), index },
        _ => {
            let known = "auto, cpu, cuda[:N], wgpu, vulkan[:N], metal[:N], dx12[:N], gl[:N]";
            let message = format!("the backend {word:?} is not known");
            return Err(Error::new(ErrorKind::Usage, message, format!("there are {known}")));
        }
    };
    match WgpuBackend::open(&choice) {
        Ok(backend) => Ok((Box::new(backend), "")),
        Err(error) if name == "auto" && error.kind() == ErrorKind::Unsupported => {
            log::info!("auto: {error}");
            Ok((cpu()?, ", since no hardware adapter serves"))
        }
        Err(error) => Err(error),
    }
}
