//! Lanes: bars and curves over time, a column of points wide each, whatever the number of steps.

use super::facts::{Bar, Facts};
use super::looks;
use super::picture::{Picture, Words};
use crate::palette::Palette;
use crate::plotting;
use crate::store::{At, Chronicle};
use crate::units;
use eframe::egui::{Align2, Color32, Mesh, Painter, Pos2, Rect, Shape, Stroke, Vec2};
use kvarto::engine::StepFacts;
use std::sync::Arc;

/// What a lane shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Host time of steps.
    Steps,
    /// Bytes moved, and the policy's time.
    Moves,
    /// Shares of kernels.
    Kernels,
    /// Bytes read a second.
    Bandwidth,
    /// Pages converted.
    Conversions,
}

impl Kind {
    /// Its part of the height.
    fn weight(self) -> f32 {
        match self {
            Kind::Steps => 3.0,
            Kind::Kernels | Kind::Bandwidth => 1.8,
            Kind::Moves => 1.5,
            Kind::Conversions => 1.2,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Steps => "steps",
            Kind::Moves => "moves",
            Kind::Kernels => "kernels",
            Kind::Bandwidth => "bandwidth",
            Kind::Conversions => "conversions",
        }
    }
}

/// What is drawn: the trace, and which part of it where.
pub struct Drawing<'a> {
    /// Steps.
    pub facts: &'a Facts,
    /// The trace.
    pub chronicle: &'a Chronicle,
    /// Bytes a second that the adapter copies.
    pub copy_rate: Option<f64>,
    /// Colours.
    pub palette: Palette,
    /// Seconds at the left and right edges.
    pub range: (f64, f64),
    /// Where lanes lie, their names to the left of it.
    pub rect: Rect,
}

/// The tallest bar of each column of points: its value and the place of its step.
type Columns = Vec<Option<(f64, usize)>>;

impl Drawing<'_> {
    /// Places of the lanes, from above.
    pub fn lanes(&self) -> Vec<(Kind, Rect)> {
        const GAP: f32 = 5.0;
        let mut kinds = vec![Kind::Steps, Kind::Moves];
        kinds.extend((!self.facts.kernels.is_empty()).then_some(Kind::Kernels));
        kinds.extend([Kind::Bandwidth, Kind::Conversions]);
        let all: f32 = kinds.iter().map(|kind| kind.weight()).sum();
        let room = (self.rect.height() - GAP * (kinds.len() - 1) as f32).max(0.0);
        let mut top = self.rect.top();
        let place = |kind: Kind| {
            let height = (room * kind.weight() / all).floor().max(1.0);
            let rect = Rect::from_min_size(Pos2::new(self.rect.left(), top), Vec2::new(self.rect.width(), height));
            top += height + GAP;
            (kind, rect)
        };
        kinds.into_iter().map(place).collect()
    }

    /// Grounds, bars and curves of all lanes, and their words.
    pub fn picture(&self) -> Picture {
        let mut picture = Picture::default();
        for (kind, rect) in self.lanes() {
            picture.shapes.push(Shape::rect_filled(rect, 2.0, self.palette.nothing()));
            let scale = match kind {
                Kind::Steps => self.steps(rect, &mut picture),
                Kind::Moves => self.moves(rect, &mut picture.shapes),
                Kind::Kernels => self.kernels(rect, &mut picture.shapes),
                Kind::Bandwidth => self.bandwidth(rect, &mut picture.shapes),
                Kind::Conversions => self.conversions(rect, &mut picture.shapes),
            };
            let (right, ink) = (rect.left() - 6.0, self.palette.ink());
            let mut write = |y: f32, text: &str, size: f32, color: Color32| {
                let (at, align, text) = (Pos2::new(right, y), Align2::RIGHT_TOP, text.to_string());
                picture.words.push(Words { at, align, text, size, color, ground: Color32::TRANSPARENT });
            };
            write(rect.top() - 1.0, kind.name(), 12.0, ink);
            for (line, words) in scale.iter().enumerate() {
                let top = rect.top() + 13.0 + 12.0 * line as f32;
                if top + 11.0 <= rect.bottom() + 3.0 {
                    write(top, words, 10.0, ink.gamma_multiply(0.7));
                }
            }
        }
        picture
    }

    fn width(&self) -> usize {
        (self.rect.width() as usize).clamp(1, 1 << 14)
    }

    /// The highest `value` of the steps in each column of points.
    fn columns(&self, value: impl Fn(&Bar, &At<StepFacts>) -> Option<f64>) -> Columns {
        let (width, (from, to)) = (self.width(), self.range);
        let mut columns: Columns = vec![None; width];
        let each = (to - from) / width as f64;
        let first = self.facts.bars.partition_point(|bar| bar.end < from);
        let steps = self.chronicle.steps.samples();
        for (at, (bar, step)) in self.facts.bars.iter().zip(steps).enumerate().skip(first) {
            if bar.start > to {
                break;
            }
            let Some(value) = value(bar, step).filter(|value| value.is_finite()) else { continue };
            let column = |time: f64| ((time - from) / each).floor();
            let (left, right) = (column(bar.start).max(0.0), column(bar.end).min(width as f64 - 1.0));
            if right < 0.0 || left >= width as f64 {
                continue;
            }
            // A gap of one column between neighbours that are wide enough.
            let (left, right) = if right >= left + 6.0 { (left + 1.0, right - 1.0) } else { (left, right) };
            for column in columns.iter_mut().take(right as usize + 1).skip(left as usize) {
                if column.is_none_or(|(known, _)| value >= known) {
                    *column = Some((value, at));
                }
            }
        }
        columns
    }

    /// Bars over columns, neighbours that are alike as one.
    fn bars(
        &self,
        rect: Rect,
        columns: &Columns,
        share: impl Fn(f64) -> f64,
        color: impl Fn(usize) -> Color32,
    ) -> Shape {
        let mut mesh = Mesh::default();
        let mut at = 0;
        while at < columns.len() {
            let Some((value, step)) = columns[at] else {
                at += 1;
                continue;
            };
            let end = (at..columns.len()).find(|next| columns[*next] != columns[at]).unwrap_or(columns.len());
            let height = (share(value).clamp(0.0, 1.0) as f32 * rect.height()).max(1.0);
            let left = rect.left() + at as f32;
            let bar = Rect::from_min_max(
                Pos2::new(left, rect.bottom() - height),
                Pos2::new((rect.left() + end as f32).min(rect.right()), rect.bottom()),
            );
            mesh.add_colored_rect(bar, color(step));
            at = end;
        }
        Shape::Mesh(Arc::new(mesh))
    }

    fn steps(&self, rect: Rect, picture: &mut Picture) -> Vec<String> {
        const STRIP: f32 = 4.0;
        let columns = self.columns(|_, step| Some(step.what.host_ns as f64));
        let values = || columns.iter().flatten().map(|(value, _)| value.max(1.0));
        let most = values().fold(1.0, f64::max);
        let least = values().fold(f64::INFINITY, f64::min).min(most);
        // Whole powers of ten, a little more above.
        let (low, high) = (((least * 0.7).max(1.0)).log10().floor(), (most * 1.15).log10());
        let high = high.max(low + 0.5);
        let bars = rect.with_max_y(rect.bottom() - 2.0 * STRIP - 1.0);
        let share = |ns: f64| (ns.max(1.0).log10() - low) / (high - low);
        let facts = self.facts;
        picture.shapes.push(self.bars(bars, &columns, share, |at| looks::step(self.palette, &facts.bars[at])));
        let ink = self.palette.ink();
        for power in (low as i32 + 1)..=(high.floor() as i32) {
            let ns = 10f64.powi(power);
            let y = bars.bottom() - share(ns) as f32 * bars.height();
            picture.shapes.push(Shape::hline(rect.x_range(), y, Stroke::new(1.0, ink.gamma_multiply(0.18))));
            let text = units::nanoseconds(ns as u64).replace(".00", "").replace(".0", "");
            if y - 12.0 > rect.top() {
                let (at, align) = (Pos2::new(rect.left() + 3.0, y - 1.0), Align2::LEFT_BOTTOM);
                picture.words.push(Words { at, align, text, size: 10.0, color: ink, ground: self.palette.nothing() });
            }
        }
        // What is easily overlooked between thousands of bars has strips of its own.
        let mark = |chosen: &dyn Fn(&Bar, &At<StepFacts>) -> bool, above: f32, color: Color32| {
            let columns = self.columns(|bar, step| chosen(bar, step).then_some(1.0));
            let bottom = rect.bottom() - above;
            let strip = Rect::from_min_max(Pos2::new(rect.left(), bottom - STRIP), Pos2::new(rect.right(), bottom));
            self.bars(strip, &columns, |_| 1.0, |_| color)
        };
        picture.shapes.push(mark(&|bar, _| bar.stalled, STRIP, self.palette.alarm()));
        picture.shapes.push(mark(&|_, step| step.what.waiting_moves > 0, 0.0, ink));
        vec!["host time, log".into(), format!("most {}", units::nanoseconds(most as u64))]
    }

    fn moves(&self, rect: Rect, shapes: &mut Vec<Shape>) -> Vec<String> {
        let moved = self.columns(|_, step| (step.what.moved_bytes > 0).then_some(step.what.moved_bytes as f64));
        let most = highest(&moved);
        let color =
            if self.palette.dark { Color32::from_rgb(0x2f, 0xa8, 0x84) } else { Color32::from_rgb(0x00, 0x86, 0x62) };
        shapes.push(self.bars(rect, &moved, |bytes| bytes / (most * 1.1).max(1.0), |_| color));
        let policy = self.columns(|_, step| (step.what.policy_ns > 0).then_some(step.what.policy_ns as f64));
        let longest = highest(&policy);
        let mut mesh = Mesh::default();
        for (at, column) in policy.iter().enumerate() {
            let Some((ns, _)) = column else { continue };
            let y = rect.bottom() - (ns / (longest * 1.1).max(1.0)) as f32 * (rect.height() - 3.0) - 2.0;
            let dot = Rect::from_min_size(Pos2::new(rect.left() + at as f32, y), Vec2::new(2.0, 2.0));
            mesh.add_colored_rect(dot.intersect(rect), self.palette.ink());
        }
        shapes.push(Shape::Mesh(Arc::new(mesh)));
        vec![
            format!("most {}", units::bytes(most as u64)),
            format!("· policy, most {}", units::nanoseconds(longest as u64)),
        ]
    }

    fn kernels(&self, rect: Rect, shapes: &mut Vec<Shape>) -> Vec<String> {
        let columns = self.columns(|bar, _| bar.kernels.map(|_| bar.end - bar.start));
        let samples = self.chronicle.kernels.samples();
        let mut mesh = Mesh::default();
        let mut at = 0;
        while at < columns.len() {
            let Some((_, step)) = columns[at] else {
                at += 1;
                continue;
            };
            let end = (at..columns.len()).find(|next| columns[*next] != columns[at]).unwrap_or(columns.len());
            let sample = self.facts.bars[step].kernels.and_then(|sample| samples.get(sample as usize));
            let mut times = vec![0u64; self.facts.kernels.len() + 1];
            for share in sample.iter().flat_map(|sample| sample.what.kernels.iter()) {
                let place = self.facts.kernels.iter().position(|name| *name == share.kernel);
                let time = &mut times[place.unwrap_or(self.facts.kernels.len())];
                *time = time.saturating_add(share.nanoseconds);
            }
            let all = times.iter().map(|ns| *ns as f64).sum::<f64>().max(1.0);
            let mut bottom = rect.bottom();
            for (place, ns) in times.iter().enumerate().filter(|(_, ns)| **ns > 0) {
                let top = bottom - (*ns as f64 / all) as f32 * rect.height();
                let left = rect.left() + at as f32;
                let right = (rect.left() + end as f32).min(rect.right());
                let bar = Rect::from_min_max(Pos2::new(left, top), Pos2::new(right, bottom));
                mesh.add_colored_rect(bar, looks::kernel(self.palette, place));
                bottom = top;
            }
            at = end;
        }
        shapes.push(Shape::Mesh(Arc::new(mesh)));
        vec!["share of time".into(), "colours at the side".into()]
    }

    fn bandwidth(&self, rect: Rect, shapes: &mut Vec<Shape>) -> Vec<String> {
        let columns = self.columns(|bar, _| bar.bandwidth);
        let most = highest(&columns);
        let top = most * 1.15;
        let share = |rate: f64| if top > 0.0 { rate / top } else { 0.0 };
        let color =
            if self.palette.dark { Color32::from_rgb(0xe0, 0xb0, 0x4a) } else { Color32::from_rgb(0xa8, 0x70, 0x00) };
        shapes.push(self.bars(rect, &columns, share, |_| color.gamma_multiply(0.3)));
        let points: Vec<Pos2> = columns
            .iter()
            .enumerate()
            .filter_map(|(at, column)| {
                let (rate, _) = (*column)?;
                Some(Pos2::new(rect.left() + at as f32 + 0.5, rect.bottom() - share(rate) as f32 * rect.height()))
            })
            .collect();
        if points.len() > 1 {
            shapes.push(Shape::line(points, Stroke::new(1.5, color)));
        }
        let of = if self.facts.device_time { "by time of decode" } else { "by host time" };
        let words = match self.copy_rate {
            _ if most <= 0.0 => "no step read pages".into(),
            Some(rate) => format!("most {} of copy", units::percent(most / rate)),
            None => format!("most {}", units::bandwidth(most)),
        };
        vec![words, of.into(), units::bandwidth(most)]
    }

    fn conversions(&self, rect: Rect, shapes: &mut Vec<Shape>) -> Vec<String> {
        let changed = |bar: &Bar| f64::from(bar.conversions) + f64::from(bar.evictions);
        let columns = self.columns(|bar, _| Some(changed(bar)).filter(|n| *n > 0.0));
        let most = highest(&columns);
        let share = |n: f64| n / (most * 1.1).max(1.0);
        shapes.push(self.bars(rect, &columns, share, |_| self.palette.ink().gamma_multiply(0.75)));
        let evicted = self.columns(|bar, _| Some(f64::from(bar.evictions)).filter(|n| *n > 0.0));
        shapes.push(self.bars(rect, &evicted, share, |_| self.palette.alarm()));
        vec![format!("most {}", units::counted(most as u64, "page", "pages"))]
    }

    /// The step that stands at a place: the tallest bar of its column, or the nearest step.
    pub fn step_at(&self, x: f32) -> Option<usize> {
        let (from, to) = self.range;
        let time =
            |x: f32| from + (to - from) * f64::from(((x - self.rect.left()) / self.rect.width()).clamp(0.0, 1.0));
        let (left, right) = (time(x.floor()), time(x.floor() + 1.0));
        let bars = &self.facts.bars;
        let first = bars.partition_point(|bar| bar.end < left);
        let inside = bars.iter().enumerate().skip(first).take_while(|(_, bar)| bar.start <= right);
        let longest = inside.max_by(|a, b| (a.1.end - a.1.start).total_cmp(&(b.1.end - b.1.start)));
        longest.map(|(at, _)| at).or_else(|| self.facts.at(time(x)))
    }

    /// Draws the axis below the lanes, and the cursor.
    pub fn axis(&self, painter: &Painter, cursor: f64) {
        let (from, to) = self.range;
        plotting::across(painter, self.rect, from..=to, false, &plotting::seconds, self.palette.ink());
        let x = self.rect.left() + ((cursor - from) / (to - from)) as f32 * self.rect.width();
        plotting::cursor(painter, self.rect, x, self.palette.accent());
    }
}

fn highest(columns: &Columns) -> f64 {
    columns.iter().flatten().map(|(value, _)| *value).fold(0.0, f64::max)
}
