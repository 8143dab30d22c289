//! Curves of a line chart, downsampled to pixels, and their unit.

use plotters::prelude::*;

use super::{Chart, Figure, failed};
use crate::analysis::{OperatorCall, OperatorSeries};
use crate::error::Error;

/// The unit of an axis: a power of 1024, so that its labels are round in it.
#[derive(Clone, Copy)]
pub(in crate::export) struct Unit {
    bytes: f64,
    name: &'static str,
}

impl Unit {
    pub(in crate::export) fn of(highest: u64) -> Self {
        let units = [("B", 0), ("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];
        let fits = units.into_iter().rev().find(|(_, bits)| highest >> bits >= 2);
        let (name, bits) = fits.unwrap_or(("B", 0));
        Self { bytes: (1u64 << bits) as f64, name }
    }

    pub(in crate::export) fn value(self, bytes: u64) -> f64 {
        bytes as f64 / self.bytes
    }

    pub(in crate::export) fn label(self, value: f64) -> String {
        let text = format!("{value:.3}");
        format!("{} {}", text.trim_end_matches('0').trim_end_matches('.'), self.name)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Curve {
    pub(super) name: &'static str,
    /// The curve with the same values that hides this one.
    pub(super) same_as: Option<&'static str>,
    pub(super) color: RGBColor,
    pub(super) stroke: u32,
    bytes: fn(&OperatorCall) -> u64,
}

pub(super) const PEAK: RGBColor = RGBColor(204, 121, 167);

/// Wide strokes first, so that a later curve with the same values does not hide them.
const CURVES: [(Figure, Curve); 3] = [
    (Figure::Reserved, curve("Reserved", RGBColor(0, 158, 115), 5, |call| call.reserved)),
    (Figure::Active, curve("Active", RGBColor(240, 228, 66), 3, |call| call.active)),
    (Figure::Allocated, curve("Allocated", RGBColor(0, 90, 170), 1, |call| call.allocated)),
];

const fn curve(name: &'static str, color: RGBColor, stroke: u32, bytes: fn(&OperatorCall) -> u64) -> Curve {
    Curve { name, same_as: None, color, stroke, bytes }
}

impl Curve {
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
        unit: Unit,
        columns: u32,
        chart: &mut Chart<'_, '_>,
    ) -> Result<(), Error> {
        let values: Vec<u64> = series.calls.iter().map(self.bytes).collect();
        let points = visible(&values, columns).into_iter().map(|(at, bytes)| (at as f64, unit.value(bytes)));
        chart.draw_series(LineSeries::new(points, self.color.stroke_width(self.stroke))).map_err(failed)?;
        Ok(())
    }
}

/// Draws the peaks inside the calls as an area behind the curves.
pub(super) fn peaks(series: &OperatorSeries, unit: Unit, columns: u32, chart: &mut Chart<'_, '_>) -> Result<(), Error> {
    let values: Vec<u64> = series.calls.iter().map(|call| call.peak).collect();
    let points = visible(&values, columns).into_iter().map(|(at, bytes)| (at as f64, unit.value(bytes)));
    let area = AreaSeries::new(points, 0.0, PEAK.mix(0.25)).border_style(PEAK.stroke_width(1));
    chart.draw_series(area).map_err(failed)?;
    Ok(())
}

/// All values with their positions, or the first, lowest, highest and last value of each column of pixels.
pub(super) fn visible(values: &[u64], columns: u32) -> Vec<(usize, u64)> {
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
        let points = visible(&values, 100);
        assert!(points.len() <= 400, "{}", points.len());
        assert!(points.contains(&(4711, 5)) && points.contains(&(4712, 9999)));
        assert!(points.is_sorted() && points.first() == Some(&(0, 1000)));
        assert_eq!(visible(&values[..300], 100).len(), 300);
    }

    #[test]
    fn labels_are_round_in_the_unit_of_the_axis() {
        assert_eq!(Unit::of(3 << 20).label(2.5), "2.5 MiB");
        assert_eq!(Unit::of(1500 << 20).label(1000.0), "1000 MiB");
        assert_eq!(Unit::of(0).label(0.0), "0 B");
    }
}
