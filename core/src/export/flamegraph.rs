//! Flamegraph (icicle) of the peak as SVG, drawn by inferno.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use inferno::flamegraph;

use super::folded::{self, Folded, Measure};
use super::{Export, LeftOut, budget};
use crate::analysis::{LiveSet, Moment};
use crate::error::Error;
use crate::recording::Recording;
use crate::report::sampled;
use crate::snapshot::{SnapshotData, Weight};
use crate::units::{Bytes, grouped};
use crate::visible;

/// A flamegraph of these stacks as SVG. The width of a frame is the memory that it held at the stacks' moment, by
/// default the peak; the outermost frames are on top. Click to zoom, search with Ctrl-F. Writing fails if nothing was
/// live then.
#[derive(Clone, Debug, Default)]
pub struct Flamegraph(pub Folded);

impl Export for Flamegraph {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let Self(stacks) = self;
        let recording = Recording::new(data);
        let live = recording.device_or_main(stacks.device).ok_or_else(nothing)?.at(&stacks.moment)?;
        let lines = folded::lines(&live, stacks);
        if lines.is_empty() {
            return Err(nothing());
        }
        budget::rows(stacks.max_bytes, lines.len(), out, |count, _, out| {
            let lines = folded::largest(&lines, count);
            let lines: Vec<String> = lines.iter().map(|(stack, value)| format!("{stack} {value}")).collect();
            svg(&mut options(&live, stacks), &lines, out)
        })
    }
}

/// A differential flamegraph. The width of a frame is what it held in the recording that is written; red is more than
/// before, and blue is less. Frames are functions, so edits that move lines do not matter. Memory that exists only in
/// the earlier recording has no width: swap the recordings to see it.
#[derive(Clone, Debug)]
pub struct FlamegraphDiff<'a> {
    /// The recording before the change.
    pub before: &'a SnapshotData,
    /// The stacks to take from both recordings.
    pub stacks: Folded,
    /// The moment of `before`.
    pub moment_before: Moment,
}

impl Export for FlamegraphDiff<'_> {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let Self { before, stacks, moment_before } = self;
        let (before, after) = (Recording::new(before), Recording::new(data));
        let device = after.device_or_main(stacks.device).ok_or_else(nothing)?;
        let old = before.device(device.device).ok_or_else(|| {
            Error::drawing("flamegraph", format!("the recording before has nothing on {}", device.device))
        })?;
        let (old, new) = (old.at(moment_before)?, device.at(&stacks.moment)?);
        let lines = both(folded::functions(&old, stacks), folded::functions(&new, stacks));
        if lines.is_empty() {
            return Err(nothing());
        }
        let mut drawing = options(&new, stacks);
        let size = |live: &LiveSet<'_>| total(live, stacks.measure);
        drawing.title = format!("{} on {}: {} before, {} after", program(data), device.device, size(&old), size(&new));
        drawing.subtitle = Some("red: more than before; blue: less; what is gone is not shown".to_owned());
        svg(&mut drawing, &lines, out)?;
        Ok(LeftOut::default())
    }
}

/// Lines `STACK BEFORE AFTER`, sorted.
fn both(before: BTreeMap<String, u64>, after: BTreeMap<String, u64>) -> Vec<String> {
    let stacks: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let of = |side: &BTreeMap<String, u64>, stack: &String| side.get(stack).copied().unwrap_or(0);
    stacks.into_iter().map(|stack| format!("{stack} {} {}", of(&before, stack), of(&after, stack))).collect()
}

fn options(live: &LiveSet<'_>, stacks: &Folded) -> flamegraph::Options<'static> {
    let (mut drawing, interval) = (flamegraph::Options::default(), live.device.sample_interval());
    let total = total(live, stacks.measure);
    drawing.title = format!(
        "{} on {}: {total}, {}",
        program(live.device.data()),
        live.device.device,
        visible::line(&stacks.moment.words())
    );
    drawing.subtitle = sampled::note(interval);
    let unit = if stacks.measure == Measure::Bytes { "bytes" } else { "blocks" };
    drawing.count_name = format!("{unit}{}", sampled::behind(interval));
    drawing.colors = flamegraph::color::Palette::Basic(flamegraph::color::BasicPalette::Mem);
    // The outermost frames are on top, where readers start.
    drawing.direction = flamegraph::Direction::Inverted;
    // A frame's label begins with its function.
    drawing.text_truncate_direction = flamegraph::TextTruncateDirection::Right;
    drawing.deterministic = true;
    drawing
}

fn svg(drawing: &mut flamegraph::Options<'_>, lines: &[String], out: &mut dyn Write) -> Result<(), Error> {
    // Collects inferno's many small writes.
    let mut svg = Vec::new();
    flamegraph::from_lines(drawing, lines.iter().map(String::as_str), &mut svg)
        .map_err(|error| Error::drawing("flamegraph", error.to_string()))?;
    out.write_all(visible::lines(&String::from_utf8_lossy(&svg)).as_bytes())?;
    Ok(())
}

fn program(data: &SnapshotData) -> Cow<'_, str> {
    visible::line(&data.process.program)
}

fn total(live: &LiveSet<'_>, measure: Measure) -> String {
    let blocks = || live.weights().map(|(_, weight)| weight).sum::<Weight>().blocks();
    match measure {
        Measure::Bytes => Bytes(live.total()).to_string(),
        Measure::Count => format!("{}{} blocks", sampled::about(live.device.sample_interval()), grouped(blocks())),
    }
}

fn nothing() -> Error {
    Error::drawing("flamegraph", "nothing was live at the peak".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{LINE_7, LINE_9, Story};

    fn recording(seven: u64) -> SnapshotData {
        let mut story = Story::cpu();
        story.at(1_000).alloc("a", seven).on(LINE_7);
        story.at(2_000).alloc("b", 5000).on(LINE_9);
        story.build()
    }

    #[test]
    fn a_difference_has_a_colour_where_a_function_changed() {
        let draw = |before: u64, after: u64| {
            let before = recording(before);
            let format = FlamegraphDiff { before: &before, stacks: Folded::default(), moment_before: Moment::Peak };
            let mut svg = Vec::new();
            format.write(&recording(after), &mut svg).unwrap();
            String::from_utf8(svg).unwrap()
        };
        assert!(draw(2000, 9000).contains("(9,000 bytes, 64.29%; +50.00%)"), "of the total after");
        assert_ne!(draw(2000, 9000), draw(9000, 9000));
        assert!(draw(2000, 9000).contains("6.836 KiB before, 13.67 KiB after"));
    }
}
