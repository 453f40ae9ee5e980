//! Fetching a package file with the user's own `pip`.

use std::fs::{self, File};
use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Ways to call `pip`, tried in order.
const PROGRAMS: &[(&str, &[&str])] =
    &[("python3", &["-m", "pip"]), ("pip3", &[]), ("pip", &[]), ("python", &["-m", "pip"])];

/// How often the growing download is looked at.
const GLANCE: Duration = Duration::from_millis(100);

/// Downloads `package` at `version` into `folder`, which must be empty, and returns the wheel's path; `advance`
/// hears of the bytes so far. The error is what went wrong, in one line.
pub(super) fn download(package: &str, version: &str, folder: &Path, advance: &dyn Fn(u64)) -> Result<PathBuf, String> {
    let log = folder.join("pip.log");
    for (program, arguments) in PROGRAMS {
        let mut command = Command::new(program);
        command.args(*arguments).args(["download", "--no-deps", "--no-cache-dir", "--only-binary=:all:"]);
        command.args(["--no-input", "--disable-pip-version-check", "--progress-bar", "off"]);
        command.args(["--retries", "2", "-d"]).arg(folder).arg(format!("{package}=={version}"));
        // pip writes to its temporary folder and moves the finished file: have it here, where it can be watched.
        command.envs(["TMPDIR", "TEMP", "TMP"].map(|name| (name, folder)));
        let stderr = File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(e) if e.kind() == IoKind::NotFound => continue,
            Err(e) => return Err(format!("{program} cannot be started: {e}")),
        };
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) => {
                    advance(bytes_under(folder, 4));
                    std::thread::sleep(GLANCE);
                }
                Err(e) => return Err(format!("{program} was lost: {e}")),
            }
        };
        if status.success() {
            return wheel_in(folder).ok_or_else(|| format!("{program} ended well and left no .whl file"));
        }
        let said = fs::read(&log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        // A Python without pip, or a version manager's stand-in for a program it does not have.
        if said.contains("No module named pip") || status.code() == Some(127) {
            continue;
        }
        let last = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("it said nothing");
        return Err(format!("{program} download failed ({status}): {last}"));
    }
    Err("no pip was found: tried python3 -m pip, pip3, pip, python -m pip".into())
}

fn wheel_in(folder: &Path) -> Option<PathBuf> {
    let files = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    files.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "whl"))
}

/// Bytes of the files under `folder`, `depth` folders down.
fn bytes_under(folder: &Path, depth: usize) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() && depth > 0 => bytes_under(&entry.path(), depth - 1),
            Ok(meta) if meta.is_file() => meta.len(),
            _ => 0,
        })
        .sum()
}
