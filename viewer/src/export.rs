//! Views as files.

use crate::view::Table;
use std::path::{Path, PathBuf};

/// As what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A table of what the view shows.
    Csv,
    /// A picture of it.
    Png,
}

impl Kind {
    /// How its files end.
    pub fn ending(self) -> &'static str {
        match self {
            Kind::Csv => "csv",
            Kind::Png => "png",
        }
    }
}

/// Writes a table.
///
/// # Errors
/// What the system says, in words.
pub fn write_csv(table: &Table, path: &Path) -> Result<(), String> {
    let write = || -> csv::Result<()> {
        let mut writer = csv::Writer::from_path(path)?;
        writer.write_record(&table.head)?;
        table.rows.iter().try_for_each(|row| writer.write_record(row))?;
        Ok(writer.flush()?)
    };
    write().map_err(|e| format!("{}: {e}", path.display()))
}

/// Writes a picture: RGBA bytes, rows from above.
///
/// # Errors
/// What the system says, in words.
pub fn write_png(size: [usize; 2], rgba: &[u8], path: &Path) -> Result<(), String> {
    let write = || -> Result<(), Box<dyn std::error::Error>> {
        let file = std::io::BufWriter::new(std::fs::File::create(path)?);
        let mut encoder = png::Encoder::new(file, u32::try_from(size[0])?, u32::try_from(size[1])?);
        encoder.set_color(png::ColorType::Rgba);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(rgba)?;
        Ok(writer.finish()?)
    };
    write().map_err(|e| format!("{}: {e}", path.display()))
}

/// A name that no file has yet, in the folder where the program was started.
pub fn fresh_name(view: &str, step: u64, kind: Kind) -> PathBuf {
    let name = |n: u32| {
        let more = if n == 0 { String::new() } else { format!("-{n}") };
        PathBuf::from(format!("kvarto-{view}-step{step}{more}.{}", kind.ending()))
    };
    (0..u32::MAX).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(0))
}
