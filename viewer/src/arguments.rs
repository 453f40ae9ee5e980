//! Flags.

use crate::export::Kind;
use crate::live::LiveOptions;
use clap::Parser;
use std::path::PathBuf;

/// Shows a Kvarto cache: page formats, sparsity masks, memory. Without flags it plays a trace that comes with it.
#[derive(Debug, Parser)]
#[command(version)]
pub struct Arguments {
    /// A trace that `kvarto … --trace FILE` wrote, or still writes
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// A second trace to compare with
    #[arg(long, value_name = "FILE")]
    pub compare: Option<PathBuf>,
    /// Attach to a program that serves its events (`kvarto generate --events PORT`)
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["trace", "screenshot", "export"])]
    pub connect: Option<String>,
    /// Run a model here and look at its cache
    #[arg(long, conflicts_with_all = ["trace", "connect", "screenshot", "export"])]
    pub live: bool,
    /// The model of --live: a name from `kvarto models list`, or a path that ends in .gguf
    #[arg(long, default_value = "smollm2-135m", value_name = "NAME-or-FILE")]
    pub model: String,
    /// The profile of --live: a name from `kvarto profiles`, or a path that ends in .toml
    #[arg(long, default_value = "minima-kv", value_name = "NAME-or-FILE")]
    pub profile: String,
    /// What --live answers first
    #[arg(long, requires = "live", conflicts_with_all = ["screenshot", "export"], value_name = "TEXT")]
    pub prompt: Option<String>,
    /// Where --live runs: auto, cpu, cuda, wgpu, vulkan, metal, dx12 or gl; vulkan:1 is the second adapter of its kind
    #[arg(long, default_value = "auto", value_name = "BACKEND")]
    pub backend: String,
    /// Run --live on the window's own device
    #[arg(long, requires = "live", conflicts_with_all = ["screenshot", "export"])]
    pub share_device: bool,
    /// In --live, sample attention by page in every Nth step; 0 for never
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub mass: u32,
    /// In --live, keep the contents of every Nth page that is sealed or converted; 0 for none
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub pages: u32,
    /// Most new tokens of an answer in --live
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub max_tokens: u32,
    /// Draw into a PNG file, without a window
    #[arg(long, value_name = "OUT.png")]
    pub screenshot: Option<PathBuf>,
    /// Write a view as a file, without a window
    #[arg(long, value_enum, requires = "view", value_name = "KIND")]
    pub export: Option<Kind>,
    /// The file for --export
    #[arg(short, long, requires = "export", value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print what frames cost with a large cache and a large trace, without a window
    #[arg(long)]
    pub bench: bool,
    /// Size of pictures in pixels
    #[arg(long, default_value = "1280x800", value_parser = size, value_name = "WxH")]
    pub size: [u32; 2],
    /// Pixels of a point in pictures
    #[arg(long, default_value_t = 1.0, value_parser = scale, value_name = "N")]
    pub scale: f32,
    /// Go to the end of this step; in pictures the last one otherwise
    #[arg(long, value_name = "STEP")]
    pub at: Option<u64>,
    /// Show one view alone in files, or bring it to the front of a window: page-map, mask, memory, timeline, inspector,
    /// text, compare, device or live
    #[arg(long, value_name = "NAME")]
    pub view: Option<String>,
    /// A light background
    #[arg(long)]
    pub light: bool,
}

impl Arguments {
    /// What --live runs, on a device of its own or on `device`.
    pub fn live_options(&self, device: Option<(kvarto::wgpu::Device, kvarto::wgpu::Queue)>) -> LiveOptions {
        LiveOptions {
            model: self.model.clone(),
            profile: self.profile.clone(),
            backend: self.backend.clone(),
            device,
            mass_every: self.mass,
            pages_every: self.pages,
            max_tokens: self.max_tokens as usize,
            prompt: self.prompt.clone(),
        }
    }
}

fn size(text: &str) -> Result<[u32; 2], String> {
    let sides = text.split_once(['x', 'X', '×']).and_then(|(w, h)| Some([w.parse().ok()?, h.parse().ok()?]));
    sides.ok_or_else(|| "width and height in pixels are wanted, such as 1280x800".into())
}

fn scale(text: &str) -> Result<f32, String> {
    let scale = text.parse().ok().filter(|scale| (0.25..=8.0).contains(scale));
    scale.ok_or_else(|| "a number from 0.25 to 8 is wanted".into())
}
