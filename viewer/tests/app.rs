//! The window as a whole: ways in, transport, messages.

mod support;

use eframe::egui::{self, Key, Pos2};
use egui_kittest::kittest::Queryable;
use kvarto_viewer::app::{App, Opening};
use kvarto_viewer::player::Speed;
use kvarto_viewer::samples;
use kvarto_viewer::settings::Settings;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::bare::{Bare, SIZE, bytes, empty, temporary};
use support::{PATIENCE, can_draw, chat, harness, minima, picture};

#[test]
fn a_newcomer_sees_a_cache_breathe() {
    let mut bare = Bare::new(empty());
    bare.app.open_sample(samples::minima(), Opening::Play);
    let start = Instant::now();
    bare.until("pages", |app| app.player.store.state.pages.len() > 100);
    let first = bare.app.player.store.state.clone();
    bare.until("a change", |app| app.player.store.state.pages != first.pages);
    assert!(bare.app.messages.is_empty(), "{:?}", bare.app.messages);
    println!("changing pages after {:.2} s", start.elapsed().as_secs_f64());
}

#[test]
fn the_first_picture() {
    if can_draw() {
        let mut harness = harness(minima(Some(150)), None, SIZE);
        picture(&mut harness, "window-dark");
        harness.state_mut().settings.dark = false;
        harness.run_steps(3);
        picture(&mut harness, "window-light");
    }
}

#[test]
fn keys_play_step_and_show_help() {
    if !can_draw() {
        return;
    }
    let mut app = minima(Some(20));
    app.player.speed = Speed::Most;
    let mut harness = harness(app, None, SIZE);
    let step = |harness: &egui_kittest::Harness<'_, App>| harness.state().player.store.state.step;
    let wait = |harness: &mut egui_kittest::Harness<'_, App>, wanted: u64| {
        let start = Instant::now();
        while step(harness) != wanted {
            assert!(start.elapsed() < PATIENCE, "step {} in place of {wanted}", step(harness));
            harness.step();
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    assert_eq!(step(&harness), 20);
    harness.key_press(Key::ArrowRight);
    wait(&mut harness, 21);
    harness.key_press(Key::ArrowLeft);
    wait(&mut harness, 20);
    harness.key_press_modifiers(egui::Modifiers::SHIFT, Key::ArrowRight);
    wait(&mut harness, 30);
    harness.key_press(Key::End);
    wait(&mut harness, 207);
    harness.key_press(Key::Home);
    wait(&mut harness, 0);
    harness.key_press(Key::Space);
    wait(&mut harness, 207);
    harness.step();
    assert!(!harness.state().player.playing, "it stops at the end");
    harness.key_press(Key::H);
    harness.run_steps(3);
    assert!(harness.query_by_label("play or pause").is_some());
    harness.key_press(Key::H);
    harness.run_steps(3);
    assert!(harness.query_by_label("play or pause").is_none());
    harness.key_press(Key::Minus);
    harness.step();
    assert_eq!(harness.state().player.speed, Speed::Time(4.0));
}

#[test]
fn the_list_of_keys() {
    if can_draw() {
        let mut harness = harness(minima(Some(150)), None, SIZE);
        harness.key_press(Key::H);
        harness.run_steps(40);
        picture(&mut harness, "help");
    }
}

#[test]
fn scrubbing_seeks() {
    if !can_draw() {
        return;
    }
    let mut harness = harness(minima(None), None, SIZE);
    let line = harness.get_by_label("Scrub").rect();
    let at = Pos2::new(line.left() + line.width() * 0.5, line.center().y);
    harness.hover_at(at);
    harness.step();
    harness.drag_at(at);
    harness.step();
    harness.drop_at(at);
    let (start, all) = (Instant::now(), harness.state().player.store.chronicle.events);
    while harness.state().player.store.events_done() == all && start.elapsed() < PATIENCE {
        harness.step();
        std::thread::sleep(Duration::from_millis(1));
    }
    let done = harness.state().player.store.events_done() as f64 / all as f64;
    assert!((done - 0.5).abs() < 0.02, "{done}");
}

#[derive(Debug)]
struct Dropped(PathBuf);

impl egui::DroppedFile for Dropped {
    fn path(&self) -> &Path {
        &self.0
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        std::fs::read(&self.0).map_err(|e| e.to_string())
    }
}

#[test]
fn files_are_dropped_and_damaged_ones_give_a_message() {
    if !can_draw() {
        return;
    }
    let mut harness = harness(minima(None), None, SIZE);
    let damaged = temporary(b"KVTRand nothing that is a trace");
    harness.input_mut().dropped_files.push(Arc::new(Dropped(damaged.path().into())));
    let start = Instant::now();
    while harness.state().messages.is_empty() && start.elapsed() < PATIENCE {
        harness.step();
        std::thread::sleep(Duration::from_millis(1));
    }
    let said = harness.state().messages.join("\n");
    assert!(said.contains(&damaged.path().display().to_string()), "{said}");
    harness.run_steps(2);
    assert!(
        harness.query_by_label_contains("checksum").is_some() || harness.query_by_label_contains("header").is_some()
    );
    // The program goes on: a good file works as before.
    let good = samples::chat().expect("a sample");
    harness.input_mut().dropped_files.push(Arc::new(Dropped(good)));
    let start = Instant::now();
    while harness.state().player.store.state.pages.is_empty() && start.elapsed() < PATIENCE {
        harness.step();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!harness.state().player.store.state.pages.is_empty());
}

#[test]
fn a_file_that_grows_is_followed() {
    let whole = bytes(samples::chat());
    let file = temporary(&whole[..whole.len() / 3]);
    let mut bare = Bare::new(empty());
    bare.app.open(file.path(), Opening::Follow);
    bare.until("the first part", |app| app.player.store.events_done() > 0);
    let part = bare.app.player.store.events_done();
    (0..5).for_each(|_| bare.frame());
    for share in [2, 1] {
        std::fs::write(file.path(), &whole[..whole.len() / share]).expect("it can be written");
        std::thread::sleep(Duration::from_millis(100));
        (0..20).for_each(|_| bare.frame());
    }
    let all = chat(None).player.store.chronicle.events;
    bare.until("the end", |app| app.player.store.events_done() == all);
    assert!(part < all && bare.app.messages.is_empty(), "{part} of {all}: {:?}", bare.app.messages);
}

#[test]
fn a_state_is_the_same_however_it_was_reached() {
    let seek = |step| minima(Some(step)).player.store.state;
    let mut walked = minima(Some(0));
    for step in [1u64, 2, 60, 61, 140] {
        let start = Instant::now();
        while walked.player.store.state.step < step {
            walked.player.step_forward();
            walked.player.tick(0.0, Duration::from_millis(5));
            assert!(start.elapsed() < PATIENCE);
        }
        // A step is told before its bytes are: what follows it until the next one may differ by that.
        let (mut there, mut here) = (seek(step), walked.player.store.state.clone());
        (there.memory, here.memory) = Default::default();
        assert_eq!(there.step, here.step);
        assert_eq!(there.sequences, here.sequences, "step {step}");
        assert_eq!(there.pages, here.pages, "step {step}");
    }
}

#[test]
fn figures_are_those_of_the_trace() {
    let app = minima(None);
    let store = &app.player.store;
    assert_eq!(store.state.page_bytes(), store.state.memory.used_slot_bytes());
    let bits = store.bits().expect("bits");
    // Thirty layers, three heads, 64 channels of K and of V, for each token once.
    let tokens: u64 = store.state.sequences.values().map(|held| u64::from(held.logical)).sum();
    assert_eq!(bits.values, tokens * 30 * 3 * 128);
    assert!((4.0..8.0).contains(&bits.resident), "{bits:?}");
    let text: String = {
        let sequence = *store.state.sequences.keys().next().expect("a sequence");
        let pieces = store.chronicle.lineage.text(sequence, store.events_done());
        assert_eq!(pieces.len() as u64, tokens);
        let bytes: Vec<u8> = pieces.into_iter().flatten().flat_map(|piece| piece.text.clone()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    assert!(text.split_whitespace().count() > 1000);
}

#[test]
fn forks_hold_their_origins_text() {
    let app = chat(None);
    let store = &app.player.store;
    let forks = store.chronicle.lineage.lives().filter(|(_, life)| life.from.is_some());
    let mut seen = 0;
    for (sequence, life) in forks {
        let (from, common) = life.from.expect("a fork");
        let of = |sequence| -> Vec<u32> {
            let pieces = store.chronicle.lineage.text(sequence, life.born.event + 1);
            pieces.into_iter().flatten().map(|piece| piece.id).collect()
        };
        assert_eq!(of(sequence), of(from)[..common as usize]);
        assert!(common > 0);
        seen += 1;
    }
    assert!(seen > 0, "the sample has a fork");
}

#[test]
fn settings_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("deep").join("viewer.json");
    let mut app = App::new(&egui::Context::default(), Settings::default(), Some(place.clone()));
    app.open(&samples::chat().expect("a sample"), Opening::Stand);
    app.settings.dark = false;
    app.player.speed = Speed::Time(4.0);
    app.keep();
    let kept = Settings::load(&place);
    assert!(!kept.dark && kept.speed == Speed::Time(4.0) && kept.recent.len() == 1 && kept.layout.is_some());
    std::fs::write(&place, "{ not json").expect("it can be written");
    assert_eq!(Settings::load(&place), Settings::default());
    // A layout without all views is not taken.
    let short = Settings { layout: Some(kvarto_viewer::layout::alone("text")), ..Settings::default() };
    let app = App::new(&egui::Context::default(), short, None);
    assert_eq!(app.view_ids().len(), 9);
}
