//! DHAT JSON, version 2. For each stack it has the bytes that were allocated in total, those that were live at the
//! global maximum and at the end, and the blocks' lifetimes.

mod points;

use std::io::Write;

use self::points::{HeapPoint, points};
use super::gathered::Gathered;
use super::{Export, LeftOut};
use crate::error::Error;
use crate::numbered::Numbered;
use crate::recording::{DeviceView, Recording};
use crate::report::sampled;
use crate::snapshot::{Device, DeviceSnapshot, SnapshotData};

/// The viewer calls blocks short-lived if their average lifetime is shorter than this.
const SHORT_LIVED_US: u64 = 1000;

/// A profile of one device for [DHAT's viewer](https://valgrind.org/docs/manual/dh-manual.html). Its global maximum
/// (`t-gmax`) is the device's peak, and the bytes there add up to the report's total.
///
/// The totals cover all blocks that the recording knows: those of the log, of the peak and of the end. A block that was
/// not freed lives to the end. If a block's alloc was overwritten, its lifetime begins with the log; if its free was
/// overwritten, it ends where the log begins.
#[derive(Clone, Debug, Default)]
pub struct Dhat {
    /// The device; the main one if `None`.
    pub device: Option<Device>,
}

impl Export for Dhat {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let recording = Recording::new(data);
        let device = recording.device_or_main(self.device);
        // The format requires that frame 0 is the root.
        let mut frames = Numbered::default();
        frames.number("[root]".to_owned());
        let points = device.map(|device| points(device, &mut frames));
        let mut out = Gathered::new(out);
        head(data, device.map(DeviceView::snapshot), &mut out);
        out.put(",\n\"pps\":[");
        for (number, (frames, point)) in points.iter().flat_map(Numbered::rows).enumerate() {
            out.put(if number > 0 { ",\n" } else { "\n" });
            write_point(frames, point, &mut out);
            out.settle()?;
        }
        out.put("],\n\"ftbl\":[");
        for (number, (frame, ())) in frames.rows().iter().enumerate() {
            out.put(if number > 0 { ",\n" } else { "\n" });
            out.text(frame);
            out.settle()?;
        }
        out.put("]}\n");
        out.finish()?;
        Ok(LeftOut::default())
    }
}

fn head(data: &SnapshotData, device: Option<&DeviceSnapshot>, out: &mut Gathered<'_>) {
    let interval = device.and_then(DeviceSnapshot::sample_interval);
    let name = device.map_or(String::new(), |device| format!(" on {}", device.device));
    let note = sampled::note(interval).map_or(String::new(), |note| format!(" ({note})"));
    out.put("{\"dhatFileVersion\":2,\"mode\":\"heap\",\"verb\":\"Allocated\",\"bklt\":true,\"bkacc\":false,");
    out.put("\"tu\":\"µs\",\"Mtu\":\"s\",\"tuth\":");
    out.number(SHORT_LIVED_US);
    out.put(",\"cmd\":");
    out.text(&format!("{}{name}{note}", data.process.program));
    out.put(",\"pid\":");
    out.number(data.process.pid.into());
    out.put(",\"te\":");
    out.number(data.process.duration_ns / 1000);
    out.put(",\"tg\":");
    out.number(device.map_or(0, |device| device.peak.time_ns / 1000));
}

fn write_point(frames: &[usize], point: &HeapPoint, out: &mut Gathered<'_>) {
    let HeapPoint { total, maximum, at_peak, at_end, lifetimes_us, .. } = point;
    let sums = [("tb", "tbk", total), ("mb", "mbk", maximum), ("gb", "gbk", at_peak), ("eb", "ebk", at_end)];
    out.put("{\"tl\":");
    out.number(lifetimes_us.round() as u64);
    for (bytes, blocks, sum) in sums {
        for (name, value) in [(bytes, sum.bytes), (blocks, sum.blocks())] {
            out.put(format!(",\"{name}\":"));
            out.number(value);
        }
    }
    out.put(",\"fs\":[");
    out.numbers(frames.iter().map(|frame| *frame as u64));
    out.put("]}");
}
