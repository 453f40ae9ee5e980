//! Quality against bits: one numbered mark a profile, a legend, speed beside it.

use super::super::folder::Folder;
use super::super::summary::Summary;
use super::{FONT, Picture, fault, ink, write};
use crate::error::Result;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use std::ops::Range;

/// Divergences below this are rounding, and are drawn here.
const FLOOR: f64 = 1e-6;

/// A profile's mark.
struct Mark {
    label: String,
    resident: Option<f64>,
    read: Option<f64>,
    kl: f64,
    interval: Option<[f64; 2]>,
    speed: Option<f64>,
}

struct Frontier {
    title: String,
    marks: Vec<Mark>,
}

/// Draws `frontier-WINDOW.png` and `.svg` for each window length: mean KL to dense against resident bits and against read
/// bits a value, decode speed against resident bits. Returns the names drawn.
///
/// # Errors
/// `File` for a picture that cannot be drawn or written.
pub fn frontier(summaries: &[Summary], folder: &Folder) -> Result<Vec<String>> {
    let mut lengths: Vec<usize> = summaries.iter().map(|s| s.window_tokens).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let mut names = Vec::new();
    for tokens in lengths {
        let own: Vec<&Summary> =
            summaries.iter().filter(|s| s.window_tokens == tokens && s.overall(summaries)).collect();
        let mut marks: Vec<Mark> = own
            .iter()
            .filter_map(|s| {
                Some(Mark {
                    label: s.label.clone(),
                    resident: s.resident_bits_per_seen_value,
                    read: s.read_bits_per_seen_value,
                    kl: s.kl_mean?.max(FLOOR),
                    interval: s.kl_interval.map(|i| i.map(|x| x.max(FLOOR))),
                    speed: s.decode_tokens_per_s,
                })
            })
            .collect();
        marks.sort_by(|a, b| b.resident.partial_cmp(&a.resident).unwrap_or(std::cmp::Ordering::Equal));
        if marks.is_empty() {
            continue;
        }
        let scored = own.first().map_or(0, |s| s.tokens);
        let text = own.first().map_or("", |s| s.text.as_str());
        let texts = if text == "mean" { "mean of texts" } else { text };
        let title = format!("{tokens} tokens, {texts}, {scored} tokens scored");
        let name = format!("frontier-{tokens}");
        let height = 620.max(90 + 22 * marks.len() as u32);
        write(folder, &name, (1760, height), &Frontier { title, marks })?;
        names.push(name);
    }
    Ok(names)
}

impl Picture for Frontier {
    fn png(&self, area: DrawingArea<BitMapBackend<'_>, Shift>) -> Result<()> {
        self.draw(&area)
    }

    fn svg(&self, area: DrawingArea<SVGBackend<'_>, Shift>) -> Result<()> {
        self.draw(&area)
    }
}

impl Frontier {
    fn draw<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<()> {
        area.fill(&WHITE).map_err(fault)?;
        let (panels, legend) = area.split_horizontally(1290);
        let panels = panels.titled(&self.title, (FONT, 22)).map_err(fault)?.split_evenly((1, 3));
        let kl = self.kl_range();
        let kls = |m: &Mark| Some(m.kl);
        self.panel(
            &panels[0],
            "resident bits a value of all tokens",
            "mean KL to dense, nat",
            kl.clone(),
            |m| m.resident,
            kls,
            true,
        )?;
        self.panel(&panels[1], "read bits a value of all tokens", "mean KL to dense, nat", kl, |m| m.read, kls, true)?;
        let speeds = self.marks.iter().filter_map(|m| m.speed).fold(1.0, f64::max);
        let speed = |m: &Mark| m.speed;
        self.panel(
            &panels[2],
            "resident bits a value of all tokens",
            "decode, tokens/s",
            0.0..speeds * 1.1,
            |m| m.resident,
            speed,
            false,
        )?;
        self.legend(&legend)?;
        area.present().map_err(fault)
    }

    fn kl_range(&self) -> Range<f64> {
        let low = self.marks.iter().map(|m| m.interval.map_or(m.kl, |i| i[0].min(m.kl))).fold(f64::INFINITY, f64::min);
        let high = self.marks.iter().map(|m| m.interval.map_or(m.kl, |i| i[1].max(m.kl))).fold(FLOOR, f64::max);
        (low / 2.0).max(FLOOR / 2.0)..high * 2.0
    }

    #[allow(clippy::too_many_arguments)] // one call a panel; a struct would only rename the list
    fn panel<B: DrawingBackend>(
        &self,
        area: &DrawingArea<B, Shift>,
        x_name: &str,
        y_name: &str,
        y_range: Range<f64>,
        x: impl Fn(&Mark) -> Option<f64>,
        y: impl Fn(&Mark) -> Option<f64>,
        logarithmic: bool,
    ) -> Result<()> {
        let most = self.marks.iter().filter_map(&x).fold(2.0, f64::max);
        let mut builder = ChartBuilder::on(area);
        builder.margin(14).x_label_area_size(44).y_label_area_size(66);
        let points: Vec<(usize, &Mark, f64, f64)> =
            self.marks.iter().enumerate().filter_map(|(at, mark)| Some((at, mark, x(mark)?, y(mark)?))).collect();
        // Two coordinate types: the same calls for each.
        macro_rules! chart {
            ($chart:expr) => {{
                let mut chart = $chart.map_err(fault)?;
                chart
                    .configure_mesh()
                    .x_desc(x_name)
                    .y_desc(y_name)
                    .label_style((FONT, 15))
                    .axis_desc_style((FONT, 17))
                    .light_line_style(TRANSPARENT)
                    .bold_line_style(RGBColor(222, 222, 222))
                    .x_label_formatter(&|v: &f64| format!("{v:.0}"))
                    .y_label_formatter(&|v: &f64| if logarithmic { power(*v) } else { format!("{v:.0}") })
                    .draw()
                    .map_err(fault)?;
                if logarithmic {
                    let bars = points.iter().filter_map(|&(at, mark, x, _)| {
                        let [low, high] = mark.interval?;
                        Some(PathElement::new(vec![(x, low), (x, high)], colour(at).stroke_width(1)))
                    });
                    chart.draw_series(bars).map_err(fault)?;
                }
                let dots = points.iter().map(|&(at, _, x, y)| Circle::new((x, y), 5, colour(at).filled()));
                chart.draw_series(dots).map_err(fault)?;
                let style = |at: usize| ink(15, colour(at), HPos::Left, VPos::Bottom);
                let numbers = points.iter().map(|&(at, _, x, y)| {
                    let close = |&&(other, _, a, b): &&(usize, &Mark, f64, f64)| {
                        other < at && (a - x).abs() < most / 25.0 && nearby(b, y, logarithmic)
                    };
                    // Neighbours' numbers stand on the other side of their marks.
                    let (dx, dy) = if points.iter().filter(close).count() % 2 == 1 { (-20, 6) } else { (6, -2) };
                    EmptyElement::at((x, y)) + Text::new((at + 1).to_string(), (dx, dy), style(at))
                });
                chart.draw_series(numbers).map_err(fault)?;
            }};
        }
        let x_range = 0.0..most * 1.08;
        if logarithmic {
            chart!(builder.build_cartesian_2d(x_range, y_range.log_scale()));
        } else {
            chart!(builder.build_cartesian_2d(x_range, y_range));
        }
        Ok(())
    }

    fn legend<B: DrawingBackend>(&self, area: &DrawingArea<B, Shift>) -> Result<()> {
        let style = |at: usize| ink(16, colour(at), HPos::Left, VPos::Top);
        for (at, mark) in self.marks.iter().enumerate() {
            let y = 50 + 22 * at as i32;
            area.draw(&Circle::new((8, y + 8), 5, colour(at).filled())).map_err(fault)?;
            let bits = mark.resident.map_or("-".into(), |b| format!("{b:.2}"));
            let label: String = match mark.label.chars().count() > 30 {
                true => mark.label.chars().take(29).chain(['…']).collect(),
                false => mark.label.clone(),
            };
            let text = format!("{:>2}  {label}: {bits} bits, KL {:.5}", at + 1, mark.kl);
            area.draw(&Text::new(text, (20, y), style(at))).map_err(fault)?;
        }
        Ok(())
    }
}

/// Whether two heights lie so close that numbers beside them would overlap.
fn nearby(a: f64, b: f64, logarithmic: bool) -> bool {
    match logarithmic {
        true => (a / b).ln().abs() < 0.8,
        false => (a - b).abs() < 0.06 * a.max(b),
    }
}

/// `1e-3`, and plain numbers from a hundredth on.
fn power(value: f64) -> String {
    match value {
        v if v >= 0.01 => format!("{v}"),
        v => format!("{v:.0e}"),
    }
}

/// Colours that stay apart, also for most colour-blind eyes, in turn.
fn colour(at: usize) -> RGBColor {
    const COLOURS: [(u8, u8, u8); 8] = [
        (0, 114, 178),
        (213, 94, 0),
        (0, 140, 100),
        (190, 90, 150),
        (30, 30, 30),
        (150, 110, 0),
        (60, 150, 210),
        (160, 30, 30),
    ];
    let (r, g, b) = COLOURS[at % COLOURS.len()];
    RGBColor(r, g, b)
}
