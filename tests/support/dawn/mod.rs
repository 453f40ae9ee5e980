//! Dawn, Chromium's WebGPU, under Node: a process with one device that compiles modules and runs recordings.
//!
//! `tests/dawn/server.mjs` is the other end; `tests/run` installs what it needs.

pub mod backend;

use kvarto::backend::assemble::{AssembleOptions, Module, assemble, params_bytes};
use kvarto::backend::{Access, Specialisation};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for an answer: a kernel's compilation takes a software driver seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// A device of Dawn's. Dropping it ends its process.
pub struct Dawn {
    child: Child,
    connection: TcpStream,
    /// What the device said of itself: `name value` a line.
    pub about: String,
}

/// Which device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Lane {
    /// Compiles everything, runs nothing; WebGPU's defaults without optional features.
    NullFloor,
    /// The same with 16-bit floats and subgroups.
    NullNative,
    /// OpenGL, without a window: runs.
    Gl,
}

impl Dawn {
    /// Starts a process with a device.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn start(lane: Lane) -> Result<Self, String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dawn");
        if !folder.join("node_modules/webgpu").is_dir() {
            return Err("the npm package webgpu is not installed in tests/dawn (tests/run does)".into());
        }
        let failed = |e: std::io::Error| format!("no local connection: {e}");
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let mut node = Command::new("node");
        node.arg(folder.join("server.mjs")).arg(port.to_string());
        node.stdin(Stdio::null()).stdout(Stdio::null()).env("EGL_PLATFORM", "surfaceless");
        let mut child = node.spawn().map_err(|e| format!("the program node cannot be run: {e}"))?;
        let connection = accept(&listener, &mut child).inspect_err(|_| end(&mut child))?;
        let mut dawn = Dawn { child, connection, about: String::new() };
        let (backend, level, features) = match lane {
            Lane::NullFloor => ("null", "core", ""),
            Lane::NullNative => ("null", "core", r#""shader-f16","subgroups""#),
            Lane::Gl => ("opengl", "compatibility", ""),
        };
        let text = format!(r#"{{"op":"open","backend":"{backend}","level":"{level}","features":[{features}]}}"#);
        dawn.about = String::from_utf8_lossy(&dawn.call(&text, &[])?).into_owned();
        Ok(dawn)
    }

    /// The value of a line of [`Dawn::about`].
    pub fn said(&self, name: &str) -> &str {
        let line = self.about.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {:?}", self.about))
    }

    /// One request and its answer.
    ///
    /// # Errors
    /// What Dawn objected to, or that the process is gone.
    pub fn call(&mut self, text: &str, data: &[u8]) -> Result<Vec<u8>, String> {
        let gone = |e: std::io::Error| format!("Dawn gives no answer: {e}");
        let mut request = Vec::with_capacity(8 + text.len() + data.len());
        request.extend((text.len() as u32).to_le_bytes());
        request.extend((data.len() as u32).to_le_bytes());
        request.extend(text.as_bytes());
        request.extend(data);
        self.connection.write_all(&request).map_err(gone)?;
        let mut head = [[0u8; 4]; 2];
        self.connection.read_exact(head.as_flattened_mut()).map_err(gone)?;
        let [status, bytes] = head.map(u32::from_le_bytes);
        let mut answer = vec![0; bytes as usize];
        self.connection.read_exact(&mut answer).map_err(gone)?;
        if status == 0 { Ok(answer) } else { Err(String::from_utf8_lossy(&answer).into_owned()) }
    }

    /// Compiles a kernel into pipeline `id`.
    ///
    /// # Errors
    /// Dawn's errors and warnings, with their lines.
    pub fn prepare(&mut self, id: u32, spec: &Specialisation) -> Result<(), String> {
        let Module { text, .. } = assemble(spec, &AssembleOptions::default()).map_err(|e| e.to_string())?;
        self.prepare_text(id, spec, &enabled(&text))
    }

    /// The same of a text in place of the kernel's own.
    ///
    /// # Errors
    /// As [`Dawn::prepare`].
    pub fn prepare_text(&mut self, id: u32, spec: &Specialisation, text: &str) -> Result<(), String> {
        let access = |a: Access| if a == Access::Read { 'r' } else { 'w' };
        let bindings: String = spec.decl.bindings.iter().map(|b| access(b.access)).collect();
        let block = params_bytes(spec.decl.params.len());
        let head = format!(r#"{{"op":"prepare","id":{id},"block":{block},"bindings":"{bindings}"}}"#);
        self.call(&head, text.as_bytes()).map(drop)
    }
}

impl Drop for Dawn {
    fn drop(&mut self) {
        let _ = self.connection.shutdown(Shutdown::Both);
        end(&mut self.child);
    }
}

/// The process's connection, once it has started.
fn accept(listener: &TcpListener, child: &mut Child) -> Result<TcpStream, String> {
    let failed = |e: std::io::Error| format!("the process of Dawn does not connect: {e}");
    listener.set_nonblocking(true).map_err(failed)?;
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((connection, _)) => {
                connection.set_nonblocking(false).map_err(failed)?;
                connection.set_nodelay(true).map_err(failed)?;
                connection.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
                return Ok(connection);
            }
            Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => return Err(failed(e)),
            Err(_) => {}
        }
        if let Some(status) = child.try_wait().map_err(failed)? {
            return Err(format!("the process of Dawn ended at its start: {status}"));
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("the process of Dawn does not connect within {PATIENCE:?}"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends the process, whatever it is about.
fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The module with the `enable` lines that browsers ask for and naga does without.
pub fn enabled(text: &str) -> String {
    let missing = |name: &str| !text.contains(&format!("enable {name};"));
    let lines = needs(text).into_iter().filter(|name| missing(name)).map(|name| format!("enable {name};\n"));
    lines.collect::<String>() + text
}

/// Extensions that a module's text makes use of.
pub fn needs(text: &str) -> Vec<&'static str> {
    let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let words = || code.iter().flat_map(|l| l.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let subgroup =
        |w: &str| w.strip_prefix("subgroup").is_some_and(|r| r.starts_with(|c: char| c == '_' || c.is_uppercase()));
    let f16 = |w: &str| ["f16", "vec2h", "vec3h", "vec4h"].contains(&w);
    let mut needs = Vec::new();
    if words().any(f16) {
        needs.push("f16");
    }
    if words().any(subgroup) {
        needs.push("subgroups");
    }
    needs
}

/// Compiles every kernel as it is assembled; the number of modules without extensions, and of those with. Fails with what
/// Dawn objected to, and stops at the fifth such module.
///
/// # Errors
/// Why there is no Dawn.
pub fn compile_all(specs: &[Specialisation]) -> Result<[usize; 2], String> {
    let mut devices = [Dawn::start(Lane::NullFloor)?, Dawn::start(Lane::NullNative)?];
    let (mut counts, mut bad) = ([0; 2], Vec::new());
    for (at, spec) in specs.iter().enumerate() {
        let text = assemble(spec, &AssembleOptions::default()).unwrap_or_else(|e| panic!("{}: {e}", spec.key())).text;
        // Without extensions where the text needs none: the floor tier must do without.
        let lane = usize::from(!needs(&text).is_empty());
        if let Err(message) = devices[lane].prepare_text(at as u32, spec, &enabled(&text)) {
            bad.push(format!("{}: {message}", spec.key()));
        }
        counts[lane] += 1;
        assert!(bad.len() < 5, "Dawn refuses:\n{}", bad.join("\n"));
    }
    assert!(bad.is_empty(), "Dawn refuses:\n{}", bad.join("\n"));
    Ok(counts)
}
