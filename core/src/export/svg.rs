//! Charts as SVG: axes with round ticks, texts, and the units of an axis.

use std::fmt::Write as _;
use std::ops::Range;

use crate::visible;

/// Pixels around the plot, for its labels.
const LEFT: f64 = 96.0;
const RIGHT: f64 = 24.0;
const BELOW: f64 = 46.0;
/// Factor that leaves free space above the highest value.
const HEADROOM: f64 = 1.05;
/// The approximate number of ticks on each axis.
const ACROSS: f64 = 12.0;
const UP: f64 = 8.0;

/// A picture of this size on white, made of these elements.
pub(super) fn picture(width: u32, height: u32, elements: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n{elements}</svg>\n"
    )
}

/// The position of a plot in pixels, and the values at its edges. The value at its lower edge is 0.
pub(super) struct Plot {
    pub(super) x: Range<f64>,
    pub(super) y: Range<f64>,
    across: Range<f64>,
    top: f64,
}

impl Plot {
    /// A plot that, with its labels, is as wide as the picture and has the heights `y` of it.
    pub(super) fn new(width: u32, y: Range<f64>, across: Range<f64>, highest: f64) -> Self {
        let across =
            across.start..if across.end > across.start { across.end } else { across.start + across.start.max(1.0) };
        Self { x: LEFT..f64::from(width) - RIGHT, y: y.start..y.end - BELOW, across, top: highest.max(0.01) * HEADROOM }
    }

    pub(super) fn right(&self, value: f64) -> f64 {
        let part = (value - self.across.start) / (self.across.end - self.across.start);
        self.x.start + part.clamp(0.0, 1.0) * (self.x.end - self.x.start)
    }

    pub(super) fn height(&self, value: f64) -> f64 {
        self.y.end - value / self.top * (self.y.end - self.y.start)
    }

    /// Axes with labels and a grid. `about` is the label of the horizontal axis.
    pub(super) fn axes(&self, about: &str, across: impl Fn(f64) -> String, up: impl Fn(f64) -> String) -> String {
        let Self { x, y, .. } = self;
        let mut svg = String::new();
        for value in ticks(&self.across, ACROSS) {
            let at = self.right(value);
            svg += &path(&[(at, y.start), (at, y.end)], "stroke=\"#e1e1e1\"");
            svg += &text(13, (at, y.end + 18.0), "middle", "#000", &across(value));
        }
        for value in ticks(&(0.0..self.top), UP) {
            let at = self.height(value);
            svg += &path(&[(x.start, at), (x.end, at)], "stroke=\"#e1e1e1\"");
            svg += &text(13, (x.start - 8.0, at + 4.0), "end", "#000", &up(value));
        }
        svg += &path(&[(x.start, y.start), (x.start, y.end), (x.end, y.end)], "stroke=\"#5a5a5a\"");
        svg + &text(14, (x.start.midpoint(x.end), y.end + 38.0), "middle", "#000", about)
    }
}

/// Round values within a range: steps of 1, 2 or 5 times a power of ten.
fn ticks(range: &Range<f64>, most: f64) -> Vec<f64> {
    let least = (range.end - range.start) / most;
    let ten = 10_f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * ten).into_iter().find(|step| *step >= least).unwrap_or(least);
    let first = (range.start / step).ceil();
    let values = (0..=most as u32).map(|number| (first + f64::from(number)) * step);
    values.filter(|value| *value <= range.end).collect()
}

/// A line through these points; `style` has its attributes.
pub(super) fn path(points: &[(f64, f64)], style: &str) -> String {
    let mut path = String::new();
    for (number, (x, y)) in points.iter().enumerate() {
        let _ = write!(path, "{}{} {}", if number == 0 { "M" } else { "L" }, pixels(*x), pixels(*y));
    }
    format!("<path fill=\"none\" d=\"{path}\" {style}/>\n")
}

pub(super) fn text(size: u32, (x, y): (f64, f64), anchor: &str, fill: &str, content: &str) -> String {
    let (x, y, content) = (pixels(x), pixels(y), escape(content));
    format!(
        "<text x=\"{x}\" y=\"{y}\" font-family=\"sans-serif\" font-size=\"{size}\" text-anchor=\"{anchor}\" \
         fill=\"{fill}\">{content}</text>\n"
    )
}

/// A box of a legend with its text to the right.
pub(super) fn legend(x: f64, y: f64, colour: &str, about: &str) -> String {
    let (left, top) = (pixels(x), pixels(y));
    format!("<rect x=\"{left}\" y=\"{top}\" width=\"14\" height=\"10\" fill=\"{colour}\"/>\n")
        + &text(13, (x + 20.0, y + 10.0), "start", "#000", about)
}

/// Escapes the text of an element, and keeps it on one line.
pub(super) fn escape(text: &str) -> String {
    let text = visible::line(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

/// The text on one line of at most `most` characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    let text = visible::line(text);
    if text.chars().count() <= most { text.into_owned() } else { text.chars().take(most - 1).chain(['…']).collect() }
}

/// Estimated width of a text in pixels. It is only an estimate, because the font is the viewer's.
pub(super) fn text_width(text: &str, size: f64) -> f64 {
    (text.chars().count() as f64 * size * 0.54).ceil()
}

/// Rounds to a tenth of a pixel.
pub(super) fn pixels(pixels: f64) -> String {
    let text = format!("{pixels:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

/// The unit of an axis, chosen so that its labels are short.
#[derive(Clone, Copy)]
pub(super) struct AxisUnit {
    size: u64,
    pub(super) name: &'static str,
}

impl AxisUnit {
    pub(super) fn of_bytes(highest: u64) -> Self {
        Self::of(&[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)], highest)
    }

    pub(super) fn of_time(span_ns: u64) -> Self {
        Self::of(&[("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1000), ("ns", 1)], span_ns)
    }

    /// The largest unit of which `highest` has at least two; if there is none, the last unit.
    fn of(units: &[(&'static str, u64)], highest: u64) -> Self {
        let fits = units.iter().find(|(_, size)| highest / size >= 2).or(units.last());
        let (name, size) = fits.copied().unwrap_or(("", 1));
        Self { size, name }
    }

    pub(super) fn value(self, amount: u64) -> f64 {
        amount as f64 / self.size as f64
    }

    pub(super) fn number(value: f64) -> String {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }

    pub(super) fn label(self, value: f64) -> String {
        format!("{} {}", Self::number(value), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_round_in_the_unit_of_the_axis() {
        assert_eq!(AxisUnit::of_bytes(3 << 20).label(2.5), "2.5 MiB");
        assert_eq!(AxisUnit::of_bytes(1500 << 20).label(1000.0), "1000 MiB");
        assert_eq!(AxisUnit::of_bytes(0).label(0.0), "0 B");
    }

    #[test]
    fn values_lie_across_the_plot_in_proportion_and_never_outside() {
        let plot = Plot::new(820, 0.0..400.0, 10.0..20.0, 5.0);
        let width = 820.0 - LEFT - RIGHT;
        let right = [5.0, 10.0, 12.5, 20.0, 30.0].map(|value| plot.right(value) - LEFT);
        assert_eq!(right, [0.0, 0.0, width / 4.0, width, width]);
    }

    #[test]
    fn ticks_are_round_values_within_the_range() {
        assert_eq!(ticks(&(0.0..9.4), UP), [0.0, 2.0, 4.0, 6.0, 8.0]);
        assert_eq!(
            ticks(&(103.0..160.0), ACROSS),
            [105, 110, 115, 120, 125, 130, 135, 140, 145, 150, 155, 160].map(f64::from)
        );
        for end in [1e-9, 1.0, 3e18, 1.8e19] {
            let found = ticks(&(0.0..end), UP);
            assert!((4..=9).contains(&found.len()) && found.is_sorted() && found[found.len() - 1] <= end, "{found:?}");
        }
    }
}
