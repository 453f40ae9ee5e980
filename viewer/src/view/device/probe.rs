//! What this machine can run: what `kvarto doctor` finds, on a thread of its own.

use kvarto::Result;
use kvarto::backend::wgpu::OpenOptions;
use kvarto::backend::{Adapter, Caps};
use kvarto::selftest::{self, FORMATS, KernelReport, SelfTest, Verdict};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::Instant;

/// An adapter and what was found of it so far.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// The word for `--backend`: `cpu`, `vulkan:0`.
    pub word: String,
    /// Its name and type.
    pub name: String,
    /// Why the kernels cannot run on it, if they cannot.
    pub refusal: Option<String>,
    /// Lines on the driver, limits and features.
    pub lines: Vec<(String, String)>,
    /// What came of it, once all was tried.
    pub outcome: Option<Outcome>,
}

/// What came of an adapter.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Whether everything that was tried passed.
    pub passed: bool,
    /// In a few words.
    pub words: String,
    /// Specialisations that do not compile, by reason, and what broke off.
    pub faults: Vec<String>,
    /// Formats and what came of each.
    pub formats: Vec<(String, String)>,
}

/// What the thread tells.
enum News {
    /// All adapters; nothing was tried yet.
    Adapters(Vec<Found>),
    /// What it is doing.
    Doing(String),
    /// An adapter was looked at.
    Looked(usize, Box<Found>),
    /// It ended, early if it was asked to.
    Ended(&'static str),
}

/// A look at the machine, running or done.
pub struct Probe {
    /// Adapters so far.
    pub found: Vec<Found>,
    /// What it is doing, or how it ended.
    pub doing: String,
    /// Whether it still runs.
    pub running: bool,
    news: Receiver<News>,
    stop: Arc<AtomicBool>,
}

impl Probe {
    /// Begins to look. `wake` is called when there is something new.
    pub fn begin(wake: impl Fn() + Send + 'static) -> Self {
        let (sender, news) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let line = Line { sender, wake: Box::new(wake), stop: stop.clone() };
        let spawned = std::thread::Builder::new().name("probe".into()).spawn(move || line.run());
        let (running, doing) = match spawned {
            Ok(_) => (true, "asking for adapters".into()),
            Err(e) => (false, format!("no thread to look with: {e}")),
        };
        Probe { found: Vec::new(), doing, running, news, stop }
    }

    /// Takes in what the thread told.
    pub fn listen(&mut self) {
        while self.running {
            match self.news.try_recv() {
                Ok(News::Adapters(found)) => self.found = found,
                Ok(News::Doing(doing)) => self.doing = doing,
                Ok(News::Looked(at, found)) => {
                    if let Some(place) = self.found.get_mut(at) {
                        *place = *found;
                    }
                }
                Ok(News::Ended(how)) => (self.running, self.doing) = (false, how.into()),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    (self.running, self.doing) = (false, "it broke off: standard error says why".into());
                }
            }
        }
    }

    /// Asks it to stop; what it is at is finished first.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.doing = "stopping after this".into();
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

/// The thread's end of the line.
struct Line {
    sender: Sender<News>,
    wake: Box<dyn Fn() + Send>,
    stop: Arc<AtomicBool>,
}

impl Line {
    fn say(&self, news: News) {
        // Nobody listens any more where the window has closed.
        let _ = self.sender.send(news);
        (self.wake)();
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    fn run(&self) {
        let adapters = Adapter::all();
        let found: Vec<Found> = adapters.iter().map(described).collect();
        self.say(News::Adapters(found.clone()));
        let test = SelfTest::new();
        for (at, (adapter, mut found)) in adapters.iter().zip(found).enumerate() {
            if self.stopped() {
                return self.say(News::Ended("stopped"));
            }
            if found.refusal.is_none() {
                let outcome = self.look(adapter, &mut found, &test);
                found.outcome = Some(outcome);
                self.say(News::Looked(at, Box::new(found)));
            }
        }
        self.say(News::Ended(if self.stopped() { "stopped" } else { "all adapters were looked at" }));
    }

    fn look(&self, adapter: &Adapter, found: &mut Found, test: &SelfTest) -> Outcome {
        let start = Instant::now();
        let (mut kernels, mut verdicts) = (Vec::new(), Vec::new());
        let tried = self.try_all(adapter, found, test, &mut kernels, &mut verdicts);
        let tier = tried.as_ref().map_or("no", |tier| tier.as_str()).to_string();
        let good: usize = kernels.iter().map(|kernel: &KernelReport| kernel.compiled).sum();
        let mut faults = by_reason(&kernels);
        faults.extend(tried.err().map(|error| error.to_string()));
        let passing = verdicts.iter().filter(|verdict: &&Verdict| verdict.passed()).count();
        let passed = faults.is_empty() && passing == FORMATS.len();
        let verdict = |verdict: &Verdict| {
            let word = if verdict.passed() { "pass" } else { "FAIL" };
            let why = verdict.fault.as_ref().map_or(String::new(), |error| format!(": {error}"));
            let words = format!("{word}{why}, worst error {:.1e} of {:.1e} allowed", verdict.worst, verdict.tolerance);
            (verdict.format.clone(), words)
        };
        let stopped = if self.stopped() { ", stopped early" } else { "" };
        let seconds = start.elapsed().as_secs_f64();
        let words = format!(
            "{tier} tier, {good} kernels compiled, {passing} of {} formats pass, {seconds:.1} s{stopped}",
            FORMATS.len()
        );
        Outcome { passed, words, faults, formats: verdicts.iter().map(verdict).collect() }
    }

    /// The adapter's tier.
    fn try_all(
        &self,
        adapter: &Adapter,
        found: &mut Found,
        test: &SelfTest,
        kernels: &mut Vec<KernelReport>,
        verdicts: &mut Vec<Verdict>,
    ) -> Result<String> {
        self.say(News::Doing(format!("{}: kernels", found.word)));
        let mut backend = adapter.open(&OpenOptions::default())?;
        let tier = backend.caps().tier.clone();
        found.lines = caps_lines(backend.caps());
        *kernels = selftest::kernels(backend.as_mut())?;
        let mut held = Some(backend);
        for (format, known_nmse) in FORMATS {
            if self.stopped() {
                break;
            }
            self.say(News::Doing(format!("{}: self-test of {format}", found.word)));
            let backend = match held.take() {
                Some(backend) => backend,
                None => adapter.open(&OpenOptions::default())?,
            };
            let (back, verdict) = test.run(backend, format, known_nmse);
            // After a fault the device itself may be in trouble: the next format gets a fresh one.
            held = back.filter(|_| verdict.fault.is_none());
            verdicts.push(verdict);
        }
        Ok(tier)
    }
}

/// What is known before anything is tried.
fn described(adapter: &Adapter) -> Found {
    let name = match adapter.name() {
        Some(name) => format!("{name} ({})", adapter.device_type()),
        None => "this machine's processor".into(),
    };
    let mut lines: Vec<(String, String)> = adapter.driver().into_iter().map(|d| ("driver".into(), d)).collect();
    lines.extend(adapter.report().map(|report| ("features".into(), listed(&report.features))));
    Found { word: adapter.word(), name, refusal: adapter.refusal().map(String::from), lines, outcome: None }
}

fn caps_lines(caps: &Caps) -> Vec<(String, String)> {
    let limit = |n: u32| if n == u32::MAX { "any".to_string() } else { crate::units::count(n.into()) };
    let workgroup = match caps.max_workgroup_bytes {
        u32::MAX => "any".into(),
        bytes => crate::units::bytes(bytes.into()),
    };
    let mut lines = vec![
        ("adapter".to_string(), format!("{} ({})", caps.adapter, caps.device_type)),
        ("driver".into(), if caps.driver.is_empty() { "not stated".into() } else { caps.driver.clone() }),
        ("largest binding".into(), crate::units::bytes(caps.max_binding_bytes)),
        ("largest buffer".into(), crate::units::bytes(caps.max_buffer_bytes)),
        ("workgroup memory".into(), workgroup),
        ("invocations".into(), limit(caps.max_invocations)),
        ("features in use".into(), listed(&caps.features)),
    ];
    if let Some((least, most)) = caps.subgroups {
        lines.push((
            "subgroups".into(),
            if least == most { format!("of {least}") } else { format!("of {least} to {most}") },
        ));
    }
    lines
}

fn listed(words: &[String]) -> String {
    if words.is_empty() { "none".into() } else { words.join(", ") }
}

/// A line a reason: a driver that runs no kernel at all says the same of each.
fn by_reason(kernels: &[KernelReport]) -> Vec<String> {
    let mut reasons: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for (key, error) in kernels.iter().flat_map(|kernel| &kernel.refused) {
        let text = error.to_string();
        let reason =
            text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no reason given").to_string();
        reasons.entry(reason).or_insert_with(|| (key.clone(), 0)).1 += 1;
    }
    let line = |(reason, (key, count)): (String, (String, usize))| match count {
        1 => format!("{key} is refused: {reason}"),
        _ => format!("{key} and {} more are refused: {reason}", count - 1),
    };
    reasons.into_iter().map(line).collect()
}
