//! Memory over time as a stacked area chart (SVG): by category in the form of torch.profiler's picture, by operator or by line.

use std::fmt::Write as _;
use std::io::Write;

use super::svg::{AxisUnit, Plot, escape, legend, path, picture, pixels, shortened, text, text_width};
use super::{Export, LeftOut};
use crate::analysis::{Key, KeyTimeline, TimelineRow, key_timeline};
use crate::error::Error;
use crate::recording::Recording;
use crate::report::sampled;
use crate::snapshot::{Category, Device, DeviceSnapshot, SnapshotData};
use crate::units::Bytes;
use crate::visible;

const WIDTH: u32 = 1280;
const PLOT: u32 = 460;
/// Columns of the picture, each two pixels wide.
const COLUMNS: usize = 600;
/// Number of keys with a colour of their own.
const KEYS: usize = 10;
const ROW: f64 = 17.0;
const FIRST_ROW: f64 = 50.0;
/// Okabe and Ito's colours, which colour-blind people can distinguish, and lighter ones. The last is for all other
/// keys.
const COLOURS: [&str; KEYS + 1] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#7f7fbf", "#8fbc8f", "#c49a6c",
    "#bbbbbb",
];

/// The memory of a device over time, stacked by category (in PyTorch's order and colours), operator or line. The ten
/// largest have areas of their own, and all others share one. The peak is marked. The size of the file does not grow
/// with the log, because each column of pixels shows only its highest moment. An error if nothing was ever live.
#[derive(Clone, Debug)]
pub struct TimelineSvg {
    /// The device; the main one if `None`.
    pub device: Option<Device>,
    /// The key of the areas.
    pub by: Key,
}

impl Default for TimelineSvg {
    fn default() -> Self {
        Self { device: None, by: Key::Category }
    }
}

impl Export for TimelineSvg {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let nothing = || Error::drawing("figure", "nothing was live".to_owned());
        let recording = Recording::new(data);
        let device = recording.device_or_main(self.device).ok_or_else(nothing)?;
        let keys = if self.by == Key::Category { Category::ALL.len() } else { KEYS };
        let mut timeline = key_timeline(device, self.by, COLUMNS, keys);
        if timeline.totals.iter().all(|total| *total == 0) {
            return Err(nothing());
        }
        if self.by == Key::Category {
            in_order(&mut timeline.rows);
        }
        let title = self.title(data, device, &timeline);
        out.write_all(visible::lines(&drawn(&timeline, &title)).as_bytes())?;
        Ok(LeftOut::default())
    }
}

impl TimelineSvg {
    fn title(&self, data: &SnapshotData, device: &DeviceSnapshot, timeline: &KeyTimeline) -> String {
        let by = self.by.words();
        let (behind, program) = (sampled::behind(device.sample_interval()), shortened(&data.process.program, 28));
        let peak = Bytes(if device.is_sample() { device.peak.bytes } else { highest(timeline) });
        format!("{program} on {}: memory by {by}{behind}, peak {peak}", device.device)
    }
}

fn highest(timeline: &KeyTimeline) -> u64 {
    timeline.totals.iter().copied().max().unwrap_or(0)
}

/// Sorts categories in PyTorch's order.
fn in_order(rows: &mut [TimelineRow]) {
    let place = |row: &TimelineRow| Category::ALL.iter().position(|category| category.word() == row.label);
    rows.sort_by_key(place);
}

fn drawn(timeline: &KeyTimeline, title: &str) -> String {
    let top = FIRST_ROW + ROW * timeline.rows.len() as f64;
    let time = AxisUnit::of_time(timeline.to_ns.saturating_sub(timeline.from_ns));
    let unit = AxisUnit::of_bytes(highest(timeline));
    let height = PLOT + top as u32;
    let times = time.value(timeline.from_ns)..time.value(timeline.to_ns);
    let plot = Plot::new(WIDTH, top..f64::from(height), times, unit.value(highest(timeline)));
    let about = format!("Time since the recording began ({})", time.name);
    let mut svg = text(16, (16.0, 24.0), "start", "#000", title);
    svg += &plot.axes(&about, AxisUnit::number, |value| unit.label(value));
    svg += &areas(timeline, &plot, unit);
    svg += &mark(
        &plot,
        time.value(timeline.highest_ns),
        &format!("peak at {}", time.label(time.value(timeline.highest_ns))),
    );
    for (number, row) in timeline.rows.iter().enumerate() {
        let about = shortened(&format!("{} at most  {}", Bytes(row.highest), row.label), 170);
        svg += &legend(16.0, FIRST_ROW + ROW * number as f64 - 12.0, colour(number, row), &about);
    }
    picture(WIDTH, height, &svg)
}

/// Draws the area of the whole stack first. Each further area is lower than the one before it, and hides that one's
/// lower part.
fn areas(timeline: &KeyTimeline, plot: &Plot, unit: AxisUnit) -> String {
    let mut svg = String::new();
    let wide = (plot.x.end - plot.x.start) / timeline.totals.len().max(1) as f64;
    let mut stacked: Vec<u64> = timeline.totals.clone();
    for (number, row) in timeline.rows.iter().enumerate().rev() {
        let mut path = format!("M{} {}", pixels(plot.x.start), pixels(plot.y.end));
        let mut level = String::new();
        for (column, bytes) in stacked.iter().enumerate() {
            let height = pixels(plot.height(unit.value(*bytes)));
            if height != level {
                let _ = write!(path, "H{}V{height}", pixels(plot.x.start + column as f64 * wide));
                level = height;
            }
        }
        let _ = write!(path, "H{}V{}Z", pixels(plot.x.end), pixels(plot.y.end));
        let (colour, label) = (colour(number, row), escape(&row.label));
        let _ = writeln!(svg, "<path fill=\"{colour}\" d=\"{path}\"><title>{label}</title></path>");
        stacked.iter_mut().zip(&row.columns).for_each(|(sum, own)| *sum = sum.saturating_sub(*own));
    }
    svg
}

/// Dark dashes on a light line, which are visible on every colour.
fn mark(plot: &Plot, time: f64, about: &str) -> String {
    let (x, half) = (plot.right(time), text_width(about, 13.0) / 2.0);
    let line = [(x, plot.y.start), (x, plot.y.end)];
    path(&line, "stroke=\"white\" stroke-opacity=\".7\"")
        + &path(&line, "stroke=\"#222\" stroke-dasharray=\"5 4\"")
        + &text(13, (x.clamp(plot.x.start + half, plot.x.end - half), plot.y.start - 6.0), "middle", "#000", about)
}

fn colour(number: usize, row: &TimelineRow) -> &'static str {
    match Category::from_word(&row.label) {
        Some(category) => category.colour(),
        None if row.label == "(others)" => COLOURS[KEYS],
        None => COLOURS[number.min(KEYS)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::DeviceView;
    use crate::snapshot::testing::{Story, empty, two_lines_and_a_temporary};

    fn svg(data: &SnapshotData, by: Key) -> String {
        let mut svg = Vec::new();
        TimelineSvg { device: None, by }.write(data, &mut svg).unwrap();
        String::from_utf8(svg).unwrap()
    }

    #[test]
    fn each_key_has_an_area_and_its_name_in_the_legend() {
        let data = two_lines_and_a_temporary();
        for by in [Key::Line, Key::Operator, Key::Category] {
            let svg = svg(&data, by);
            let timeline = key_timeline(&DeviceView::of(&data, &data.devices[0]), by, COLUMNS, KEYS);
            assert_eq!(svg.matches("<title>").count(), timeline.rows.len());
            for row in &timeline.rows {
                assert!(svg.contains(&format!(" at most  {}</text>", escape(&row.label))), "{svg}");
            }
        }
    }

    #[test]
    fn categories_stand_in_pytorchs_order_and_colours_and_the_peak_is_marked() {
        let mut story = Story::cpu();
        story.before(1024);
        story.at(1_000).alloc("cache", 2000).named("cache", Category::KvCache);
        story.at(2_000).alloc("weights", 1000).named("weights", Category::Parameter);
        story.at(4_000).free("weights");
        story.lasting(6_000);
        let svg = svg(&story.build(), Key::Category);
        let at = |category: Category| {
            let fill = format!("fill=\"{}\"", category.colour());
            assert_eq!(svg.matches(&fill).count(), 2, "{category}");
            svg.find(&format!("{category}</text>")).unwrap()
        };
        assert!([Category::Parameter, Category::Unknown, Category::KvCache].map(at).is_sorted());
        for text in ["net on cpu: memory by category, peak 3.930 KiB", "1000 B at most  PARAMETER", "peak at 2 µs"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        let error = TimelineSvg::default().write(&empty(), &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("nothing was live"), "{error}");
    }

    /// `count` blocks, each freed before the next is allocated; the one numbered `large` is large.
    fn busy(count: u64, large: u64) -> SnapshotData {
        let mut story = Story::cpu();
        for number in 0..count {
            let size = if number == large { 1 << 20 } else { 100 };
            story.at(number).alloc("block", size).free("block");
        }
        story.lasting(count).build()
    }

    #[test]
    fn a_picture_of_a_long_log_is_small_and_keeps_a_peak_of_an_instant() {
        let [short, long] = [busy(10_000, 4711), busy(100_000, 4711)].map(|data| svg(&data, Key::Category));
        assert!(long.len() < short.len() + 1000 && long.len() < 100_000, "{} {}", short.len(), long.len());
        let without = svg(&busy(100_000, u64::MAX), Key::Category);
        assert!(long.contains("1.000 MiB") && !without.contains("1.000 MiB"));
        // The plot is as high as the picture without its labels. The peak takes all of that except the headroom.
        let path = long.split("d=\"").find(|path| path.contains("Z\"")).unwrap().split('"').next().unwrap();
        let levels = path.split('V').skip(1).map(|rest| rest.split(['H', 'Z']).next().unwrap().parse().unwrap());
        let highest: f64 = levels.fold(f64::MAX, f64::min);
        let top = 50.0 + 17.0 * long.matches("<title>").count() as f64;
        let bottom = top + 460.0 - 46.0;
        assert!((highest - (bottom - (bottom - top) / 1.05)).abs() < 0.1, "{highest}");
    }

    #[test]
    fn times_and_sizes_beyond_any_program_are_drawn() {
        for (time_ns, size, duration_ns) in [(u64::MAX, 1 << 61, 0), (1 << 62, 1, 1), (0, 1, 0), (0, 1, u64::MAX)] {
            let mut story = Story::cpu();
            story.at(time_ns).before(1024);
            story.alloc("lost", 1).alloc("cache", size).named("cache", Category::KvCache);
            story.alloc("weights", 1000).named("weights", Category::Parameter).free("weights");
            let svg = svg(&story.overwritten(1).lasting(duration_ns).build(), Key::Category);
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
