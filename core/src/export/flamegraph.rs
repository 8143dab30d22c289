//! Flamegraph (icicle) of the peak as SVG, drawn by inferno.

use std::collections::BTreeMap;
use std::io::Write;

use inferno::flamegraph;

use super::folded::{self, Folded, Measure};
use super::{Export, LeftOut, budget};
use crate::analysis::device_or_main;
use crate::error::Error;
use crate::report::sampled;
use crate::snapshot::{DeviceSnapshot, SnapshotData, Weight};
use crate::units::{Bytes, grouped};

/// A flamegraph of these stacks as SVG: the width of a frame is the memory that it held at the peak, and outermost frames are on
/// top. Click to zoom, search with Ctrl-F. An error if nothing was live at the peak.
#[derive(Clone, Debug, Default)]
pub struct Flamegraph(pub Folded);

impl Export for Flamegraph {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let Self(stacks) = self;
        let Some(device) = device_or_main(data, stacks.device) else { return Err(nothing()) };
        let device = stacks.moment.of(data, device)?;
        let lines = folded::lines(data, &device, stacks);
        if lines.is_empty() {
            return Err(nothing());
        }
        budget::rows(stacks.max_bytes, lines.len(), out, |count, _, out| {
            draw(data, &device, stacks, &folded::largest(&lines, count), out)
        })
    }
}

fn draw(
    data: &SnapshotData,
    device: &DeviceSnapshot,
    stacks: &Folded,
    lines: &BTreeMap<String, u64>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let (mut drawing, interval) = (flamegraph::Options::default(), device.sample_interval());
    let total = match stacks.measure {
        Measure::Bytes => Bytes(device.peak.total()).to_string(),
        Measure::Count => format!("{}{} blocks", sampled::about(interval), grouped(blocks(device))),
    };
    drawing.title = format!("{} on {}: {total}, {}", data.process.program, device.device, stacks.moment.words());
    drawing.subtitle = sampled::note(interval);
    let unit = if stacks.measure == Measure::Bytes { "bytes" } else { "blocks" };
    drawing.count_name = format!("{unit}{}", sampled::behind(interval));
    drawing.colors = flamegraph::color::Palette::Basic(flamegraph::color::BasicPalette::Mem);
    // Outermost frames on top: readers start there, and deep stacks hang out of the way.
    drawing.direction = flamegraph::Direction::Inverted;
    // A frame's label begins with its function.
    drawing.text_truncate_direction = flamegraph::TextTruncateDirection::Right;
    drawing.deterministic = true;
    let lines: Vec<String> = lines.iter().map(|(stack, value)| format!("{stack} {value}")).collect();
    // A buffer for inferno's many small writes.
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut drawing, lines.iter().map(String::as_str), &mut svg)
        .map_err(|error| Error::drawing("flamegraph", error.to_string()))?;
    out.write_all(&svg)?;
    Ok(())
}

fn blocks(device: &DeviceSnapshot) -> u64 {
    device.peak_weights().map(|(_, weight)| weight).sum::<Weight>().blocks()
}

fn nothing() -> Error {
    Error::drawing("flamegraph", "nothing was live at the peak".to_owned())
}
