//! Files that traces are written to and exported to: what is there is not lost, and what waits does not hang.

use super::gguf_writer::tiny_llama;
use super::trace::{PROMPT, folder, traced};
use super::{kvarto, run};
use kvarto::trace::{Trace, verify};
use std::path::{Path, PathBuf};

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
    let said = traced(&model, Path::new("/dev/null"), &[]);
    assert!(said.code == Some(0) && !said.err.contains("warning"), "{}", said.err);
    assert!(Path::new("/dev/null").exists());
}

/// Names of what is in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn an_export_is_whole_or_not_there_and_never_ends_its_input() {
    let (folder, model) = folder();
    let file = folder.path().join("run.kvtr");
    assert_eq!(traced(&model, &file, &[]).code, Some(0));
    let before = std::fs::read(&file).expect("written");
    let export = |to: &str, from: &Path, out: &Path| {
        let (from, out) = (from.to_str().expect("UTF-8"), out.to_str().expect("UTF-8"));
        run(kvarto(&["trace", "export", "--to", to, from, "--out", out]))
    };
    let mut same = vec![file.clone(), folder.path().join(".").join("run.kvtr")];
    std::fs::hard_link(&file, folder.path().join("hard")).expect("a link");
    same.push(folder.path().join("hard"));
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("run.kvtr", folder.path().join("soft")).expect("a link");
        same.push(folder.path().join("soft"));
    }
    let there = names(folder.path());
    for (from, out) in same.iter().flat_map(|from| same.iter().map(move |out| (from, out))) {
        let said = export("json", from, out);
        let place = format!("{} to {}", from.display(), out.display());
        assert!(said.code == Some(2) && said.err.contains("is the file that is read"), "{place}: {}", said.err);
        assert_eq!(std::fs::read(&file).expect("there"), before, "{place}");
    }
    assert_eq!(names(folder.path()), there);
    // What cannot be read leaves an earlier export as it is.
    let out = folder.path().join("out");
    std::fs::write(&out, b"an earlier one").expect("it can be written");
    std::fs::write(folder.path().join("foreign"), b"GGUF0000000000").expect("it can be written");
    assert_eq!(export("csv", &folder.path().join("foreign"), &out).code, Some(1));
    assert_eq!(std::fs::read(&out).expect("there"), b"an earlier one");
    let missing = folder.path().join("no folder").join("out");
    let said = export("csv", &file, &missing);
    assert!(said.code == Some(1) && said.err.contains("cannot be made"), "{}", said.err);
    // One that is there is replaced, behind a link if that names it.
    for to in ["json", "csv", "perfetto"] {
        let wanted = run(kvarto(&["trace", "export", "--to", to, file.to_str().expect("UTF-8")])).out;
        assert_eq!(export(to, &file, &out).code, Some(0));
        assert!(std::fs::read(&out).expect("there") == wanted.as_bytes(), "{to}");
    }
    assert!(names(folder.path()).iter().all(|name| !name.contains("part")), "{:?}", names(folder.path()));
}

#[cfg(unix)]
#[test]
fn an_export_keeps_links_and_rights_and_goes_to_devices() {
    use std::os::unix::fs::PermissionsExt;
    let (folder, model) = folder();
    let [file, out, link] = ["run.kvtr", "out", "link"].map(|name| folder.path().join(name));
    assert_eq!(traced(&model, &file, &[]).code, Some(0));
    std::fs::write(&out, b"an earlier one").expect("it can be written");
    std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o640)).expect("rights");
    std::os::unix::fs::symlink("out", &link).expect("a link");
    let words = ["trace", "export", "--to", "csv", file.to_str().expect("UTF-8"), "--out"];
    let export = |out: &Path| run(kvarto(&[&words[..], &[out.to_str().expect("UTF-8")]].concat()));
    assert_eq!(export(&link).code, Some(0));
    assert!(std::fs::symlink_metadata(&link).expect("there").is_symlink());
    let text = std::fs::read_to_string(&out).expect("there");
    assert!(text.starts_with("n,ns,event"), "{text}");
    assert_eq!(std::fs::metadata(&out).expect("there").permissions().mode() & 0o777, 0o640);
    assert_eq!(export(Path::new("/dev/stdout")).out, text);
    assert_eq!(export(Path::new("/dev/null")).code, Some(0));
    if cfg!(target_os = "linux") {
        let said = export(Path::new("/dev/full"));
        assert!(said.code == Some(1) && said.err.contains("cannot be written"), "{}", said.err);
    }
}
