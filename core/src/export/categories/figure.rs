//! Category timeline as a stacked area chart (SVG): plotters draws the axes, and each category is one path.

use std::io::Write;

use plotters::prelude::*;

use super::plot::{self, Plot, escape, text};
use crate::analysis::{CategoryBytes, CategoryTimeline, category_timeline, device_or_main};
use crate::error::Error;
use crate::export::figure::{AxisUnit, axes, failed, mesh, shortened};
use crate::export::{Export, LeftOut};
use crate::report::sampled;
use crate::snapshot::{Category, Device, SnapshotData};
use crate::units::Bytes;
use crate::visible;

const SIZE: (u32, u32) = (1280, 520);
const HEADROOM: f64 = 1.05;

/// The category timeline as an SVG: bytes by category over time, stacked in PyTorch's order and colours, with the peak marked.
/// The size of the file does not grow with the log: each column of pixels keeps its lowest and its highest moment. An error if
/// nothing was ever live.
#[derive(Clone, Debug, Default)]
pub struct CategoriesSvg {
    /// The device; the main one if `None`.
    pub device: Option<Device>,
}

impl Export for CategoriesSvg {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        out.write_all(visible::lines(&Picture::of(data, self.device)?.svg()?).as_bytes())?;
        Ok(LeftOut::default())
    }
}

pub(super) struct Picture<'a> {
    pub(super) title: String,
    pub(super) timeline: CategoryTimeline<'a>,
    /// The categories that ever had a byte.
    pub(super) categories: Vec<Category>,
    pub(super) peak: (u64, CategoryBytes),
    time: AxisUnit,
    end_ns: u64,
}

impl<'a> Picture<'a> {
    pub(super) fn of(data: &'a SnapshotData, device: Option<Device>) -> Result<Self, Error> {
        let nothing = || Error::drawing("figure", "nothing was live".to_owned());
        let device = device_or_main(data, device).ok_or_else(nothing)?;
        let timeline = category_timeline(data, device);
        let peak = timeline.peak();
        if peak.1.total() == 0 {
            return Err(nothing());
        }
        let last_ns = device.records.last().map_or(0, |record| record.time_ns);
        let end_ns = data.process.duration_ns.max(last_ns).max(timeline.start_ns().saturating_add(1));
        // The curve of a sample is an estimate, but its peak is counted.
        let size = Bytes(if device.is_sample() { device.peak.bytes } else { peak.1.total() });
        let (program, behind) = (shortened(&data.process.program), sampled::behind(device.sample_interval()));
        let title = format!("{program} on {}: memory by category{behind}, peak {size}", device.device);
        let highest = timeline.highest();
        let categories = Category::ALL.into_iter().filter(|category| highest.get(*category) > 0).collect();
        let time = AxisUnit::of_time(end_ns.saturating_sub(timeline.start_ns()));
        Ok(Self { title, categories, timeline, peak, time, end_ns })
    }

    pub(super) fn time(&self, ns: u64) -> String {
        self.time.label(self.time.value(ns))
    }

    pub(super) fn svg(&self) -> Result<String, Error> {
        let (legend, below) = plot::legend(&self.categories, &self.peak.1, SIZE.0);
        let (plot, axes) = self.axes(below + 24)?;
        let axes = axes.trim_end().trim_end_matches("</svg>");
        let title = text(16, (16.0, 24.0), "start", &escape(&self.title));
        let areas = plot.areas(&self.timeline, &self.categories);
        let mark = plot.mark(self.peak.0, &format!("peak at {}", self.time(self.peak.0)));
        Ok(format!("{axes}{title}{legend}{areas}{mark}</svg>\n"))
    }

    /// Draws background and axes; returns the plot's position in them.
    fn axes(&self, top: i32) -> Result<(Plot, String), Error> {
        let highest = self.peak.1.total();
        let unit = AxisUnit::of_bytes(highest);
        let times = self.time.value(self.timeline.start_ns())..self.time.value(self.end_ns);
        let values = 0.0..unit.value(highest) * HEADROOM;
        let mut svg = String::new();
        let plot = {
            let all = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            all.fill(&WHITE).map_err(failed)?;
            let mut chart = axes(&all, top, times, values)?;
            let about = format!("Time since the recording began ({})", self.time.name);
            mesh(&mut chart, unit, &about, &|time| AxisUnit::number(*time))?;
            let (x, y) = chart.plotting_area().get_pixel_range();
            all.present().map_err(failed)?;
            let times = (self.timeline.start_ns(), self.end_ns);
            Plot { x, y, times, top: highest as f64 * HEADROOM }
        };
        Ok((plot, svg))
    }
}
