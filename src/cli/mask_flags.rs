//! Flags that hold an adapter to less than it has, for every command that opens one.

use clap::Args;
use kvarto::backend::wgpu::{LimitMask, OpenOptions, Without};
use kvarto::{Error, ErrorKind, Result};

/// Which poorer adapter to play.
#[derive(Clone, Debug, Default, Args)]
pub struct MaskFlags {
    /// Limits of the GPU: adapter (its own), webgpu-default, or single ones such as max_binding_bytes=1MiB;
    /// comma-separated
    #[arg(long, value_name = "WORDS")]
    limits: Option<String>,
    /// Optional features of the GPU to leave unused: f16, subgroups, timestamps; comma-separated
    #[arg(long, value_name = "WORDS")]
    without: Option<String>,
}

impl MaskFlags {
    /// How to open adapters.
    ///
    /// # Errors
    /// `Usage` for a word that is not known, with the nearest that is.
    pub fn options(&self) -> Result<OpenOptions> {
        let limits = |text: &String| LimitMask::parse(text).map_err(|e| e.context(format!("--limits {text}")));
        let without = |text: &String| Without::parse(text).map_err(|e| e.context(format!("--without {text}")));
        let limits = self.limits.as_ref().map(limits).transpose()?;
        let without = self.without.as_ref().map(without).transpose()?;
        Ok(OpenOptions {
            limits: limits.unwrap_or_default(),
            without: without.unwrap_or_default(),
            // All kernels and formats of the program are the library's own: their loops end, and need no bounds beside
            // their own. On an H200, bounds cost a decode a quarter of its time.
            trusted: true,
            ..OpenOptions::default()
        })
    }

    /// Whether nothing is masked.
    pub fn empty(&self) -> bool {
        self.limits.as_deref().is_none_or(|limits| limits.trim() == "adapter") && self.without.is_none()
    }

    /// Refuses masks where wgpu opens nothing: `what` would silently be what it is.
    ///
    /// # Errors
    /// `Usage`, where there are any.
    pub fn refuse_on(&self, what: &str) -> Result<()> {
        if self.empty() {
            return Ok(());
        }
        let flag = if self.limits.is_some() { "--limits" } else { "--without" };
        let message = format!("{flag} holds an adapter of wgpu's to less than it has, and this is {what}");
        Err(Error::new(ErrorKind::Usage, message, "name an adapter, such as --backend vulkan"))
    }
}
