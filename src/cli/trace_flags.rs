//! `--trace` and `--events`: what the cache does, written to a file or served as it happens.

use super::output::say;
use clap::Args;
use kvarto::backend::Backend;
use kvarto::bench::copy_bytes_per_s;
use kvarto::engine::{Engine, PageSampling};
use kvarto::model::Model;
use kvarto::model::gguf::Gguf;
use kvarto::model::tokenizer::Tokenizer;
use kvarto::trace::{Header, ModelHeader, Recorder, RecorderOptions, Target};
use kvarto::{Error, ErrorKind, Result};
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

/// What to record.
#[derive(Clone, Debug, Default, Args)]
pub struct TraceFlags {
    /// Record what the cache does in a file: see `kvarto trace`
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Record how much attention each page gets, in every Nth decoding step: every=N; such steps take longer, and their
    /// sums may round otherwise
    #[arg(long, value_parser = every, value_name = "every=N")]
    pub trace_mass: Option<u32>,
    /// Record what pages hold and how far that is from the exact rows, when they are sealed or converted: all, sample=N
    /// (every Nth page) or none
    #[arg(long, value_parser = pages, default_value = "none", value_name = "WHICH")]
    pub trace_pages: PageSampling,
}

/// Where to serve.
#[derive(Clone, Debug, Default, Args)]
pub struct EventFlags {
    /// Serve the trace as it happens to programs that connect, read-only: a port of this machine alone (0 for any free
    /// one), or ADDRESS:PORT
    #[arg(long, value_parser = address, value_name = "PORT")]
    pub events: Option<SocketAddr>,
}

fn every(text: &str) -> Result<u32, String> {
    let number = text.strip_prefix("every=").and_then(|n| n.parse().ok()).filter(|n| *n > 0);
    number.ok_or_else(|| format!("every=N with N from 1 to {} is wanted", u32::MAX))
}

fn pages(text: &str) -> Result<PageSampling, String> {
    match text {
        "all" => return Ok(PageSampling::Every(1)),
        "none" => return Ok(PageSampling::None),
        _ => {}
    }
    let number = text.strip_prefix("sample=").and_then(|n| n.parse().ok()).filter(|n| *n > 0);
    number.map(PageSampling::Every).ok_or_else(|| "all, none, or sample=N with N of 1 or more is wanted".into())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse::<u16>().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    let wanted = "a port from 0 to 65535 is wanted, or an address with one, such as 127.0.0.1:7000";
    port.or_else(|_| text.parse()).map_err(|_| wanted.to_string())
}

/// Places that a trace goes to, opened before anything takes long.
pub struct Opened {
    flags: TraceFlags,
    target: Option<Target>,
    listener: Option<TcpListener>,
    copy_bytes_per_s: Option<f64>,
}

impl TraceFlags {
    /// Opens the file and the port, where any is wanted. What the file holds stays until recording begins.
    ///
    /// # Errors
    /// `File` for a file that cannot be made or holds something else or a port that cannot be had, `Usage` for samples that go nowhere.
    pub fn open(&self, events: &EventFlags) -> Result<Option<Opened>> {
        let target = self.trace.as_deref().map(Target::open).transpose()?;
        let listener = events.events.map(|address| {
            TcpListener::bind(address).map_err(|e| {
                let message = format!("--events {address}: {e}");
                Error::new(ErrorKind::File, message, "give another port, or 0 for any free one")
            })
        });
        let listener = listener.transpose()?;
        if target.is_none() && listener.is_none() {
            if self.trace_mass.is_some() || self.trace_pages != PageSampling::None {
                let message = "--trace-mass and --trace-pages are recorded in a trace, and there is none";
                return Err(Error::new(ErrorKind::Usage, message, "add --trace FILE"));
            }
            return Ok(None);
        }
        Ok(Some(Opened { flags: self.clone(), target, listener, copy_bytes_per_s: None }))
    }
}

impl Opened {
    /// Measures how fast the adapter copies, for the header: before a model is on it, in a moment.
    pub fn measure(&mut self, backend: &mut dyn Backend) {
        let bytes = if backend.caps().software { 32 << 20 } else { 128 << 20 };
        self.copy_bytes_per_s = copy_bytes_per_s(backend, bytes).ok().filter(|rate| rate.is_finite());
    }

    /// The rate that was measured or given.
    pub fn copy_rate(&self) -> Option<f64> {
        self.copy_bytes_per_s
    }

    /// The same, where the rate is known already.
    pub fn with_copy_rate(self, bytes_per_s: f64) -> Self {
        Opened { copy_bytes_per_s: Some(bytes_per_s), ..self }
    }

    /// Records an engine.
    ///
    /// # Errors
    /// `File` as [`Recorder::start`].
    pub fn start(self, engine: &mut Engine, command: &str, model: Option<ModelHeader>) -> Result<Tracing> {
        let Opened { flags, target, listener, copy_bytes_per_s } = self;
        let header = Header { command: command.into(), model, copy_bytes_per_s, ..Header::of(engine) };
        engine.sample_mass(flags.trace_mass.unwrap_or(0));
        engine.sample_pages(flags.trace_pages);
        let tell = |error: &Error| say(&format!("warning: {error}; the run goes on without a trace"));
        let options =
            RecorderOptions { target, listener, on_fault: Some(Box::new(tell)), ..RecorderOptions::default() };
        let recorder = Recorder::start(engine, &header, options)?;
        if let Some(address) = recorder.address() {
            say(&format!("events    served at {address}"));
        }
        Ok(Tracing { recorder, flags })
    }

    /// Records a model: its engine, and its tokens with their text.
    ///
    /// # Errors
    /// As [`Opened::start`].
    pub fn start_model(
        self,
        model: &mut Model,
        tokenizer: &Tokenizer,
        (name, gguf): (&str, &Gguf),
        command: &str,
    ) -> Result<Tracing> {
        let header = ModelHeader {
            name: name.into(),
            sha256: gguf.sha256().into(),
            architecture: model.config().architecture.name.into(),
            weight_bytes: model.weight_bytes(),
        };
        model.tell_tokens(Some(tokenizer.clone()));
        self.start(model.engine(), command, Some(header))
    }
}

/// A trace in the making.
pub struct Tracing {
    recorder: Recorder,
    flags: TraceFlags,
}

impl Tracing {
    /// Ends it, says what became of it, and returns that for programs: `file` (null without one), `events` written,
    /// `dropped` for want of time, `clients` served, and `fault`, which is null unless the file ended before the run.
    pub fn finish(self) -> Value {
        let summary = self.recorder.finish();
        let mut text = format!("trace     {} events", summary.events);
        if let (Some(path), None) = (&self.flags.trace, &summary.fault) {
            text += &format!(", {} in {}", super::report::bytes(summary.bytes), path.display());
        }
        if summary.dropped > 0 {
            text += &format!("; {} more were lost, since writing was slow", summary.dropped);
        }
        if summary.clients > 0 {
            text += &format!("; served to {}", summary.clients);
        }
        if summary.fault.is_some() {
            text += "; the rest is lost";
        }
        say(&text);
        json!({
            "file": self.flags.trace.as_ref().map(|path| path.to_string_lossy()),
            "events": summary.events,
            "dropped": summary.dropped,
            "clients": summary.clients,
            "fault": summary.fault.as_ref().map(Error::message),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_or_refused() {
        assert_eq!(every("every=8"), Ok(8));
        assert_eq!(pages("sample=3"), Ok(PageSampling::Every(3)));
        assert_eq!(pages("all"), Ok(PageSampling::Every(1)));
        assert_eq!(address("7001").unwrap().to_string(), "127.0.0.1:7001");
        assert_eq!(address("[::1]:0").unwrap().to_string(), "[::1]:0");
        for wrong in ["", "8", "every=0", "every=-1", "every=99999999999", "sample=0", "sample=x", "70000", "host:1"] {
            assert!(every(wrong).is_err() && pages(wrong).is_err() && (wrong == "8" || address(wrong).is_err()));
        }
    }
}
