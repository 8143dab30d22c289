//! Curves of a line chart, downsampled to pixels, and their unit.

use plotters::prelude::*;

use super::{Chart, Figure, failed};
use crate::analysis::{OperatorCall, OperatorSeries};
use crate::error::Error;

/// The unit of an axis, so that its labels are short.
#[derive(Clone, Copy)]
pub(in crate::export) struct AxisUnit {
    size: u64,
    pub(in crate::export) name: &'static str,
}

impl AxisUnit {
    pub(in crate::export) fn of_bytes(highest: u64) -> Self {
        Self::of(&[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)], highest)
    }

    pub(in crate::export) fn of_time(span_ns: u64) -> Self {
        Self::of(&[("s", 1_000_000_000), ("ms", 1_000_000), ("µs", 1000), ("ns", 1)], span_ns)
    }

    /// The largest unit that `highest` has two of, or the last one.
    fn of(units: &[(&'static str, u64)], highest: u64) -> Self {
        let fits = units.iter().find(|(_, size)| highest / size >= 2).or(units.last());
        let (name, size) = fits.copied().unwrap_or(("", 1));
        Self { size, name }
    }

    pub(in crate::export) fn value(self, amount: u64) -> f64 {
        amount as f64 / self.size as f64
    }

    pub(in crate::export) fn number(value: f64) -> String {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }

    pub(in crate::export) fn label(self, value: f64) -> String {
        format!("{} {}", Self::number(value), self.name)
    }
}

#[derive(Clone, Copy)]
pub(super) struct SeriesCurve {
    pub(super) name: &'static str,
    /// The curve with the same values that hides this one.
    pub(super) same_as: Option<&'static str>,
    pub(super) color: RGBColor,
    pub(super) stroke: u32,
    bytes: fn(&OperatorCall) -> u64,
}

pub(super) const PEAK: RGBColor = RGBColor(204, 121, 167);

/// Wide strokes first, so that a later curve with the same values does not hide them.
const CURVES: [(Figure, SeriesCurve); 3] = [
    (Figure::Reserved, curve("Reserved", RGBColor(0, 158, 115), 5, |call| call.reserved)),
    (Figure::Active, curve("Active", RGBColor(240, 228, 66), 3, |call| call.active)),
    (Figure::Allocated, curve("Allocated", RGBColor(0, 90, 170), 1, |call| call.allocated)),
];

const fn curve(name: &'static str, color: RGBColor, stroke: u32, bytes: fn(&OperatorCall) -> u64) -> SeriesCurve {
    SeriesCurve { name, same_as: None, color, stroke, bytes }
}

impl SeriesCurve {
    /// The curves of a chart, in drawing order.
    pub(super) fn of(series: &OperatorSeries, figure: Figure) -> Vec<Self> {
        let mut curves: Vec<Self> = CURVES.iter().filter(|(own, _)| figure == *own).map(|(_, curve)| *curve).collect();
        if let [alone] = curves.as_mut_slice() {
            alone.stroke = 2;
            alone.color = if alone.name == "Active" { RGBColor(213, 94, 0) } else { alone.color };
            return curves;
        }
        curves = CURVES.iter().map(|(_, curve)| *curve).collect();
        for at in 0..curves.len() {
            let (below, above) = curves.split_at_mut(at + 1);
            let Some(curve) = below.last_mut() else { continue };
            let same = |other: &&Self| series.calls.iter().all(|call| (other.bytes)(call) == (curve.bytes)(call));
            curve.same_as = above.iter().rev().find(same).map(|other| other.name);
        }
        curves
    }

    pub(super) fn highest(&self, series: &OperatorSeries) -> u64 {
        series.calls.iter().map(self.bytes).max().unwrap_or(0)
    }

    pub(super) fn draw(
        &self,
        series: &OperatorSeries,
        unit: AxisUnit,
        columns: u32,
        chart: &mut Chart<'_, '_>,
    ) -> Result<(), Error> {
        let values: Vec<u64> = series.calls.iter().map(self.bytes).collect();
        let points = drawn(&values, columns).into_iter().map(|(at, bytes)| (at as f64, unit.value(bytes)));
        chart.draw_series(LineSeries::new(points, self.color.stroke_width(self.stroke))).map_err(failed)?;
        Ok(())
    }
}

/// Draws the peaks inside the calls as an area behind the curves.
pub(super) fn peaks(
    series: &OperatorSeries,
    unit: AxisUnit,
    columns: u32,
    chart: &mut Chart<'_, '_>,
) -> Result<(), Error> {
    let values: Vec<u64> = series.calls.iter().map(|call| call.peak).collect();
    let points = drawn(&values, columns).into_iter().map(|(at, bytes)| (at as f64, unit.value(bytes)));
    let area = AreaSeries::new(points, 0.0, PEAK.mix(0.25)).border_style(PEAK.stroke_width(1));
    chart.draw_series(area).map_err(failed)?;
    Ok(())
}

/// All values with their positions, or the first, lowest, highest and last value of each column of pixels.
pub(super) fn drawn(values: &[u64], columns: u32) -> Vec<(usize, u64)> {
    let columns = columns.max(1) as usize;
    let all = || values.iter().copied().enumerate();
    if values.len() <= 4 * columns {
        return all().collect();
    }
    let indexed: Vec<(usize, u64)> = all().collect();
    let mut points = Vec::with_capacity(4 * columns);
    for column in indexed.chunks(values.len().div_ceil(columns)) {
        let extremes = [column.iter().min_by_key(|point| point.1), column.iter().max_by_key(|point| point.1)];
        let mut kept: Vec<(usize, u64)> =
            extremes.into_iter().chain([column.first(), column.last()]).flatten().copied().collect();
        kept.sort_unstable();
        kept.dedup();
        points.extend(kept);
    }
    points
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
    fn labels_are_round_in_the_unit_of_the_axis() {
        assert_eq!(AxisUnit::of_bytes(3 << 20).label(2.5), "2.5 MiB");
        assert_eq!(AxisUnit::of_bytes(1500 << 20).label(1000.0), "1000 MiB");
        assert_eq!(AxisUnit::of_bytes(0).label(0.0), "0 B");
    }
}
