//! SVG elements of the category chart: areas, legend, the mark of the peak.

use std::fmt::Write;
use std::ops::Range;

use super::columns::{Point, drawn};
use crate::analysis::{CategoryBytes, CategoryTimeline};
use crate::export::figure::text_width;
use crate::snapshot::Category;
use crate::units::Bytes;
use crate::visible;

/// The plot's position in pixels and its scales.
pub(super) struct Plot {
    pub(super) x: Range<i32>,
    pub(super) y: Range<i32>,
    /// Nanoseconds at the left and the right edge.
    pub(super) times: (u64, u64),
    /// Bytes at the top edge.
    pub(super) top: f64,
}

impl Plot {
    fn width(&self) -> f64 {
        f64::from(self.x.end - self.x.start)
    }

    fn right_of_start(&self, time_ns: u64) -> f64 {
        let (start, end) = self.times;
        time_ns.saturating_sub(start) as f64 / end.saturating_sub(start).max(1) as f64 * self.width()
    }

    fn height_of(&self, bytes: u64) -> f64 {
        f64::from(self.y.end) - bytes as f64 / self.top * f64::from(self.y.end - self.y.start)
    }

    /// An area for each category from the axis to its top. The highest comes first, so that each hides the lower part of the
    /// area above it.
    pub(super) fn areas(&self, timeline: &CategoryTimeline<'_>, categories: &[Category]) -> String {
        let steps = timeline.steps().map(|step| (self.right_of_start(step.time_ns), step.bytes));
        let points = drawn(timeline.start(), steps, self.width());
        let mut svg = String::new();
        for (at, category) in categories.iter().enumerate().rev() {
            let stacked = categories.get(..=at).unwrap_or_default();
            let (colour, word, path) = (category.colour(), category.word(), self.path(&points, stacked));
            let _ = writeln!(svg, "<path fill=\"{colour}\" d=\"{path}\"><title>{word}</title></path>");
        }
        svg
    }

    /// The path along the top of these categories in steps, and back along the axis.
    fn path(&self, points: &[Point], stacked: &[Category]) -> String {
        let mut path = format!("M{} {}", self.x.start, self.y.end);
        let mut level = self.y.end.to_string();
        for (x, bytes) in points {
            let y = number(self.height_of(stacked.iter().map(|category| bytes.get(*category)).sum()));
            if y != level {
                let _ = write!(path, "H{}V{y}", number(f64::from(self.x.start) + x));
                level = y;
            }
        }
        let _ = write!(path, "H{}V{}Z", self.x.end, self.y.end);
        path
    }

    pub(super) fn mark(&self, time_ns: u64, about: &str) -> String {
        let x = f64::from(self.x.start) + self.right_of_start(time_ns);
        let (top, bottom) = (self.y.start, self.y.end);
        let x1 = number(x);
        // Dark dashes on a light line are visible on every colour.
        let line = format!(
            "<path d=\"M{x1} {top}V{bottom}\" stroke=\"white\" stroke-opacity=\".7\"/>\n\
             <path d=\"M{x1} {top}V{bottom}\" stroke=\"#222\" stroke-dasharray=\"5 4\"/>\n"
        );
        let half = f64::from(capitals_width(about)) / 2.0;
        let centre = x.clamp(f64::from(self.x.start) + half, f64::from(self.x.end) - half);
        line + &text(13, (centre, f64::from(top) - 6.0), "middle", &escape(about))
    }
}

/// Boxes with the categories and their bytes at the peak, and the bottom of the last row.
pub(super) fn legend(categories: &[Category], peak: &CategoryBytes, width: u32) -> (String, i32) {
    let (mut svg, mut x, mut y) = (String::new(), 16, 38);
    for category in categories {
        let about = format!("{category} {}", Bytes(peak.get(*category)));
        let wide = 19 + capitals_width(&about) + 14;
        if x > 16 && x + wide > width as i32 {
            (x, y) = (16, y + 18);
        }
        let colour = category.colour();
        let _ = writeln!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"14\" height=\"10\" fill=\"{colour}\"/>");
        svg += &text(13, (f64::from(x + 19), f64::from(y + 10)), "start", &about);
        x += wide;
    }
    (svg, y + 10)
}

/// Estimated width of a text of 13 pixels, which may be in capitals.
fn capitals_width(text: &str) -> i32 {
    text_width(text, 13.0 * 0.66)
}

/// `content` must be escaped.
pub(super) fn text(size: u32, (x, y): (f64, f64), anchor: &str, content: &str) -> String {
    let (x, y) = (number(x), number(y));
    format!(
        "<text x=\"{x}\" y=\"{y}\" font-family=\"sans-serif\" font-size=\"{size}\" text-anchor=\"{anchor}\">{content}</text>\n"
    )
}

/// The text of an element, on one line.
pub(super) fn escape(text: &str) -> String {
    let text = visible::line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

/// Rounds to a tenth of a pixel.
fn number(pixels: f64) -> String {
    let text = format!("{pixels:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}
