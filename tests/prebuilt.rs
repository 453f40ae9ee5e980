//! The machine code that comes with the crate: it is of the texts as they are, and its compiler makes the same bytes again.
#![cfg(feature = "cli")]

mod support;

use kvarto::backend::cuda::prebuilt::{Prebuilt, TARGETS, embedded, serving};
use kvarto::backend::cuda::{Compiler, DeviceReport, caps, identity, source};
use kvarto::backend::{Listed, ListingBackend};
use kvarto::engine::{Engine, Registry};
use kvarto::footprint::NamedShape;
use kvarto::model::llama::{LoadOptions, Model};
use kvarto::profile::Profile;
use kvarto::usual::{self, UsualKernel};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::LazyLock;
use support::require_or_skip;

/// What makes the set anew.
const REMEDY: &str = "run ./cuda/prebuild and commit cuda/prebuilt";
/// Where cuda/prebuild puts its compiler.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/prebuild");
/// The line that pins it.
const PINNED: &str = include_str!("../cuda/nvrtc.txt");

static USUAL: LazyLock<BTreeMap<u128, UsualKernel>> = LazyLock::new(|| usual::kernels().expect("a list"));

/// The pinned version, `12.9.86`.
fn pinned() -> &'static str {
    PINNED.lines().find_map(|line| line.split_once("==")?.1.split_whitespace().next()).expect("a pinned version")
}

#[test]
fn the_set_is_as_new_as_the_sources() {
    for target in TARGETS {
        let archive = embedded(target).unwrap_or_else(|| panic!("{target}: no set; {REMEDY}"));
        assert_eq!(archive.target(), target);
        let (major, minor) = archive.compiler();
        assert!(pinned().starts_with(&format!("{major}.{minor}.")), "{target} by {major}.{minor}; {REMEDY}");
        let wanted = USUAL.iter().filter(|(_, usual)| usual.is_held_for(target));
        let missing: Vec<&str> = wanted
            .clone()
            .filter(|(id, _)| archive.find(**id).is_none())
            .map(|(_, usual)| usual.kernel.key())
            .collect();
        assert!(
            missing.is_empty(),
            "{target} lacks {} texts as they are now; {REMEDY}. The first: {:?}",
            missing.len(),
            missing.first()
        );
        assert_eq!(archive.len(), wanted.count(), "{target} holds texts that nothing asks for any more; {REMEDY}");
        let stream = archive.unpack().unwrap_or_else(|e| panic!("{target}: {e}"));
        for id in archive.identities() {
            let code = &stream[archive.find(id).expect("a place")];
            let sound = match target.starts_with("compute") {
                true => code.starts_with(b"//") && code.ends_with(b"\0"),
                false => code.starts_with(b"\x7fELF"),
            };
            assert!(sound, "{target}: {}", USUAL[&id].kernel.key());
        }
    }
}

/// A card of these properties, with a driver of the set's compiler.
fn card(capability: (u32, u32), multiprocessors: u32, shared_bytes: u32) -> DeviceReport {
    DeviceReport {
        index: 0,
        name: "a card".into(),
        capability,
        driver: "13.0".into(),
        memory_bytes: 8 << 30,
        multiprocessors,
        shared_bytes,
        l2_bytes: 4 << 20,
        integrated: multiprocessors < 32,
        refusal: None,
    }
}

#[test]
fn every_card_asks_for_the_same_texts() {
    let report = card((8, 6), 20, 99 << 10);
    let caps = caps(&report, &Compiler::new(report.capability, None));
    let found = usual::kernels_of(&caps).expect("a list");
    let strange = found.iter().find(|(id, _)| !USUAL.contains_key(id)).map(|(_, usual)| usual.kernel.key());
    assert_eq!((strange, found.len()), (None, USUAL.len()));
}

/// Whatever NVRTC there is, none is asked: the first code that is offered is the set's.
#[test]
fn a_card_is_offered_code_that_came_with_the_crate() {
    for (capability, driver) in
        [((8, 0), "12.8"), ((8, 6), "12.8"), ((8, 9), "13.0"), ((9, 0), "12.8"), ((12, 1), "13.0")]
    {
        let report = DeviceReport { driver: driver.into(), ..card(capability, 100, 99 << 10) };
        let compiler = Compiler::for_device(&report, None).expect("a compiler");
        let sets = Prebuilt::of(capability, report.driver_version());
        let (target, count) = sets.held().unwrap_or_else(|| panic!("{capability:?}: no set; {REMEDY}"));
        assert_eq!((serving(capability).first(), count), (Some(&target), USUAL.len()));
        assert!(compiler.describe().starts_with(&format!("{count} kernels for {target} built in")));
        for (id, usual) in USUAL.iter().step_by(7) {
            let key = usual.kernel.key();
            let code = compiler.load(&usual.source, key, |code, _| Ok(code.to_vec())).expect("code");
            assert_eq!(Some(code.as_slice()), sets.cubin(*id), "{key}");
        }
    }
}

/// What README says: shapes, and profiles of each.
const NAMED: [(&str, &[&str]); 3] = [
    ("smollm2-135m", &["dense", "streaming", "fp8", "k8v3", "k4v3", "tq3", "q4_0", "minima-kv", "minima-kv-paper"]),
    ("q32k8d128l32", &["dense", "streaming", "fp8", "k8v3", "k4v3", "tq3", "minima-kv", "minima-kv-paper"]),
    ("q24k4d256l16", &["dense", "streaming", "fp8", "tq3", "minima-kv-paper"]),
];

/// All that `ask` asks of an H200 is in the set.
#[track_caller]
fn comes_with_the_crate(what: &str, ask: impl FnOnce(Box<ListingBackend>) -> kvarto::Result<()>) {
    let report = card((9, 0), 132, 227 << 10);
    let sets = Prebuilt::of(report.capability, report.driver_version());
    let listed = Listed::default();
    ask(Box::new(ListingBackend::new(caps(&report, &Compiler::new(report.capability, None)), &listed))).expect(what);
    assert!(listed.kernels().len() > 15, "{what}");
    for kernel in listed.kernels() {
        let source = source(&kernel).expect("a text");
        assert!(sets.cubin(identity(&source)).is_some(), "{what}: {}; {REMEDY}", kernel.key());
    }
}

#[test]
fn shapes_and_profiles_that_are_named_need_no_compiler() {
    let registry = Registry::builtin();
    for (word, profiles) in NAMED {
        for name in profiles {
            let shape = NamedShape::parse(word, 64).expect("a shape").shape;
            let profile = Profile::load(name, &registry.names()).expect("a profile");
            comes_with_the_crate(&format!("{word}, {name}"), |backend| {
                Engine::new(backend, shape, profile, registry.clone())?.warm_up(&[1, 2, 3, 4, 8, 9, 16], true)
            });
        }
    }
}

/// The model that the program fetches by itself.
#[test]
fn the_default_model_needs_no_compiler() {
    let Some(gguf) = support::model::open() else { return };
    let profile = Profile::dense();
    comes_with_the_crate("the model", |backend| {
        Model::rehearse(&gguf, backend, profile, Registry::builtin(), &LoadOptions::default())
    });
}

/// Some kernels of each target, by the pinned compiler: in a process of its own, since a process loads one NVRTC.
#[test]
fn the_same_compiler_makes_the_same_bytes() {
    const CHILD: &str = "KVARTO_TEST_MAKES_CODE_ANEW";
    if std::env::var_os(CHILD).is_some() {
        return make_anew();
    }
    let lib = format!("{FOLDER}/{}/nvidia/cuda_nvrtc/lib", pinned());
    if !std::path::Path::new(&lib).is_dir() {
        return require_or_skip("nvrtc", "the set's own compiler is not there: run ./cuda/prebuild --compiler");
    }
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "the_same_compiler_makes_the_same_bytes", "--nocapture"])
        .env(CHILD, "1")
        .env("LD_LIBRARY_PATH", lib)
        .output()
        .expect("this program starts");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("made anew: "), "{said}");
}

fn make_anew() {
    let mut made = 0;
    for (turn, target) in TARGETS.into_iter().enumerate() {
        let archive = embedded(target).unwrap_or_else(|| panic!("{target}: no set; {REMEDY}"));
        let stream = archive.unpack().expect("a stream");
        let compiler = Compiler::for_target(target, None);
        let version = compiler.compiler().expect("an NVRTC");
        assert!(pinned().starts_with(&format!("{version}.")), "NVRTC {version} is found before the pinned one");
        // Of the whole list, other ones for each target.
        let held: Vec<_> = USUAL.iter().filter(|(id, _)| archive.find(**id).is_some()).collect();
        for (id, usual) in held.iter().skip(turn).step_by(held.len() / 3 + 1) {
            let key = usual.kernel.key();
            let code = compiler.cubin(&usual.source, key).unwrap_or_else(|e| panic!("{e}"));
            let before = &stream[archive.find(**id).expect("a place")];
            assert!(code == before, "{target}: {key}: other bytes; {REMEDY}");
            made += 1;
        }
    }
    println!("made anew: {made}");
}
