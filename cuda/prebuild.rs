//! Makes the machine code of `cuda/prebuilt` anew; `cuda/prebuild` installs its compiler and runs it.
//!
//! `prebuild FOLDER` keeps what it compiles in FOLDER, so that a change of some texts compiles these alone. NVRTC works on
//! one text at a time in a process, so there is a process for each core: `prebuild FOLDER I N` is the I-th of N.

use kvarto::backend::cuda::Compiler;
use kvarto::backend::cuda::prebuilt::{TARGETS, embedded, write};
use kvarto::usual::{self, UsualKernel};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The compiler that is wanted: its line in this file.
const PINNED: &str = include_str!("nvrtc.txt");

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.as_slice() {
        [folder] => all(Path::new(folder)),
        [folder, at, of] => part(Path::new(folder), at, of),
        _ => Err("usage: prebuild FOLDER".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("prebuild: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The kernels, and each target's compiler, which keeps what it makes in `folder`.
fn work(folder: &Path) -> Result<(BTreeMap<u128, UsualKernel>, Vec<Compiler>)> {
    let compilers: Vec<Compiler> =
        TARGETS.iter().map(|target| Compiler::for_target(target, Some(folder.into()))).collect();
    let found = compilers[0].compiler().ok_or("NVRTC is not found: run cuda/prebuild")?;
    let pinned = PINNED.lines().find_map(|line| line.split_once("==")).ok_or("cuda/nvrtc.txt pins nothing")?.1;
    if !pinned.starts_with(&format!("{found}.")) {
        return Err(format!("NVRTC {found} is found, and cuda/nvrtc.txt pins {pinned}: run cuda/prebuild").into());
    }
    Ok((usual::kernels()?, compilers))
}

/// Compiles every `of`-th text for every target.
fn part(folder: &Path, at: &str, of: &str) -> Result<()> {
    let (kernels, compilers) = work(folder)?;
    let (at, of): (usize, usize) = (at.parse()?, of.parse()?);
    for compiler in &compilers {
        for usual in kernels.values().skip(at).step_by(of.max(1)) {
            if usual.is_held_for(compiler.target()) && compiler.kept(&usual.source).is_none() {
                compiler.cubin(&usual.source, usual.kernel.key())?;
            }
        }
    }
    Ok(())
}

/// Compiles all, and writes the files.
fn all(folder: &Path) -> Result<()> {
    let (kernels, compilers) = work(folder)?;
    let cores = std::thread::available_parallelism()?.get();
    let run =
        |at: usize| Command::new(std::env::current_exe()?).arg(folder).args([at, cores].map(|n| n.to_string())).spawn();
    let started = (0..cores).map(run).collect::<std::io::Result<Vec<_>>>()?;
    let ended: Vec<_> = started.into_iter().map(|mut process| process.wait()).collect();
    for status in ended {
        if !status?.success() {
            return Err("not every text was compiled".into());
        }
    }
    let mut sum = 0;
    for compiler in &compilers {
        let mut codes = BTreeMap::new();
        for (&identity, usual) in kernels.iter().filter(|(_, usual)| usual.is_held_for(compiler.target())) {
            let key = usual.kernel.key();
            let code = compiler.kept(&usual.source).ok_or_else(|| format!("{key} was not kept"))?;
            codes.insert(identity, (key.to_string(), code));
        }
        let version = compiler.compiler().ok_or("NVRTC is gone")?;
        let (major, minor) = version.split_once('.').ok_or("a version has two numbers")?;
        let bytes = write(compiler.target(), (major.parse()?, minor.parse()?), &codes)?;
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("cuda/prebuilt")
            .join(format!("{}.kvcubins", compiler.target()));
        let same = std::fs::read(&file).is_ok_and(|before| before == bytes);
        if !same {
            std::fs::write(&file, &bytes)?;
        }
        let before = embedded(compiler.target()).map_or(0, |archive| archive.len());
        let raw: usize = codes.values().map(|(_, code)| code.len()).sum();
        println!(
            "{}: {} kernels (before {before}), {raw} bytes of code, {} packed{}",
            compiler.target(),
            codes.len(),
            bytes.len(),
            if same { ", as before" } else { "" }
        );
        sum += bytes.len();
    }
    println!("{sum} bytes in all");
    Ok(())
}
