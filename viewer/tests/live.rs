//! `--live`: a real model, looked at while it writes.

mod support;

use eframe::egui;
use egui_kittest::kittest::Queryable;
use kvarto::engine::SeqId;
use kvarto_viewer::app::App;
use kvarto_viewer::live::{LiveOptions, LiveWish, Pace, Phase};
use kvarto_viewer::settings::Settings;
use kvarto_viewer::view::Act;
use std::time::{Duration, Instant};
use support::{PATIENCE, can_draw, harness, minima, picture};

fn options(profile: &str) -> LiveOptions {
    LiveOptions {
        model: "smollm2-135m".into(),
        profile: profile.into(),
        backend: "cpu".into(),
        device: None,
        mass_every: 4,
        pages_every: 4,
        max_tokens: 24,
        prompt: None,
    }
}

struct Window {
    context: egui::Context,
    app: App,
}

impl Window {
    fn new(options: LiveOptions) -> Self {
        let context = egui::Context::default();
        let mut app = App::new(&context, Settings::default(), None);
        app.start_live(options);
        Window { context, app }
    }

    fn frame(&mut self) {
        let Window { context, app } = self;
        let mut output = context.run_ui(egui::RawInput::default(), |ui| app.ui(ui));
        output.textures_delta.clear();
        std::thread::sleep(Duration::from_millis(2));
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&App) -> bool) {
        let start = Instant::now();
        while !done(&self.app) {
            let status = self.app.live_status();
            assert!(start.elapsed() < PATIENCE, "{what}: {status:?} {:?}", self.app.messages);
            self.frame();
        }
    }

    fn wish(&mut self, wish: LiveWish) {
        self.app.act(Act::Live(wish), &self.context.clone());
    }

    /// Until the newest answer is finished.
    fn answered(&mut self, turns: usize) {
        self.until("an answer", |app| {
            let status = app.live_status().expect("a model");
            status.phase == Phase::Ready && status.turns.len() == turns && status.turns[turns - 1].figures.is_some()
        });
    }
}

fn prompt(text: &str, fresh: bool, chat: bool) -> LiveWish {
    LiveWish::Prompt { text: text.into(), fresh, chat }
}

fn has_model() -> bool {
    let there = kvarto::model::store::resolve("smollm2-135m").is_ok();
    let required = std::env::var("KVARTO_REQUIRE").is_ok_and(|words| words.split(',').any(|word| word == "model"));
    assert!(there || !required, "the model is not there");
    there
}

#[test]
fn a_model_answers_forks_and_changes_its_profile() {
    if !has_model() {
        return eprintln!("skipped: no model");
    }
    let mut window = Window::new(options("minima-kv"));
    window.until("a model", |app| app.live_status().is_some_and(|status| status.phase == Phase::Ready));
    window.wish(prompt("Name three colours.", true, true));
    window.answered(1);
    let first = window.app.live_status().expect("a model").turns[0].clone();
    // A step is told before its tokens, which may come with the next chunk.
    window.until("its trace", |app| {
        let store = &app.player.store;
        let held = store.state.sequences.get(&SeqId(first.sequence)).map_or(0, |held| held.logical as usize);
        held > 0 && store.chronicle.lineage.text(SeqId(first.sequence), store.events_done()).len() == held
    });
    assert!(!first.answer.trim().is_empty());
    let store = &window.app.player.store;
    assert_eq!((store.header.command.as_str(), store.header.profile.as_str()), ("live", "minima-kv"));
    let held = store.state.sequences[&SeqId(first.sequence)].logical;
    let text = store.chronicle.lineage.text(SeqId(first.sequence), store.events_done());
    assert_eq!(text.len(), held as usize);
    assert!(!store.chronicle.masses.samples().is_empty(), "attention is sampled");

    // A part of it, gone on with as a text.
    window.wish(LiveWish::Fork { sequence: first.sequence, tokens: held - 5 });
    window.wish(prompt(" and then", false, true));
    window.answered(2);
    let second = window.app.live_status().expect("a model").turns[1].clone();
    assert_ne!(second.sequence, first.sequence);
    window.until("the fork", |app| {
        let life = app.player.store.chronicle.lineage.of(SeqId(second.sequence));
        life.is_some_and(|life| life.from == Some((SeqId(first.sequence), held - 5)))
    });

    // Another profile: a new trace, in which the next sequence is.
    window.wish(LiveWish::Profile("tq3".into()));
    window.wish(prompt("Once", true, false));
    window.answered(3);
    window.until("the other trace", |app| {
        app.player.store.header.profile == "tq3" && app.player.store.chronicle.lineage.has_text()
    });
    assert_eq!(window.app.player.store.chronicle.profiles.items().len(), 1);
    assert!(window.app.messages.is_empty(), "{:?}", window.app.messages);

    // What cannot be is said, and nothing is lost.
    window.wish(LiveWish::Profile("no-such-profile".into()));
    window.until("a refusal", |app| app.live_status().is_some_and(|status| status.refused.is_some()));
    window.wish(LiveWish::Fork { sequence: 999, tokens: 1 });
    window.until("a refusal", |app| {
        app.live_status().is_some_and(|status| status.refused.is_some_and(|why| why.contains("999")))
    });
    window.wish(prompt("upon", false, false));
    window.answered(4);
}

#[test]
fn it_goes_step_by_step_and_stops() {
    if !has_model() {
        return eprintln!("skipped: no model");
    }
    let mut window = Window::new(LiveOptions { max_tokens: 400, ..options("dense") });
    window.until("a model", |app| app.live_status().is_some_and(|status| status.phase == Phase::Ready));
    window.wish(LiveWish::Pace(Pace::Steps));
    window.wish(prompt("One, two, three,", true, false));
    for wanted in 2..5u64 {
        window.wish(LiveWish::Step);
        window.until("a step", |app| app.player.store.state.step >= wanted - 1);
        (0..40).for_each(|_| window.frame());
        let step = window.app.player.store.state.step;
        assert!(step <= wanted, "{step} steps where {wanted} were wished");
    }
    window.wish(LiveWish::Stop);
    window.answered(1);
    let figures = window.app.live_status().expect("a model").turns[0].figures.clone();
    assert!(figures.expect("figures").contains("cancelled"));
}

#[test]
fn where_nothing_runs_something_is_offered() {
    if !can_draw() {
        return;
    }
    let mut shown = harness(minima(Some(150)), Some("live"), [480.0, 400.0]);
    picture(&mut shown, "live");
    shown.get_by_label("Start").click();
    shown.run_steps(2);
    let status = shown.state().live_status().expect("a model is loaded");
    assert_eq!((status.model.as_str(), status.profile.as_str()), ("smollm2-135m", "minima-kv"));
}

#[test]
fn what_cannot_be_run_is_said() {
    let mut window = Window::new(LiveOptions { model: "there/is/no/model.gguf".into(), ..options("dense") });
    window.until("a failure", |app| {
        app.live_status()
            .is_some_and(|status| matches!(&status.phase, Phase::Failed(why) if why.contains("no/model.gguf")))
    });
    let mut window = Window::new(options("no-such-profile"));
    window.until("a failure", |app| {
        app.live_status()
            .is_some_and(|status| matches!(&status.phase, Phase::Failed(why) if why.contains("no-such-profile")))
    });
    window.frame();
}
