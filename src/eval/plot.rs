//! Pictures of results: points of many profiles, and heat maps. The typeface comes with the program.

mod frontier;
mod heat;

pub use frontier::frontier;
pub use heat::{HeatMap, heat_map};

use super::folder::Folder;
use crate::error::{Error, ErrorKind, Result};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};
use std::fmt::Display;
use std::sync::Once;

/// The name that texts ask for; viewers of SVG files take their own typeface of that kind.
const FONT: &str = "sans-serif";

/// Makes the typeface known to the plotting library.
fn fonts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if register_font(FONT, FontStyle::Normal, epaint_default_fonts::UBUNTU_LIGHT).is_err() {
            log::warn!("the typeface of plots cannot be read");
        }
    });
}

/// Text of `size` pixels that stands at its place as `h` and `v` say.
fn ink(size: u32, colour: RGBColor, h: HPos, v: VPos) -> TextStyle<'static> {
    TextStyle { color: colour.to_backend_color(), pos: Pos::new(h, v), ..TextStyle::from((FONT, size)) }
}

/// What the plotting library says, as an error of ours.
fn fault(error: impl Display) -> Error {
    Error::new(ErrorKind::File, format!("the plot cannot be drawn: {error}"), "make room where results go")
}

/// Draws the same picture twice: `NAME.png` and `NAME.svg` in the folder.
///
/// # Errors
/// `File` for a picture that cannot be drawn or written.
pub(crate) fn write(folder: &Folder, name: &str, size: (u32, u32), picture: &dyn Picture) -> Result<()> {
    fonts();
    let mut svg = String::new();
    picture.svg(SVGBackend::with_string(&mut svg, size).into_drawing_area())?;
    folder.write(&format!("{name}.svg"), svg.as_bytes())?;
    // The library chooses the format by the file's ending.
    let draft = folder.path().join(format!(".{}-{name}.png", std::process::id()));
    let drawn = picture.png(BitMapBackend::new(&draft, size).into_drawing_area());
    let path = folder.path().join(format!("{name}.png"));
    drawn.and_then(|()| std::fs::rename(&draft, &path).map_err(|e| fault(format!("{}: {e}", path.display()))))
}

/// Something that can be drawn with either library backend.
pub(crate) trait Picture {
    /// Draws on pixels.
    fn png(&self, area: DrawingArea<BitMapBackend<'_>, plotters::coord::Shift>) -> Result<()>;
    /// Draws as SVG.
    fn svg(&self, area: DrawingArea<SVGBackend<'_>, plotters::coord::Shift>) -> Result<()>;
}
