//! Operator series as line charts (SVG).

use std::io::Write;

use super::ExportOperators;
use crate::analysis::{Marker, MarkerKind, OperatorCall, OperatorSeries};
use crate::error::Error;
use crate::export::LeftOut;
use crate::export::svg::{AxisUnit, Plot, legend, path, picture, shortened, text, text_width};
use crate::report::sampled;
use crate::units::Bytes;
use crate::visible;

/// Width of the picture in pixels, so that the legend fits on one line.
const WIDTH: u32 = 1280;
/// Height of one chart in pixels.
const HEIGHT: u32 = 440;

/// The charts, one under the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Figure {
    /// The three curves in one chart.
    Together,
    /// Allocated bytes alone, with the peaks inside the calls.
    Allocated,
    /// Active bytes alone.
    Active,
    /// Reserved bytes alone.
    Reserved,
}

/// The series of operator calls as an SVG: bytes after each call over the number of calls, with markers as vertical
/// lines. The size of the file does not depend on the number of calls, because each column of pixels keeps only its
/// highest and lowest value. An error if there are no calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperatorsSvg;

impl ExportOperators for OperatorsSvg {
    fn write_operators(&self, series: &OperatorSeries, out: &mut dyn Write) -> Result<LeftOut, Error> {
        if series.calls.is_empty() {
            return Err(Error::drawing("figure", "there are no operator calls".to_owned()));
        }
        let figures = [Figure::Together, Figure::Allocated, Figure::Active, Figure::Reserved];
        let tops = (0..).map(|number| number * HEIGHT);
        let panels: String = tops.zip(figures).map(|(top, figure)| panel(series, figure, top..top + HEIGHT)).collect();
        out.write_all(visible::lines(&picture(WIDTH, HEIGHT * figures.len() as u32, &panels)).as_bytes())?;
        Ok(LeftOut::default())
    }
}

#[derive(Clone, Copy)]
struct Curve {
    name: &'static str,
    colour: &'static str,
    stroke: u32,
    bytes: fn(&OperatorCall) -> u64,
}

const PEAK: &str = "#cc79a7";

/// Wide strokes come first, so that a later curve with the same values does not hide them.
const CURVES: [(Figure, Curve); 3] = [
    (Figure::Reserved, Curve { name: "Reserved", colour: "#009e73", stroke: 5, bytes: |call| call.reserved }),
    (Figure::Active, Curve { name: "Active", colour: "#f0e442", stroke: 3, bytes: |call| call.active }),
    (Figure::Allocated, Curve { name: "Allocated", colour: "#005aaa", stroke: 1, bytes: |call| call.allocated }),
];

fn curves(figure: Figure) -> Vec<Curve> {
    let alone = |curve: &Curve| Curve {
        stroke: 2,
        colour: if curve.name == "Active" { "#d55e00" } else { curve.colour },
        ..*curve
    };
    match CURVES.iter().find(|(own, _)| figure == *own) {
        Some((_, curve)) => vec![alone(curve)],
        None => CURVES.map(|(_, curve)| curve).to_vec(),
    }
}

fn panel(series: &OperatorSeries, figure: Figure, y: std::ops::Range<u32>) -> String {
    let curves = curves(figure);
    let values = |of: fn(&OperatorCall) -> u64| series.calls.iter().map(of).collect::<Vec<u64>>();
    let peaks = matches!(figure, Figure::Together | Figure::Allocated).then(|| values(|call| call.peak));
    let of_curves: Vec<Vec<u64>> = curves.iter().map(|curve| values(curve.bytes)).collect();
    let highest = of_curves.iter().chain(&peaks).flatten().copied().max().unwrap_or(0);
    let unit = AxisUnit::of_bytes(highest);
    let last = series.calls.len().saturating_sub(1).max(1) as f64;
    let top = f64::from(y.start);
    let plot = Plot::new(WIDTH, top + HEADER..f64::from(y.end), 0.0..last, unit.value(highest));
    let points = |values: &[u64]| -> Vec<(f64, f64)> {
        let kept = drawn(values, (plot.x.end - plot.x.start) as usize);
        kept.into_iter().map(|(at, bytes)| (plot.right(at as f64), plot.height(unit.value(bytes)))).collect()
    };
    let mut svg = plot.axes("Number of the operator call", AxisUnit::number, |value| unit.label(value));
    if let Some(peaks) = &peaks {
        let ends = [(plot.x.start, plot.y.end)].into_iter().chain(points(peaks)).chain([(plot.x.end, plot.y.end)]);
        svg += &path(&ends.collect::<Vec<_>>(), &format!("stroke=\"{PEAK}\" style=\"fill:{PEAK};fill-opacity:.25\""));
    }
    for (curve, values) in curves.iter().zip(&of_curves) {
        svg += &path(
            &points(values),
            &format!("stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"", curve.colour, curve.stroke),
        );
    }
    let markers: Vec<(f64, &Marker)> =
        series.markers.iter().map(|marker| (plot.right(marker.call as f64), marker)).collect();
    for (x, marker) in &markers {
        // Scopes are dashed, so that a phase that begins at the same call stays visible.
        let dashes = if marker.kind == MarkerKind::Scope { " stroke-dasharray=\"5 4\"" } else { "" };
        svg += &path(&[(*x, plot.y.start), (*x, plot.y.end)], &format!("stroke=\"{}\"{dashes}", colour(marker.kind)));
    }
    for (name, kind, (x, row)) in labels(&markers, WIDTH.into()) {
        svg += &text(12, (x, top + row + 10.0), "start", colour(kind), &name);
    }
    svg += &text(16, (16.0, top + 26.0), "start", "#000", &title(series, &curves));
    svg + &header(&curves, &of_curves, peaks.is_some(), &series.markers, top)
}

fn title(series: &OperatorSeries, curves: &[Curve]) -> String {
    let what = if let [alone] = curves { alone.name } else { "Memory" };
    let [program, device] = [&series.program, &series.device].map(|text| shortened(text, LONGEST));
    let (behind, peak) = (sampled::behind(series.sample_interval), Bytes(series.peak));
    format!("{program} on {device}: {what} after each call of an operator{behind}, peak {peak}")
}

/// The legend: the curves in reverse order of drawing, then the kinds of markers in the series. If a later curve has
/// the same values and so hides an earlier one, the legend says so.
fn header(curves: &[Curve], values: &[Vec<u64>], with_peaks: bool, markers: &[Marker], top: f64) -> String {
    let mut entries: Vec<(&str, String)> = Vec::new();
    for (at, curve) in curves.iter().enumerate().rev() {
        let above = curves.iter().zip(values).skip(at + 1).rev();
        let same = above.into_iter().find(|(_, other)| Some(*other) == values.get(at));
        let same = same.map_or(String::new(), |(other, _)| format!(" (= {})", other.name.to_lowercase()));
        entries.push((curve.colour, format!("{}{same}", curve.name)));
    }
    entries.extend(with_peaks.then(|| (PEAK, "Peak inside the call".to_owned())));
    for (kind, text) in [
        (MarkerKind::Forward, "Forward begins"),
        (MarkerKind::Backward, "Forward/backward boundary"),
        (MarkerKind::Optimizer, "Optimizer step begins"),
        (MarkerKind::Scope, "Scope begins"),
    ] {
        let there = markers.iter().any(|marker| marker.kind == kind);
        entries.extend(there.then(|| (colour(kind), text.to_owned())));
    }
    let mut x = 16.0;
    let mut svg = String::new();
    for (colour, about) in entries {
        svg += &legend(x, top + 38.0, colour, &about);
        x += 30.0 + text_width(&about, 13.0);
    }
    svg
}

fn colour(kind: MarkerKind) -> &'static str {
    match kind {
        MarkerKind::Forward => "#006400",
        MarkerKind::Backward => "#c80000",
        MarkerKind::Optimizer => "#783cbe",
        MarkerKind::Scope => "#5a5a5a",
    }
}

/// All values with their positions. If there are too many, only the first, lowest, highest and last value of each
/// column of pixels.
fn drawn(values: &[u64], columns: usize) -> Vec<(usize, u64)> {
    let all: Vec<(usize, u64)> = values.iter().copied().enumerate().collect();
    if all.len() <= 4 * columns {
        return all;
    }
    let of_column = |column: &[(usize, u64)]| {
        let extremes = [column.iter().min_by_key(|point| point.1), column.iter().max_by_key(|point| point.1)];
        let mut kept: Vec<(usize, u64)> =
            extremes.into_iter().chain([column.first(), column.last()]).flatten().copied().collect();
        kept.sort_unstable();
        kept.dedup();
        kept
    };
    all.chunks(all.len().div_ceil(columns.max(1))).flat_map(of_column).collect()
}

const LONGEST: usize = 28;
const ROW: f64 = 15.0;
const ROWS: usize = 4;
const FIRST_ROW: f64 = 56.0;
const HEADER: f64 = FIRST_ROW + ROW * ROWS as f64 + 2.0;

/// Labels that do not overlap. Each is to the right of its line, in the lowest row with room. A marker without room has
/// only its line and colour.
fn labels(markers: &[(f64, &Marker)], right: f64) -> Vec<(String, MarkerKind, (f64, f64))> {
    let mut free = [f64::MIN; ROWS];
    let mut labels = Vec::new();
    for (x, marker) in markers {
        let text = shortened(&marker.name, LONGEST);
        let wide = text_width(&text, 12.0);
        // Near the right edge a label is left of its line.
        let x = if x + wide + 4.0 > right { x - wide - 4.0 } else { x + 3.0 };
        let Some(row) = free.iter().rposition(|end| *end <= x) else { continue };
        if let Some(end) = free.get_mut(row) {
            *end = x + wide + 8.0;
        }
        labels.push((text, marker.kind, (x, FIRST_ROW + ROW * row as f64)));
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_values_the_highest_and_the_lowest_are_kept() {
        let mut values: Vec<u64> = (0..100_000).map(|at| 1000 + at % 7).collect();
        (values[4711], values[4712]) = (5, 9999);
        let points = drawn(&values, 100);
        assert!(points.len() <= 400, "{}", points.len());
        assert!(points.contains(&(4711, 5)) && points.contains(&(4712, 9999)));
        assert!(points.is_sorted() && points.first() == Some(&(0, 1000)));
        assert_eq!(drawn(&values[..300], 100).len(), 300);
    }

    #[test]
    fn labels_of_markers_never_overlap() {
        let marker = |name: &str| Marker { name: name.into(), kind: MarkerKind::Scope, call: 0, time_ns: 0 };
        let markers: Vec<Marker> = (0..60).map(|n| marker(&format!("iteration {n}"))).collect();
        let placed: Vec<(f64, &Marker)> = (0..60).map(|n| f64::from(100 + n * n / 3)).zip(&markers).collect();
        let labels = labels(&placed, 1280.0);
        assert!(labels.len() > 20, "{}", labels.len());
        for (at, (text, _, (x, y))) in labels.iter().enumerate() {
            assert!(*x >= 0.0 && x + text_width(text, 12.0) <= 1280.0);
            for (_, _, (other, row)) in &labels[at + 1..] {
                assert!(y != row || *other >= x + text_width(text, 12.0), "{text}");
            }
        }
    }
}
