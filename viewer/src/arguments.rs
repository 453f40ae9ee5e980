//! Flags.

use crate::export::Kind;
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
    /// Draw into a PNG file, without a window
    #[arg(long, value_name = "OUT.png")]
    pub screenshot: Option<PathBuf>,
    /// Write a view as a file, without a window
    #[arg(long, value_enum, requires = "view", value_name = "KIND")]
    pub export: Option<Kind>,
    /// The file for --export
    #[arg(short, long, requires = "export", value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Size of pictures in pixels
    #[arg(long, default_value = "1280x800", value_parser = size, value_name = "WxH")]
    pub size: [u32; 2],
    /// Pixels of a point in pictures
    #[arg(long, default_value_t = 1.0, value_parser = scale, value_name = "N")]
    pub scale: f32,
    /// Go to the end of this step; in pictures the last one otherwise
    #[arg(long, value_name = "STEP")]
    pub at: Option<u64>,
    /// Show one view alone, or bring it to the front
    #[arg(long, value_name = "NAME")]
    pub view: Option<String>,
    /// A light background
    #[arg(long)]
    pub light: bool,
}

fn size(text: &str) -> Result<[u32; 2], String> {
    let sides = text.split_once(['x', 'X', '×']).and_then(|(w, h)| Some([w.parse().ok()?, h.parse().ok()?]));
    sides.ok_or_else(|| "width and height in pixels are wanted, such as 1280x800".into())
}

fn scale(text: &str) -> Result<f32, String> {
    let scale = text.parse().ok().filter(|scale| (0.25..=8.0).contains(scale));
    scale.ok_or_else(|| "a number from 0.25 to 8 is wanted".into())
}
