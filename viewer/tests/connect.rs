//! `--connect`: programs that serve their events, and those that do not.

mod support;

use eframe::egui;
use kvarto_viewer::app::App;
use kvarto_viewer::samples;
use kvarto_viewer::settings::Settings;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{PATIENCE, chat};

struct Window {
    context: egui::Context,
    app: App,
}

impl Window {
    fn to(peer: &str) -> Self {
        let context = egui::Context::default();
        let mut app = App::new(&context, Settings::default(), None);
        app.connect(peer);
        Window { context, app }
    }

    fn until(&mut self, what: &str, mut done: impl FnMut(&App) -> bool) {
        let start = Instant::now();
        while !done(&self.app) {
            assert!(start.elapsed() < PATIENCE, "{what}: {:?}", self.app.messages);
            let Window { context, app } = self;
            let mut output = context.run_ui(egui::RawInput::default(), |ui| app.ui(ui));
            output.textures_delta.clear();
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn until_said(&mut self, words: &str) {
        self.until(words, |app| app.messages.iter().any(|message| message.contains(words)));
    }
}

/// Serves bytes to one client: in pieces with pauses, then the connection ends.
fn serve(pieces: Vec<Vec<u8>>, pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        for piece in pieces {
            if stream.write_all(&piece).is_err() {
                return;
            }
            std::thread::sleep(pause);
        }
    });
    address
}

fn sample() -> Vec<u8> {
    std::fs::read(samples::chat().expect("a sample")).expect("it can be read")
}

#[test]
fn what_a_program_serves_is_followed_to_its_end() {
    let pieces = sample().chunks(20_000).map(<[u8]>::to_vec).collect();
    let mut window = Window::to(&serve(pieces, Duration::from_millis(30)).to_string());
    let (all, state) = {
        let app = chat(None);
        (app.player.store.chronicle.events, app.player.store.state.clone())
    };
    window.until("all events", |app| app.player.store.events_done() == all);
    window.until_said("the program has ended");
    assert_eq!(window.app.player.store.state, state);
    // What came can be looked at again.
    window.app.player.seek(all / 2);
    window.until("the middle", |app| app.player.store.events_done() == all / 2);
    // It stands there.
    let mut frames = 0;
    window.until("frames", |_| {
        frames += 1;
        frames > 20
    });
    assert_eq!((window.app.player.store.events_done(), window.app.player.follow), (all / 2, false));
}

#[test]
fn peers_that_serve_no_trace_give_messages() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
    Window::to(&free.to_string()).until_said("--events PORT");
    Window::to("nonsense").until_said("ADDRESS:PORT");
    let http = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_vec();
    Window::to(&serve(vec![http], Duration::ZERO).to_string()).until_said("it begins with \"HTTP\"");
    let mut newer = sample();
    newer[4] = 9;
    Window::to(&serve(vec![newer], Duration::ZERO).to_string()).until_said("version 9");
    let mut huge = sample()[..10].to_vec();
    huge[6..10].fill(0xff);
    Window::to(&serve(vec![huge], Duration::ZERO).to_string()).until_said("at most are read");
    let silent = serve(vec![Vec::new()], Duration::from_secs(30));
    Window::to(&silent.to_string()).until_said("nothing that is a trace came");
}

#[test]
fn a_peer_that_dies_in_the_middle_leaves_what_came() {
    let whole = sample();
    let cut = whole[..whole.len() * 2 / 3].to_vec();
    let mut window = Window::to(&serve(vec![cut], Duration::ZERO).to_string());
    window.until_said("has ended");
    window.until("events", |app| app.player.store.events_done() > 0 && app.player.at_end());
    assert!(!window.app.player.store.state.pages.is_empty());
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The `kvarto` program beside this test, if it was built.
fn program() -> Option<PathBuf> {
    let own = std::env::current_exe().ok()?;
    let beside = own.parent()?.parent()?.join(format!("kvarto{}", std::env::consts::EXE_SUFFIX));
    beside.is_file().then_some(beside)
}

#[test]
fn a_second_process_is_seen_while_it_generates() {
    let required = std::env::var("KVARTO_REQUIRE").is_ok_and(|words| words.split(',').any(|word| word == "model"));
    let Some(program) = program().filter(|_| kvarto::model::store::resolve("smollm2-135m").is_ok()) else {
        assert!(!required, "the program or its model is not there");
        return eprintln!("skipped: no kvarto program beside the test, or no model");
    };
    let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
    let mut command = Command::new(program);
    command.args(["generate", "Once upon a time", "--max-tokens", "400", "--profile", "minima-kv", "--backend", "cpu"]);
    command.args(["--events", &port.to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
    let _running = Running(command.spawn().expect("it starts"));
    let peer = format!("127.0.0.1:{port}");
    // It serves once its model is loaded.
    let start = Instant::now();
    while std::net::TcpStream::connect(&peer).is_err() {
        assert!(start.elapsed() < PATIENCE, "nothing is served");
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut window = Window::to(&peer);
    window.until("steps", |app| app.player.store.state.step > 20);
    let store = &window.app.player.store;
    assert_eq!(store.header.command, "generate");
    assert_eq!(store.header.profile, "minima-kv");
    assert!(store.state.page_bytes() > 0);
    window.until("the end", |app| app.messages.iter().any(|message| message.contains("has ended")));
    window.until("all of it", |app| app.player.at_end());
    assert!(window.app.player.store.chronicle.lineage.has_text());
}
