//! `kvarto models`.

use super::gguf_writer::tiny_llama;
use super::{bare, kvarto, run, support};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[test]
fn lists_what_there_is_with_an_empty_cache() {
    let (command, folder) = bare(&["models", "list"]);
    let said = run(command);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains("smollm2-135m") && said.out.contains("not fetched"), "{}", said.out);
    assert!(said.out.contains(folder.path().to_str().expect("UTF-8")), "{}", said.out);
    let (command, _folder) = bare(&["models", "list", "--json"]);
    let value = json(&run(command).out);
    let model = &value["models"][0];
    assert_eq!((&model["name"], &model["path"]), (&Value::from("smollm2-135m"), &Value::Null));
    assert!(model["bytes"].is_u64() && model["sha256"].is_string() && model["license"].is_string(), "{value}");
}

#[test]
fn path_says_how_to_fetch_what_is_missing() {
    let (command, _folder) = bare(&["models", "path", "smollm2-135m"]);
    let said = run(command);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    assert!(said.err.contains("kvarto models fetch smollm2-135m"), "{}", said.err);
    let (command, _folder) = bare(&["models", "path", "--json", "nothing-like-it"]);
    let said = run(command);
    assert_eq!(said.code, Some(2));
    assert_eq!(json(&said.out)["error"]["kind"], "usage");
}

#[test]
fn finds_the_fetched_model() {
    let Some(path) = support::model::path() else { return };
    let path = path.to_str().expect("UTF-8");
    for name in [support::model::NAME, path] {
        let said = run(kvarto(&["models", "path", name]));
        assert_eq!((said.code, said.out), (Some(0), format!("{path}\n")), "{}", said.err);
    }
    let said = run(kvarto(&["models", "path", "--json", support::model::NAME]));
    assert_eq!(json(&said.out)["path"], path);
    let said = run(kvarto(&["models", "list", "--json"]));
    assert_eq!(json(&said.out)["models"][0]["path"], path);
    // Already there: nothing is downloaded.
    let said = run(kvarto(&["models", "fetch", support::model::NAME]));
    assert_eq!((said.code, said.out), (Some(0), format!("{path}\n")), "{}", said.err);
}

#[test]
fn info_looks_into_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tiny.gguf");
    std::fs::write(&path, tiny_llama(3).build()).expect("written");
    let path = path.to_str().expect("UTF-8");
    let said = run(kvarto(&["models", "info", path]));
    assert_eq!(said.code, Some(0), "{}", said.err);
    for word in ["llama", "2 query, 1 KV, of 8 values", "chat template  none", "F32"] {
        assert!(said.out.contains(word), "{word:?} is not in {}", said.out);
    }
    let value = json(&run(kvarto(&["models", "info", "--json", path])).out);
    assert!(value.is_object(), "{value}");
    let Some(_) = support::model::path() else { return };
    let value = json(&run(kvarto(&["models", "info", "--json", support::model::NAME])).out);
    assert!(value.to_string().contains("b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"), "{value}");
}
