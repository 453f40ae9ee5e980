//! Files that traces are written to and exported to: what is there is not lost, and what waits does not hang.

use super::gguf_writer::tiny_llama;
use super::trace::{PROMPT, folder, traced};
use super::{kvarto, run};
use kvarto::trace::{Trace, verify};
use std::path::PathBuf;

#[test]
fn a_file_that_is_no_trace_is_never_overwritten() {
    let (folder, model) = folder();
    let prompt = folder.path().join("prompt.txt");
    std::fs::write(&prompt, PROMPT).expect("it can be written");
    let talker = folder.path().join("talker.gguf");
    let template = tiny_llama(3).key("tokenizer.chat_template", "{{ messages[0].content }}").build();
    std::fs::write(&talker, template).expect("it can be written");
    let talker = talker.to_str().expect("UTF-8").to_string();
    let mut victims = vec![PathBuf::from(&model), prompt.clone()];
    #[cfg(unix)]
    {
        let link = folder.path().join("link.kvtr");
        std::os::unix::fs::symlink(&model, &link).expect("a link");
        victims.push(link);
    }
    // What begins as a trace does and is shorter than its magic is none.
    victims.push(folder.path().join("short"));
    std::fs::write(victims.last().expect("some"), b"KVT").expect("it can be written");
    for victim in &victims {
        let before = std::fs::read(victim).expect("there");
        let name = victim.to_str().expect("UTF-8");
        let from = ["generate", "--prompt-file", prompt.to_str().expect("UTF-8"), "--model", &model];
        let bench = ["bench", "generate", "--depth", "16", "--tokens", "4", "--model", &model];
        for command in [&from[..], &bench, &["chat", "--model", &talker]] {
            let said = run(kvarto(&[command, &["--backend", "cpu", "--trace", name]].concat()));
            let told = said.err.contains("is no trace: it begins with") && said.err.contains("another name");
            assert!(said.code == Some(1) && told, "{command:?} {name}: {}", said.err);
            assert_eq!(std::fs::read(victim).expect("there"), before, "{command:?} {name}");
        }
    }
}

#[test]
fn a_run_that_fails_leaves_the_trace_before_it_and_makes_none() {
    let (folder, model) = folder();
    let (file, other) = (folder.path().join("run.kvtr"), folder.path().join("new.kvtr"));
    assert_eq!(traced(&model, &file, &[]).code, Some(0));
    let before = std::fs::read(&file).expect("written");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    let missing = folder.path().join("missing.gguf");
    for words in [
        &["--events", &taken][..],
        &["--basis", "nothing"],
        &["--basis", "/nowhere/at/all.kvcal"],
        &["--set", "policy.name=\"nothing\""],
    ] {
        for to in [&file, &other] {
            let said = traced(&model, to, words);
            assert!(said.code.is_some_and(|code| code != 0), "{words:?}: {}", said.err);
            assert_eq!(std::fs::read(&file).expect("there"), before, "{words:?}");
            assert!(!other.exists(), "{words:?}");
        }
    }
    let said = traced(missing.to_str().expect("UTF-8"), &file, &[]);
    assert!(said.code == Some(1) && std::fs::read(&file).expect("there") == before, "{}", said.err);
    // One that goes well replaces a longer one whole, and an empty file as well.
    std::fs::write(&file, [&before[..], &before[..]].concat()).expect("it can be written");
    std::fs::write(&other, b"").expect("it can be written");
    for to in [&file, &other] {
        assert_eq!(traced(&model, to, &[]).code, Some(0));
        let verdict = verify(&mut Trace::open(to).expect("a trace")).expect("read");
        assert!(verdict.sound() && verdict.finished, "{verdict:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_is_written_to_if_it_is_read_and_never_waited_for() {
    use std::io::Read;
    let (folder, model) = folder();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    // Were it waited for, the test would not end.
    let said = traced(&model, &pipe, &[]);
    assert!(said.code == Some(1) && said.err.contains("has no reader"), "{}", said.err);
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            std::fs::File::open(pipe).and_then(|mut file| file.read_to_end(&mut bytes)).expect("it can be read");
            bytes
        })
    };
    // The reader may open it a moment later than the program.
    let said = loop {
        let said = traced(&model, &pipe, &[]);
        if !said.err.contains("has no reader") {
            break said;
        }
    };
    assert_eq!(said.code, Some(0), "{}", said.err);
    let bytes = reader.join().expect("it reads");
    let verdict = verify(&mut Trace::new(std::io::Cursor::new(bytes)).expect("a trace")).expect("read");
    assert!(verdict.sound() && verdict.finished, "{verdict:?}");
    assert!(pipe.exists());
    // Devices are as they were.
    let said = traced(&model, std::path::Path::new("/dev/null"), &[]);
    assert!(said.code == Some(0) && !said.err.contains("warning"), "{}", said.err);
    assert!(std::path::Path::new("/dev/null").exists());
}
