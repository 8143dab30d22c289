//! Header of a line chart: title, legend and the labels of markers.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::curves::{PEAK, SeriesCurve};
use super::{Area, FONT, failed};
use crate::analysis::{Marker, MarkerKind};
use crate::error::Error;
use crate::visible;

const ROW: i32 = 15;
const ROWS: usize = 4;
const FIRST_ROW: i32 = 56;
pub(super) const HEIGHT: i32 = FIRST_ROW + ROW * ROWS as i32 + 2;
const LONGEST: usize = 28;

pub(super) struct LegendEntry {
    color: RGBColor,
    text: String,
}

pub(super) fn color(kind: MarkerKind) -> RGBColor {
    match kind {
        MarkerKind::Forward => RGBColor(0, 100, 0),
        MarkerKind::Backward => RGBColor(200, 0, 0),
        MarkerKind::Optimizer => RGBColor(120, 60, 190),
        MarkerKind::Scope => RGBColor(90, 90, 90),
    }
}

/// The curves, the last drawn first, then the kinds of markers in the series.
pub(super) fn legend(curves: &[SeriesCurve], with_peaks: bool, markers: &[Marker]) -> Vec<LegendEntry> {
    let curve = |curve: &SeriesCurve| LegendEntry {
        color: curve.color,
        text: curve
            .same_as
            .map_or(curve.name.to_owned(), |other| format!("{} (= {})", curve.name, other.to_lowercase())),
    };
    let mut entries: Vec<LegendEntry> = curves.iter().rev().map(curve).collect();
    entries.extend(with_peaks.then(|| LegendEntry { color: PEAK, text: "Peak inside the call".to_owned() }));
    for (kind, text) in [
        (MarkerKind::Forward, "Forward begins"),
        (MarkerKind::Backward, "Forward/backward boundary"),
        (MarkerKind::Optimizer, "Optimizer step begins"),
        (MarkerKind::Scope, "Scope begins"),
    ] {
        let there = markers.iter().any(|marker| marker.kind == kind);
        entries.extend(there.then(|| LegendEntry { color: color(kind), text: text.to_owned() }));
    }
    entries
}

pub(super) struct Header<'a, 'b> {
    pub(super) area: &'a Area<'b>,
    pub(super) width: u32,
}

impl Header<'_, '_> {
    pub(super) fn draw(&self, title: &str, legend: &[LegendEntry], markers: &[(i32, &Marker)]) -> Result<(), Error> {
        self.text(title, 16.0, BLACK, (16, 12))?;
        let mut x = 16;
        for entry in legend {
            let box_ = Rectangle::new([(x, 38), (x + 14, 48)], entry.color.filled());
            self.area.draw(&box_).map_err(failed)?;
            self.text(&entry.text, 13.0, BLACK, (x + 19, 37))?;
            x += 19 + width(&entry.text, 13.0) + 10;
        }
        for (text, kind, at) in labels(markers, self.width as i32) {
            self.text(&text, 12.0, color(kind), at)?;
        }
        Ok(())
    }

    fn text(&self, text: &str, size: f64, color: RGBColor, at: (i32, i32)) -> Result<(), Error> {
        let style = TextStyle::from((FONT, size).into_font()).color(&color).pos(Pos::new(HPos::Left, VPos::Top));
        self.area.draw_text(text, &style, at).map_err(failed)
    }
}

/// Labels that do not overlap: each is right of its line in the lowest row with room. A marker without room keeps only its line
/// and colour.
fn labels(markers: &[(i32, &Marker)], right: i32) -> Vec<(String, MarkerKind, (i32, i32))> {
    let mut free = [i32::MIN; ROWS];
    let mut labels = Vec::new();
    for (x, marker) in markers {
        let text = shortened(&marker.name);
        let wide = width(&text, 12.0);
        // Near the right edge a label is left of its line.
        let x = if x + wide + 4 > right { x - wide - 4 } else { x + 3 };
        let Some(row) = free.iter().rposition(|end| *end <= x) else { continue };
        if let Some(end) = free.get_mut(row) {
            *end = x + wide + 8;
        }
        labels.push((text, marker.kind, (x, FIRST_ROW + ROW * row as i32)));
    }
    labels
}

/// The program's text on one line.
pub(in crate::export) fn shortened(name: &str) -> String {
    shortened_to(name, LONGEST)
}

pub(in crate::export) fn shortened_to(text: &str, most: usize) -> String {
    let text = visible::line(text);
    if text.chars().count() <= most { text.into_owned() } else { text.chars().take(most - 1).chain(['…']).collect() }
}

fn width(text: &str, size: f64) -> i32 {
    text_width(text, size * 0.54)
}

/// Estimated width of a text in pixels; the font is the viewer's.
pub(in crate::export) fn text_width(text: &str, each: f64) -> i32 {
    (text.chars().count() as f64 * each).ceil() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_markers_never_overlap() {
        let marker = |name: &str| Marker { name: name.into(), kind: MarkerKind::Scope, call: 0, time_ns: 0 };
        let markers: Vec<Marker> = (0..60).map(|n| marker(&format!("iteration {n}"))).collect();
        let placed: Vec<(i32, &Marker)> = (0..60).map(|n| 100 + n * n / 3).zip(&markers).collect();
        let labels = labels(&placed, 1280);
        assert!(labels.len() > 20, "{}", labels.len());
        for (at, (text, _, (x, y))) in labels.iter().enumerate() {
            assert!(*x >= 0 && x + width(text, 12.0) <= 1280);
            for (_, _, (other, row)) in &labels[at + 1..] {
                assert!(y != row || *other >= x + width(text, 12.0), "{text}");
            }
        }
    }
}
