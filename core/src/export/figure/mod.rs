//! Operator series as line charts (SVG), drawn by plotters.

mod curves;
mod header;

use std::io::Write;
use std::ops::Range;

use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use crate::analysis::{Marker, MarkerKind, OperatorSeries};
use crate::error::Error;
use crate::export::{ExportOperators, LeftOut};
use crate::report::sampled;
use crate::units::Bytes;
use crate::visible;
pub(super) use curves::AxisUnit;
use curves::SeriesCurve;
pub(super) use header::{shortened, shortened_to, text_width};

/// The charts to draw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Figure {
    /// The four below, one under the other.
    #[default]
    All,
    /// The three curves together.
    Together,
    /// Allocated bytes alone, with the peaks inside the calls.
    Allocated,
    /// Active bytes alone.
    Active,
    /// Reserved bytes alone.
    Reserved,
}

/// The series of operator calls as an SVG: bytes after each call over the number of calls, with markers as vertical lines. The
/// size of the file does not depend on the number of calls: each column of pixels keeps its highest and lowest value. An error
/// if there are no calls.
#[derive(Clone, Debug)]
pub struct OperatorsSvg {
    /// The charts to draw.
    pub figure: Figure,
    /// Width in pixels, at least 1200: the legend takes one line.
    pub width: u32,
    /// Height of one chart in pixels, at least 240.
    pub height: u32,
}

impl Default for OperatorsSvg {
    fn default() -> Self {
        Self { figure: Figure::All, width: 1280, height: 440 }
    }
}

impl ExportOperators for OperatorsSvg {
    fn write_operators(&self, series: &OperatorSeries, out: &mut dyn Write) -> Result<LeftOut, Error> {
        if series.calls.is_empty() {
            return Err(Error::drawing("figure", "there are no operator calls".to_owned()));
        }
        let figures = match self.figure {
            Figure::All => &[Figure::Together, Figure::Allocated, Figure::Active, Figure::Reserved][..],
            ref one => std::slice::from_ref(one),
        };
        let size = (self.width.clamp(1200, 10_000), self.height.clamp(240, 10_000));
        let mut svg = String::new();
        {
            let all = SVGBackend::with_string(&mut svg, (size.0, size.1 * figures.len() as u32)).into_drawing_area();
            all.fill(&WHITE).map_err(failed)?;
            for (panel, figure) in all.split_evenly((figures.len(), 1)).iter().zip(figures) {
                Panel { series, figure: *figure, size, area: panel }.draw()?;
            }
            all.present().map_err(failed)?;
        }
        out.write_all(visible::lines(&svg).as_bytes())?;
        Ok(LeftOut::default())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

pub(super) fn failed(error: impl std::fmt::Display) -> Error {
    Error::drawing("figure", error.to_string())
}

pub(super) const FONT: &str = "sans-serif";
const LEFT: u32 = 96;
const RIGHT: u32 = 24;
const BELOW: u32 = 46;

struct Panel<'a, 'b> {
    series: &'a OperatorSeries,
    figure: Figure,
    size: (u32, u32),
    area: &'a Area<'b>,
}

impl<'b> Panel<'_, 'b> {
    fn draw(&self) -> Result<(), Error> {
        let curves = SeriesCurve::of(self.series, self.figure);
        let with_peaks = matches!(self.figure, Figure::Together | Figure::Allocated);
        let highest = curves.iter().map(|curve| curve.highest(self.series)).max().unwrap_or(0);
        let peak = self.series.calls.iter().map(|call| call.peak).max().filter(|_| with_peaks).unwrap_or(0);
        let unit = AxisUnit::of_bytes(highest.max(peak));
        let top = (unit.value(highest.max(peak)) * 1.05).max(1.0);
        let last = (self.series.calls.len().saturating_sub(1)).max(1) as f64;
        let mut chart = axes(self.area, header::HEIGHT, 0.0..last, 0.0..top)?;
        mesh(&mut chart, unit, "Number of the operator call", &|call| format!("{call:.0}"))?;
        if with_peaks {
            curves::peaks(self.series, unit, self.columns(), &mut chart)?;
        }
        curves.iter().try_for_each(|curve| curve.draw(self.series, unit, self.columns(), &mut chart))?;
        self.series.markers.iter().try_for_each(|marker| line(marker, top, &mut chart))?;
        let plot = f64::from(self.columns());
        let pixel = |marker: &Marker| LEFT as i32 + (marker.call as f64 / last * plot) as i32;
        header::Header { area: self.area, width: self.size.0 }.draw(
            &self.title(&curves),
            &header::legend(&curves, with_peaks, &self.series.markers),
            &self.series.markers.iter().map(|marker| (pixel(marker), marker)).collect::<Vec<_>>(),
        )
    }

    fn columns(&self) -> u32 {
        self.size.0.saturating_sub(LEFT + RIGHT).max(1)
    }

    fn title(&self, curves: &[SeriesCurve]) -> String {
        let what = if curves.len() > 1 { "Memory" } else { curves.first().map_or("", |curve| curve.name) };
        let [program, device] = [&self.series.program, &self.series.device].map(|text| shortened(text));
        let (interval, peak) = (self.series.sample_interval, Bytes(self.series.peak));
        let behind = sampled::behind(interval);
        format!("{program} on {device}: {what} after each call of an operator{behind}, peak {peak}")
    }
}

pub(super) fn axes<'a, 'b>(
    area: &'a Area<'b>,
    margin_top: i32,
    x: Range<f64>,
    y: Range<f64>,
) -> Result<Chart<'a, 'b>, Error> {
    ChartBuilder::on(area)
        .margin_top(margin_top)
        .margin_right(RIGHT)
        .set_label_area_size(LabelAreaPosition::Left, LEFT)
        .set_label_area_size(LabelAreaPosition::Bottom, BELOW)
        .build_cartesian_2d(x, y)
        .map_err(failed)
}

pub(super) fn mesh(
    chart: &mut Chart<'_, '_>,
    unit: AxisUnit,
    x_desc: &str,
    x_label: &dyn Fn(&f64) -> String,
) -> Result<(), Error> {
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .axis_style(RGBColor(90, 90, 90))
        .label_style((FONT, 13))
        .x_labels(12)
        .y_labels(8)
        .x_label_formatter(&x_label)
        .y_label_formatter(&|value| unit.label(*value))
        .x_desc(x_desc)
        .axis_desc_style((FONT, 14))
        .draw()
        .map_err(failed)
}

/// Draws a marker in its kind's colour. Scopes are dashed, so that a phase that begins at the same call stays visible.
fn line(marker: &Marker, top: f64, chart: &mut Chart<'_, '_>) -> Result<(), Error> {
    let at = marker.call as f64;
    let points = [(at, 0.0), (at, top)];
    let style = header::color(marker.kind).stroke_width(1);
    if marker.kind == MarkerKind::Scope {
        chart.draw_series(DashedLineSeries::new(points, 5, 4, style)).map_err(failed)?;
    } else {
        chart.draw_series(LineSeries::new(points, style)).map_err(failed)?;
    }
    Ok(())
}
