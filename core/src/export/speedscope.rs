//! Speedscope JSON: `sampled` profiles in bytes, one for each device and moment.

use std::io::Write;

use super::gathered::Gathered;
use super::viewers::{Numbered, ShownFrames, devices, frame_name, rest, sums};
use super::{Export, LeftOut};
use crate::analysis::{Moment, NO_STACK, shorten_path};
use crate::error::Error;
use crate::report::sampled;
use crate::snapshot::{Device, DeviceSnapshot, Frame, SnapshotData};

/// Profiles for [speedscope](https://www.speedscope.app): what each device held at the peak and at the end, and what it
/// allocated in all. The weights of a profile add up to the report's total; its stacks are in the order of their first
/// allocation, without frames of the standard library and of memtrace.
#[derive(Clone, Debug, Default)]
pub struct Speedscope {
    /// Only this device; all if `None`.
    pub device: Option<Device>,
}

impl Export for Speedscope {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let (shown, mut frames) = (ShownFrames::of(data), Numbered::new());
        let mut profiles = Vec::new();
        for device in devices(data, self.device) {
            for moment in [Moment::Peak, Moment::End, Moment::Allocated] {
                let device = moment.of(data, device)?;
                let estimated = sampled::behind(device.sample_interval());
                let name = format!("{} {}{estimated}", device.device, moment.words());
                profiles.push(SampledProfile { name, samples: samples(data, &device, &shown, &mut frames) });
            }
        }
        write_file(data, &profiles, &frames, out)?;
        Ok(LeftOut::default())
    }
}

struct SampledProfile {
    name: String,
    /// Numbers of frames, outermost first, and bytes.
    samples: Vec<(Vec<usize>, u64)>,
}

/// A frame of a stack, or a text in place of one.
#[derive(Clone, PartialEq, Eq, Hash)]
enum ShownLine<'a> {
    Frame(&'a Frame),
    Label(String),
}

fn samples<'a>(
    data: &SnapshotData,
    device: &DeviceSnapshot,
    shown: &ShownFrames<'a>,
    lines: &mut Numbered<ShownLine<'a>>,
) -> Vec<(Vec<usize>, u64)> {
    let mut samples = Vec::new();
    for (stack, weight) in sums(device, |block| block.stack).rows() {
        let frames = shown.of_stack(*stack).into_iter().flat_map(|(_, frames)| frames);
        let mut numbers: Vec<usize> = frames.map(|frame| lines.number(ShownLine::Frame(frame))).collect();
        numbers.reverse();
        if numbers.is_empty() {
            numbers.push(lines.number(ShownLine::Label(NO_STACK.to_owned())));
        }
        samples.push((numbers, weight.bytes));
    }
    samples.extend(rest(data, device).map(|(label, bytes)| (vec![lines.number(ShownLine::Label(label))], bytes)));
    samples
}

fn write_file(
    data: &SnapshotData,
    profiles: &[SampledProfile],
    lines: &Numbered<ShownLine<'_>>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let mut out = Gathered::new(out);
    out.put("{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"name\":");
    out.text(&data.process.program);
    out.put(concat!(",\"exporter\":\"memtrace ", env!("CARGO_PKG_VERSION"), "\",\"activeProfileIndex\":0"));
    out.put(",\"shared\":{\"frames\":[");
    for (number, (line, ())) in lines.rows().iter().enumerate() {
        out.put(if number > 0 { ",\n" } else { "\n" });
        write_line(line, &data.process.working_dir, &mut out);
        out.settle()?;
    }
    out.put("]},\"profiles\":[");
    for (number, profile) in profiles.iter().enumerate() {
        out.put(if number > 0 { ",\n" } else { "\n" });
        profile.write(&mut out)?;
    }
    out.put("]}\n");
    Ok(out.finish()?)
}

fn write_line(line: &ShownLine<'_>, working_dir: &str, out: &mut Gathered<'_>) {
    out.put("{\"name\":");
    match line {
        ShownLine::Label(label) => out.text(label),
        ShownLine::Frame(frame) => {
            out.text(frame_name(frame));
            if let Some(file) = frame.known_file() {
                out.put(",\"file\":");
                out.text(shorten_path(file, working_dir));
            }
            if let Some(line) = frame.line {
                out.put(",\"line\":");
                out.number(line.get().into());
            }
        }
    }
    out.put("}");
}

impl SampledProfile {
    fn write(&self, out: &mut Gathered<'_>) -> Result<(), Error> {
        out.put("{\"type\":\"sampled\",\"unit\":\"bytes\",\"name\":");
        out.text(&self.name);
        out.put(",\"startValue\":0,\"endValue\":");
        out.number(self.samples.iter().map(|(_, bytes)| bytes).sum());
        out.put(",\"samples\":[");
        for (at, (numbers, _)) in self.samples.iter().enumerate() {
            out.put(if at > 0 { ",[" } else { "[" });
            out.numbers(numbers.iter().map(|number| *number as u64));
            out.put("]");
            out.settle()?;
        }
        out.put("],\"weights\":[");
        out.numbers(self.samples.iter().map(|(_, bytes)| *bytes));
        out.put("]}");
        Ok(out.settle()?)
    }
}
