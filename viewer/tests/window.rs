//! The program itself, in a real window on a virtual screen (Xvfb), and its files without a window.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::can_draw;

const PROGRAM: &str = env!("CARGO_BIN_EXE_kvarto-viewer");

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A picture: pixels as 0xRRGGBB, rows from above.
struct Picture {
    width: usize,
    pixels: Vec<u32>,
}

impl Picture {
    fn colours(&self) -> BTreeMap<u32, usize> {
        let mut colours = BTreeMap::new();
        self.pixels.iter().for_each(|pixel| *colours.entry(*pixel).or_default() += 1);
        colours
    }

    fn png(path: &Path) -> Self {
        let file = std::io::BufReader::new(std::fs::File::open(path).expect("a picture"));
        let mut reader = png::Decoder::new(file).read_info().expect("a PNG");
        let mut bytes = vec![0; reader.output_buffer_size().expect("a size")];
        let info = reader.next_frame(&mut bytes).expect("pixels");
        let pixel = |rgba: &[u8]| u32::from_be_bytes([0, rgba[0], rgba[1], rgba[2]]);
        let pixels = bytes[..info.buffer_size()].chunks_exact(4).map(pixel).collect();
        Picture { width: info.width as usize, pixels }
    }

    /// A screen of Xvfb, as it stands in the file that it keeps it in (the format of `xwd`, 32 bits a pixel).
    fn screen(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at * 4..at * 4 + 4)?.try_into().ok()?) as usize);
        let (head, width, height, line, colours) = (word(0)?, word(4)?, word(5)?, word(12)?, word(19)?);
        let start = head + colours * 12;
        let mut pixels = Vec::with_capacity(width * height);
        for y in 0..height {
            for x in 0..width {
                let at = start + y * line + x * 4;
                let bgr: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
                pixels.push(u32::from_be_bytes([0, bgr[2], bgr[1], bgr[0]]));
            }
        }
        Some(Picture { width, pixels })
    }
}

/// The colour of pages of f16: whatever is shown of a cache has some.
const F16: u32 = 0x0072b2;

#[test]
fn a_real_window_shows_the_sample() {
    let required = std::env::var("KVARTO_REQUIRE").is_ok_and(|words| words.split(',').any(|word| word == "vulkan"));
    let folder = tempfile::tempdir().expect("a folder");
    let number = 90 + std::process::id() % 400;
    let mut xvfb = Command::new("Xvfb");
    xvfb.args([&format!(":{number}"), "-screen", "0", "1280x800x24", "-nolisten", "tcp", "-fbdir"]).arg(folder.path());
    let Ok(xvfb) = xvfb.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        assert!(!required, "no Xvfb");
        return eprintln!("skipped: no Xvfb");
    };
    let _xvfb = Running(xvfb);
    let screen = folder.path().join("Xvfb_screen0");
    let start = Instant::now();
    while !screen.exists() {
        assert!(start.elapsed() < Duration::from_secs(20), "Xvfb does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    let home = tempfile::tempdir().expect("a folder");
    let mut program = Command::new(PROGRAM);
    program.env("DISPLAY", format!(":{number}")).env_remove("WAYLAND_DISPLAY").env("XDG_CONFIG_HOME", home.path());
    program.env("XDG_RUNTIME_DIR", home.path());
    let mut program = Running(program.stderr(Stdio::piped()).spawn().expect("it starts"));
    let start = Instant::now();
    loop {
        std::thread::sleep(Duration::from_millis(200));
        if let Some(status) = program.0.try_wait().expect("a status") {
            let mut said = String::new();
            let _ = std::io::Read::read_to_string(&mut program.0.stderr.take().expect("a pipe"), &mut said);
            panic!("it ended with {status}: {said}");
        }
        let picture = Picture::screen(&std::fs::read(&screen).expect("a screen"));
        let colours = picture.map(|picture| picture.colours()).unwrap_or_default();
        if colours.get(&F16).is_some_and(|count| *count > 100) && colours.len() > 50 {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{} colours, no page", colours.len());
    }
    println!("pages in a real window after {:.1} s", start.elapsed().as_secs_f64());
}

fn run(arguments: &[&str], file: &Path) -> (bool, String) {
    let output = Command::new(PROGRAM).args(arguments).arg(file).output().expect("it runs");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn pictures_and_tables_are_made_without_a_window() {
    if !can_draw() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let picture = folder.path().join("window.png");
    let (made, said) = run(&["--size", "900x600", "--at", "100", "--screenshot"], &picture);
    assert!(made, "{said}");
    let drawn = Picture::png(&picture);
    assert_eq!((drawn.width, drawn.pixels.len()), (900, 900 * 600));
    assert!(drawn.colours().len() > 50 && drawn.colours().contains_key(&F16));
    // The same step gives the same picture.
    let again = folder.path().join("again.png");
    assert!(run(&["--size", "900x600", "--at", "100", "--screenshot"], &again).0);
    assert!(Picture::png(&again).pixels == drawn.pixels);
    let light = folder.path().join("light.png");
    assert!(run(&["--size", "900x600", "--at", "100", "--light", "--screenshot"], &light).0);
    assert!(Picture::png(&light).pixels != drawn.pixels);
    for view in ["page-map", "mask", "memory", "timeline", "text", "device"] {
        let table = folder.path().join(format!("{view}.csv"));
        let (made, said) = run(&["--export", "csv", "--view", view, "-o"], &table);
        assert!(made, "{view}: {said}");
        let mut reader = csv::Reader::from_path(&table).expect("a table");
        let columns = reader.headers().expect("a head").len();
        let rows = reader.records().map(|row| row.expect("a row").len()).collect::<Vec<_>>();
        assert!(!rows.is_empty() && rows.iter().all(|row| *row == columns), "{view}");
    }
    let alone = folder.path().join("memory.png");
    assert!(run(&["--export", "png", "--view", "memory", "-o"], &alone).0);
    assert!(Picture::png(&alone).colours().len() > 10);
}

#[test]
fn flags_that_cannot_be_meant_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("out.png");
    for (arguments, wanted) in [
        (vec!["--view", "nothing", "--screenshot"], "page-map"),
        (vec!["--size", "12", "--screenshot"], "1280x800"),
        (vec!["--size", "100000x10", "--screenshot"], "8192"),
        (vec!["--scale", "0", "--screenshot"], "0.25"),
        (vec!["--trace", "no-such-file.kvtr", "--screenshot"], "no-such-file.kvtr"),
        (vec!["--prompt", "Hello", "--screenshot"], "--prompt"),
        (vec!["--share-device", "--screenshot"], "--share-device"),
        (vec!["--export", "csv", "-o"], "--view"),
        (vec!["--at", "5000", "--screenshot"], "207"),
        (vec!["--connect", "127.0.0.1:1", "--screenshot"], "--connect"),
        (vec!["--live", "--screenshot"], "--live"),
        (vec!["--compare", "no-such-file.kvtr", "--screenshot"], "no-such-file.kvtr"),
        (vec!["--compare", PROGRAM, "--screenshot"], "no trace"),
        (vec!["--export", "csv", "--view", "compare", "-o"], "compare"),
    ] {
        let (made, said) = run(&arguments, &file);
        assert!(!made && said.contains(wanted), "{arguments:?}: {said}");
        assert!(!file.exists());
    }
    // What is read is not written over.
    let trace = folder.path().join("trace.kvtr");
    let sample = std::fs::read(kvarto_viewer::samples::chat().expect("a sample")).expect("it can be read");
    std::fs::write(&trace, &sample).expect("it can be written");
    let given = trace.display().to_string();
    let (made, said) = run(&["--trace", &given, "--export", "csv", "--view", "memory", "-o"], &trace);
    assert!(!made && said.contains("another file"), "{said}");
    assert!(std::fs::read(&trace).expect("it is there") == sample);
}
