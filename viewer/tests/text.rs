//! The text: tokens in lines, coloured by their pages, searched, pointed at.

mod support;

use eframe::egui::{self, Pos2, vec2};
use egui_kittest::Harness;
use egui_kittest::kittest::Queryable;
use kvarto::engine::{
    Event, GroupFacts, MassFacts, PageFacts, PageSet, ReadFacts, Reads, SeqId, SequenceRows, Snapshot, StepFacts,
    Timed, TokenPiece,
};
use kvarto::trace::{GroupHeader, Header, TraceWriter};
use kvarto_viewer::app::App;
use kvarto_viewer::store::Place;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use support::*;

const SIZE: u32 = 16;

fn page(page: u32, row: u32, number: u32, k: &str) -> PageFacts {
    PageFacts {
        group: 0,
        page,
        layer: row / 2,
        kv_head: row % 2,
        number,
        formats: (k.into(), "tq3".into()),
        slots: [page; 2],
        segment_group: 0,
        generation: 1,
        flags: 1,
        bytes: 1000,
    }
}

/// Tokens of a text whose every second word is cut within a character, where it has one of several bytes.
fn tokens(count: u32) -> Vec<TokenPiece> {
    let text = "The page map shows pages. Café, 5 × 7 = 35 €; a needle\nlies in the hay.\n\n";
    let bytes: Vec<u8> = text.bytes().cycle().take(count as usize * 5).collect();
    bytes.chunks(5).enumerate().map(|(id, text)| TokenPiece { id: 7 + id as u32, text: text.to_vec() }).collect()
}

/// How often a word stands in a text of `tokens` tokens.
fn count(word: &str, length: u32) -> usize {
    let bytes: Vec<u8> = tokens(length).into_iter().flat_map(|token| token.text).collect();
    String::from_utf8_lossy(&bytes).matches(word).count()
}

/// A sequence of `count` tokens in four lists; the first pages in other formats, one evicted, masses and reads sampled.
fn events(count: u32) -> Vec<Event> {
    let sequence = SeqId(1);
    let groups = vec![GroupFacts { page_tokens: SIZE, layers: vec![0, 1], kv_heads: 2 }];
    let snapshot = Box::new(Snapshot { groups, ..Snapshot::default() });
    let mut events = vec![Event::Resync { dropped: 0, snapshot }, Event::SequenceCreated { sequence }];
    let pages = count.div_ceil(SIZE);
    for number in 0..pages {
        for row in 0..4 {
            let format = ["tq4", "fp8", "f16", "q3_affine"][((number / 2) % 4) as usize];
            let page = page(number * 4 + row, row, number, format);
            events.push(Event::PageAllocated { sequence, page, copy_of: None, reason: "rows".into() });
        }
    }
    events.push(Event::Tokens { sequence, first_position: 0, tokens: tokens(count) });
    let gone = page(4, 0, 1, "tq4");
    events.push(Event::PageEvicted { sequence, page: gone, reason: "cold".into() });
    for layer in 0..2 {
        let share = |number: u32, head: u32| if number == layer * 2 + head { 0.7 } else { 0.3 / (pages - 1) as f32 };
        let shares = (0..2).map(|head| (0..pages).map(|number| share(number, head)).collect()).collect();
        events.push(Event::AttentionMass(MassFacts { step: 1, sequence, group: 0, layer, first_page: 0, shares }));
    }
    let read =
        Reads::Rows((0..4).map(|row| PageSet::of((0..pages).filter(|page| page % (row + 1) == 0).collect())).collect());
    events.push(Event::UnitsRead(ReadFacts {
        step: 1,
        sequence,
        group: 0,
        unit_tokens: SIZE,
        visible: 0..pages,
        read,
    }));
    let sequences = vec![SequenceRows { sequence, first_position: 0, rows: count, committed: true }];
    events.push(Event::StepDone(StepFacts { step: 1, rows: count, sequences, ..StepFacts::default() }));
    events
}

fn written(name: &str, events: Vec<Event>) -> PathBuf {
    let group = GroupHeader {
        layers: vec![0, 1],
        page_tokens: SIZE,
        kv_heads: 2,
        k_dim: 64,
        v_dim: 64,
        ..GroupHeader::default()
    };
    let header = Header { command: "test".into(), groups: vec![group], ..Header::default() };
    let mut writer = TraceWriter::new(Vec::new(), &header).unwrap();
    for (at, event) in events.into_iter().enumerate() {
        writer.push(&Timed { ns: 1000 + at as u64 * 1000, event: Arc::new(event) }).unwrap();
    }
    let path = std::env::temp_dir().join(format!("kvarto-text-{name}-{}.kvtr", std::process::id()));
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    path
}

fn shown<'a>(name: &str, count: u32, size: [f32; 2]) -> Harness<'a, App> {
    harness(app(&written(name, events(count)), None), Some("text"), size)
}

fn place(number: u32) -> Place {
    Place { sequence: SeqId(1), group: 0, row: 0, number }
}

/// Where the tokens' first line is.
fn first_line(shown: &Harness<'_, App>) -> Pos2 {
    let legend = shown.get_by_label("no page").rect();
    egui::pos2(10.0, legend.bottom() + 18.0)
}

fn press(shown: &mut Harness<'_, App>, at: Pos2) {
    shown.hover_at(at);
    shown.run_steps(2);
    let button = egui::PointerButton::Primary;
    for pressed in [true, false] {
        shown.event(egui::Event::PointerButton { pos: at, button, pressed, modifiers: egui::Modifiers::NONE });
        shown.step();
    }
    shown.run_steps(2);
}

#[test]
fn a_picture_by_format_with_a_page_and_a_search() {
    if can_draw() {
        let mut app = app(&written("picture", events(600)), None);
        app.selection.page = Some(place(2));
        app.selection.brush = Some(4..6);
        let mut shown = harness(app, Some("text"), [700.0, 500.0]);
        shown.get_by_role(egui::accesskit::Role::TextInput).focus();
        shown.step();
        shown.get_by_role(egui::accesskit::Role::TextInput).type_text("pages");
        shown.run_steps(4);
        assert!(shown.query_by_label(&format!("1 of {}", count("pages", 600))).is_some());
        picture(&mut shown, "text");
    }
}

#[test]
fn a_picture_by_attention_in_light_and_narrow() {
    if can_draw() {
        let mut app = app(&written("light", events(600)), None);
        app.settings.dark = false;
        app.selection.page = Some(place(0));
        let mut shown = harness(app, Some("text"), [400.0, 500.0]);
        shown.get_by_label("attention").click();
        shown.run_steps(3);
        picture(&mut shown, "text-light-narrow");
    }
}

#[test]
fn a_table_has_every_token_with_its_page() {
    let app = app(&written("table", events(100)), None);
    let table = app.table("text").expect("a table");
    assert_eq!(table.head, ["position", "id", "text", "page", "K format", "V format"]);
    assert_eq!(table.rows.len(), 100);
    assert_eq!(table.rows[0], ["0", "7", "The p", "0", "tq4", "tq3"]);
    // The second page is evicted from the first list.
    assert_eq!(table.rows[20][3..], ["1".to_string(), String::new(), String::new()]);
    assert_eq!(table.rows[40][3..], ["2", "fp8", "tq3"]);
    let text: String = table.rows.iter().map(|row| row[2].as_str()).collect();
    assert!(text.contains("Café, 5 × 7 = 35 €; a needle¶\nlies"), "{text}");
}

#[test]
fn the_samples_have_their_text() {
    let app = chat(None);
    let table = app.table("text").expect("a table");
    let text: String = table.rows.iter().map(|row| row[2].as_str()).collect();
    assert!(text.contains("<|im_start|>user"), "{text}");
    assert!(!text.contains("\\x"), "{text}");
}

#[test]
fn a_click_selects_the_page_and_the_pointer_tells_it() {
    let mut shown = shown("click", 100, [500.0, 900.0]);
    let at = first_line(&shown);
    shown.hover_at(at);
    shown.run_steps(3);
    assert_eq!(shown.state().selection.hover, Some(place(0)));
    press(&mut shown, at);
    assert_eq!(shown.state().selection.page, Some(place(0)));
    // Further down there are other pages; none of them is known before.
    press(&mut shown, at + vec2(60.0, 4.0 * 21.0));
    assert!(shown.state().selection.page.is_some_and(|page| page.number > 0));
}

#[test]
fn a_search_counts_turns_and_scrolls() {
    let mut shown = shown("search", 2000, [500.0, 400.0]);
    let input = egui::accesskit::Role::TextInput;
    shown.get_by_role(input).focus();
    shown.step();
    shown.get_by_role(input).type_text("NEEDLE");
    shown.run_steps(4);
    let count = count("needle", 2000);
    assert!(shown.query_by_label(&format!("1 of {count}")).is_some());
    shown.key_press(egui::Key::Enter);
    shown.run_steps(4);
    assert!(shown.query_by_label(&format!("2 of {count}")).is_some());
    shown.get_by_label("<").click();
    shown.run_steps(3);
    shown.get_by_label("<").click();
    shown.run_steps(3);
    assert!(shown.query_by_label(&format!("{count} of {count}")).is_some());
    // The last place is in sight: what is under the pointer is of the last pages.
    shown.hover_at(egui::pos2(12.0, 330.0));
    shown.run_steps(3);
    assert!(shown.state().selection.hover.is_some_and(|page| page.number > 110), "{:?}", shown.state().selection.hover);
}

#[test]
fn it_follows_the_end_and_goes_to_a_page_selected_elsewhere() {
    let mut shown = shown("follow", 2000, [500.0, 400.0]);
    let low = egui::pos2(12.0, 330.0);
    shown.hover_at(low);
    shown.run_steps(3);
    assert!(shown.state().selection.hover.is_some_and(|page| page.number > 120), "{:?}", shown.state().selection.hover);
    shown.state_mut().selection.page = Some(place(60));
    shown.run_steps(3);
    shown.hover_at(low + vec2(1.0, 0.0));
    shown.run_steps(3);
    let near = shown.state().selection.hover.map(|page| page.number);
    assert!(near.is_some_and(|page| (58..70).contains(&page)), "{near:?}");
}

#[test]
fn choices_say_what_they_show_or_that_it_is_not_there() {
    let mut shown = shown("choices", 200, [700.0, 400.0]);
    shown.get_by_label("attention").click();
    shown.run_steps(2);
    // Each of four lists gives 0.7 to a page of its own and 0.025 to each other one: 19.375 % on the average.
    assert!(shown.query_by_label_contains("19.3").is_some());
    shown.get_by_label("reads").click();
    shown.run_steps(2);
    assert!(shown.query_by_label_contains("Read in step 1 by all layers and heads").is_some());
    shown.get_by_label("tier").click();
    shown.run_steps(2);
    assert!(shown.query_by_label("device").is_some());
    let bare = events(100).into_iter().filter(|event| !matches!(event, Event::AttentionMass(_))).collect();
    let mut shown = harness(app(&written("bare", bare), None), Some("text"), [700.0, 400.0]);
    shown.get_by_label("attention").click();
    shown.run_steps(2);
    assert!(shown.query_by_label_contains("not in this trace").is_some());
    let silent = events(100).into_iter().filter(|event| !matches!(event, Event::Tokens { .. })).collect();
    let shown = harness(app(&written("silent", silent), None), Some("text"), [700.0, 400.0]);
    assert!(shown.query_by_label_contains("Text of tokens: not in this trace").is_some());
}

#[test]
fn damage_is_no_fault_of_the_view() {
    let sequence = SeqId(1);
    let mut wild = events(100);
    let odd = ["\u{202e}\u{7}\t😀语", "\n\n\r\n", ""].map(|text| TokenPiece { id: u32::MAX, text: text.into() });
    let bytes = (0..64).map(|n| TokenPiece { id: n, text: vec![0x80 + n as u8 * 2; 3] });
    wild.push(Event::Tokens { sequence, first_position: 150, tokens: odd.into_iter().chain(bytes).collect() });
    wild.push(Event::Tokens { sequence, first_position: u32::MAX, tokens: tokens(3) });
    let shares = vec![vec![f32::NAN, f32::INFINITY, -1.0], Vec::new()];
    let first_page = u32::MAX - 1;
    wild.push(Event::AttentionMass(MassFacts {
        step: 9,
        sequence,
        group: 0,
        layer: 77,
        first_page,
        shares: shares.clone(),
    }));
    wild.push(Event::AttentionMass(MassFacts { step: 9, sequence, group: 0, layer: 0, first_page: 0, shares }));
    let read = Reads::Same(PageSet::from_ranges(vec![0..1, 3..u32::MAX]).unwrap());
    wild.push(Event::UnitsRead(ReadFacts {
        step: 9,
        sequence,
        group: 0,
        unit_tokens: 0,
        visible: Range { start: 5, end: 2 },
        read,
    }));
    let mut app = app(&written("damaged", wild), None);
    app.selection.row = Some(usize::MAX);
    app.selection.page = Some(Place { sequence, group: 9, row: 0, number: u32::MAX });
    app.selection.brush = Some(0..u32::MAX);
    let table = app.table("text").expect("a table");
    assert!(table.rows.iter().any(|row| row[2].contains("<U+202E>^G»")));
    let mut shown = harness(app, Some("text"), [240.0, 300.0]);
    for choice in ["attention", "reads", "tier", "format", "monospace"] {
        shown.get_by_label(choice).click();
        shown.run_steps(2);
        shown.hover_at(egui::pos2(60.0, 200.0));
        shown.run_steps(2);
    }
}
