//! Timeline by operator or line as a stacked area chart (SVG).

use std::fmt::Write as _;
use std::io::Write;

use plotters::prelude::*;

use super::plot::{escape, text};
use crate::analysis::{KeyTimeline, TimelineKey, device_or_main, key_timeline};
use crate::error::Error;
use crate::export::figure::{AxisUnit, axes, failed, mesh, shortened, shortened_to};
use crate::export::{Export, LeftOut};
use crate::report::sampled;
use crate::snapshot::{Device, SnapshotData};
use crate::units::Bytes;
use crate::visible;

const WIDTH: u32 = 1280;
const PLOT: u32 = 460;
/// Columns of the picture: one for each two pixels.
const COLUMNS: usize = 600;
/// Keys with a colour of their own.
const KEYS: usize = 10;
const ROW: i32 = 17;
const FIRST_ROW: i32 = 50;
/// Okabe and Ito's colours, which colour-blind people tell apart, and lighter ones; the last is for all others.
const COLOURS: [&str; KEYS + 1] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7f7fbf", "#8fbc8f", "#c49a6c",
    "#bbbbbb",
];

/// The memory of a device over time, stacked by operator, line or category: the largest ten, and all others. Each column
/// of pixels shows its highest moment. An error if nothing was ever live.
#[derive(Clone, Debug, Default)]
pub struct TimelineSvg {
    /// The device; the main one if `None`.
    pub device: Option<Device>,
    /// The key of an area.
    pub by: TimelineKey,
}

impl Export for TimelineSvg {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let nothing = || Error::drawing("figure", "nothing was live".to_owned());
        let device = device_or_main(data, self.device).ok_or_else(nothing)?;
        let timeline = key_timeline(data, device, self.by, COLUMNS, KEYS);
        let highest = timeline.totals.iter().copied().max().filter(|highest| *highest > 0).ok_or_else(nothing)?;
        let by = match self.by {
            TimelineKey::Category => "category",
            TimelineKey::Operator => "operator",
            TimelineKey::Line => "line",
        };
        let behind = sampled::behind(device.sample_interval());
        let peak = Bytes(if device.is_sample() { device.peak.bytes } else { highest });
        let title =
            format!("{} on {}: memory by {by}{behind}, peak {peak}", shortened(&data.process.program), device.device);
        out.write_all(visible::lines(&svg(&timeline, highest, &title)?).as_bytes())?;
        Ok(LeftOut::default())
    }
}

fn svg(timeline: &KeyTimeline, highest: u64, title: &str) -> Result<String, Error> {
    let top = FIRST_ROW + ROW * timeline.rows.len() as i32;
    let time = AxisUnit::of_time(timeline.to_ns.saturating_sub(timeline.from_ns));
    let (unit, size) = (AxisUnit::of_bytes(highest), (WIDTH, PLOT + top as u32));
    let most = highest as f64 * 1.05;
    let mut svg = String::new();
    let (x, y) = {
        let all = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        all.fill(&WHITE).map_err(failed)?;
        let times = time.value(timeline.from_ns)..time.value(timeline.to_ns);
        let mut chart = axes(&all, top, times, 0.0..unit.value(highest) * 1.05)?;
        let about = format!("Time since the recording began ({})", time.name);
        mesh(&mut chart, unit, &about, &|time| AxisUnit::number(*time))?;
        let range = chart.plotting_area().get_pixel_range();
        all.present().map_err(failed)?;
        range
    };
    let mut svg = svg.trim_end().trim_end_matches("</svg>").to_owned();
    svg += &text(16, (16.0, 24.0), "start", &escape(title));
    let height = |bytes: u64| f64::from(y.end) - bytes as f64 / most * f64::from(y.end - y.start);
    let right = |column: usize| {
        f64::from(x.start) + column as f64 / timeline.totals.len().max(1) as f64 * f64::from(x.end - x.start)
    };
    // The whole stack first; each area then hides the lower part of the one above it.
    let mut stacked: Vec<u64> = timeline.totals.clone();
    for (number, row) in timeline.rows.iter().enumerate().rev() {
        let mut path = format!("M{} {}", x.start, y.end);
        for (column, bytes) in stacked.iter().enumerate() {
            let _ = write!(path, "H{:.1}V{:.1}", right(column), height(*bytes));
        }
        let _ = write!(path, "H{}V{}Z", x.end, y.end);
        let (colour, label) = (colour(number, timeline), escape(&row.label));
        let _ = writeln!(svg, "<path fill=\"{colour}\" d=\"{path}\"><title>{label}</title></path>");
        stacked.iter_mut().zip(&row.columns).for_each(|(sum, own)| *sum = sum.saturating_sub(*own));
    }
    for (number, row) in timeline.rows.iter().enumerate() {
        let y = FIRST_ROW + ROW * number as i32 - 12;
        let colour = colour(number, timeline);
        let _ = writeln!(svg, "<rect x=\"16\" y=\"{y}\" width=\"14\" height=\"10\" fill=\"{colour}\"/>");
        let about = format!("{} at most  {}", Bytes(row.highest), row.label);
        svg += &text(13, (36.0, f64::from(y + 10)), "start", &escape(&shortened_to(&about, 170)));
    }
    Ok(svg + "</svg>\n")
}

fn colour(number: usize, timeline: &KeyTimeline) -> &'static str {
    let is_others =
        number + 1 == timeline.rows.len() && timeline.rows.last().is_some_and(|row| row.label == "(others)");
    COLOURS[if is_others { KEYS } else { number.min(KEYS) }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::two_lines_and_a_temporary;

    #[test]
    fn each_key_has_an_area_and_its_name_in_the_legend() {
        let data = two_lines_and_a_temporary();
        for by in [TimelineKey::Line, TimelineKey::Operator, TimelineKey::Category] {
            let mut svg = Vec::new();
            TimelineSvg { device: None, by }.write(&data, &mut svg).unwrap();
            let svg = String::from_utf8(svg).unwrap();
            let timeline = key_timeline(&data, &data.devices[0], by, COLUMNS, KEYS);
            assert_eq!(svg.matches("<path fill=").count(), timeline.rows.len());
            for row in &timeline.rows {
                assert!(svg.contains(&format!(" at most  {}</text>", escape(&row.label))), "{svg}");
            }
        }
    }
}
