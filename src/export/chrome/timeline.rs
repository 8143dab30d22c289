//! What happened over time: scopes, every alloc and free, the total as a curve, and its peak.
//!
//! Memory events are named and keyed as torch.profiler's are (`profile_memory=True`, torch 2.15), so
//! that what reads its traces reads these. Whole stacks stand in the format's table of stack frames,
//! which `chrome://tracing` shows; Perfetto (v52) does not, so the user line stands with each event.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};

use super::event::{Object, Trace, Track, Value};
use super::names::{Names, scope_name, thread_name};
use super::stack_frames::StackFrames;
use super::{devices, scopes};
use crate::analysis::frame_location;
use crate::analysis::log::{self, Moment, moments};
use crate::analysis::reserved::Reserved;
use crate::error::Error;
use crate::export::budget::{self, LeftOut, Selection};
use crate::snapshot::{Device, DeviceSnapshot, Mark, RecordKind, SnapshotData, StackId, ThreadId};
use crate::units::Bytes;

/// What to write.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only this device; all if `None`.
    pub device: Option<Device>,
    /// Whole stacks as text with each event, for Perfetto, which has no other place for them. They
    /// make the file several times as large.
    pub stack_text: bool,
    /// The size to keep to, if that is possible without losing the peak; 256 MiB unless you say
    /// otherwise. The totals of what is shown stay exact.
    pub max_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { device: None, stack_text: false, max_bytes: Some(256 << 20) }
    }
}

/// Writes a timeline.
///
/// # Errors
/// If `out` fails.
pub fn write(data: &SnapshotData, options: &Options, mut out: impl Write) -> Result<LeftOut, Error> {
    let names = Names::new(data);
    budget::records(data, options.max_bytes, at_most(data, options, &names), &mut out, |selection, out| {
        write_selection(data, options, &names, selection, out)
    })
}

/// An upper bound of a timeline's size.
fn at_most(data: &SnapshotData, options: &Options, names: &Names) -> u64 {
    const RECORD: usize = 400;
    const MARK: usize = 160;
    if options.stack_text {
        return u64::MAX;
    }
    let frames: usize = data.stacks.frames.iter().map(|frame| frame.function.len() + frame.file.len() + 64).sum();
    let calls: usize = data.stacks.each_calls().map(<[u32]>::len).sum();
    let longest = frames / data.stacks.frames.len().max(1) * 4 + 64;
    let entry = |device: &DeviceSnapshot| {
        let longest = names.longest() + device.names.iter().map(|name| name.name.len()).max().unwrap_or(0);
        device.records.len() * (RECORD + 2 * longest)
            + 2 * device.marks.len() * (MARK + 2 * names.longest())
            + device.segment_records.len() * MARK
    };
    (data.devices.iter().map(entry).sum::<usize>() + calls * longest + frames + 65_536) as u64
}

fn write_selection(
    data: &SnapshotData,
    options: &Options,
    names: &Names,
    selection: &Selection<'_>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let trace = Trace::begin(BufWriter::new(out))?;
    let mut timeline = Timeline { data, options, names, selection, stacks: StackFrames::new(data), trace };
    timeline.metadata()?;
    timeline.slices()?;
    for device in devices(data, options.device) {
        timeline.device(device)?;
    }
    Ok(timeline.finish()?)
}

struct Timeline<'a, W> {
    data: &'a SnapshotData,
    options: &'a Options,
    names: &'a Names,
    selection: &'a Selection<'a>,
    stacks: StackFrames<'a>,
    trace: Trace<W>,
}

impl<W: Write> Timeline<'_, W> {
    fn metadata(&mut self) -> io::Result<()> {
        let process = self.process();
        self.trace.metadata("process_name", process, Value::Name(&self.data.process.program))?;
        self.trace.metadata("process_labels", process, Value::Labels("memory"))?;
        self.trace.metadata("process_sort_index", process, Value::SortIndex(0))?;
        for thread in threads(self.data) {
            let track = self.thread(thread);
            self.trace.metadata("thread_name", track, Value::Name(&thread_name(self.data, thread)))?;
            self.trace.metadata("thread_sort_index", track, Value::SortIndex(thread.number().into()))?;
        }
        Ok(())
    }

    fn slices(&mut self) -> io::Result<()> {
        let edges = scopes::nested(self.data);
        let shown = |edge: &&Mark| self.selection.shows_mark(self.data, edge);
        let edges: Vec<&Mark> = edges.iter().filter(shown).collect();
        edges.into_iter().try_for_each(|edge| self.edge(edge))
    }

    fn edge(&mut self, edge: &Mark) -> io::Result<()> {
        let track = self.thread(edge.thread);
        let (data, names) = (self.data, self.names);
        self.trace.event(if edge.enter { 'B' } else { 'E' }, |event| {
            event.track(track)?;
            event.time(edge.time_ns)?;
            if !edge.enter {
                return Ok(());
            }
            event.text("cat", "user_annotation")?;
            event.text("name", scope_name(data, edge.context))?;
            event.object("args", |args| args.text("scope", names.path(edge.context)))
        })
    }

    fn device(&mut self, device: &DeviceSnapshot) -> io::Result<()> {
        let mut allocated = log::allocated_at_start(device);
        let mut reserved = Reserved::of(device);
        let now = |reserved: &Option<Reserved<'_>>, allocated| reserved.as_ref().map_or(allocated, Reserved::bytes);
        self.counter(device.device, log::start_ns(device), allocated, now(&reserved, allocated))?;
        for moment in moments(device) {
            allocated = moment.allocated;
            self.segments(device.device, reserved.as_mut(), moment.record.time_ns)?;
            reserved.iter_mut().for_each(|reserved| reserved.after(moment.record));
            if !self.selection.shows(device.device, moment.record) {
                continue;
            }
            let bytes = now(&reserved, allocated);
            self.memory(device, &moment, bytes)?;
            self.counter(device.device, moment.record.time_ns, moment.allocated, bytes)?;
        }
        let end = scopes::end_ns(self.data);
        self.segments(device.device, reserved.as_mut(), end)?;
        self.counter(device.device, end, allocated, now(&reserved, allocated))?;
        self.peak(device)
    }

    /// Segments that came and went until then are points of their own.
    fn segments(&mut self, device: Device, reserved: Option<&mut Reserved<'_>>, until_ns: u64) -> io::Result<()> {
        let mut points = Vec::new();
        if let Some(reserved) = reserved {
            reserved.before(until_ns, |time_ns, bytes| points.push((time_ns, bytes)));
        }
        points.into_iter().try_for_each(|(time_ns, bytes)| self.point(device, "reserved", time_ns, bytes))
    }

    fn memory(&mut self, snapshot: &DeviceSnapshot, moment: &Moment<'_>, reserved: u64) -> io::Result<()> {
        let Moment { record, allocated } = *moment;
        let (device, name) = (snapshot.device, snapshot.name(record.alloc_seq).unwrap_or_default());
        let track = self.thread(record.thread);
        let frame = self.stacks.number(record.stack);
        let (names, whole) = (self.names, self.options.stack_text.then_some(self.data));
        self.trace.event('i', |event| {
            event.text("s", "t")?;
            event.text("cat", "cpu_instant_event")?;
            event.text("name", "[memory]")?;
            event.track(track)?;
            event.time(record.time_ns)?;
            if frame > 0 {
                event.number("sf", frame)?;
            }
            event.object("args", |args| {
                args.number("Addr", record.address)?;
                args.number("Bytes", log::change(record))?;
                args.number("Total Allocated", allocated)?;
                args.number("Total Reserved", reserved)?;
                device_args(args, device)?;
                said(args, "block", name)?;
                said(args, "scope", names.path(record.context))?;
                said(args, "source", names.line(record.stack))?;
                if record.kind == RecordKind::Free {
                    said(args, "allocated at", names.line(record.alloc_stack))?;
                }
                whole.map_or(Ok(()), |data| said(args, "stack", &stack_text(data, record.alloc_stack)))
            })
        })
    }

    /// A point of the curve. What a device reserves is a curve of its own where it is more than what
    /// is allocated: two series of one counter would be drawn on top of each other.
    fn counter(&mut self, device: Device, time_ns: u64, allocated: u64, reserved: u64) -> io::Result<()> {
        self.point(device, "allocated", time_ns, allocated)?;
        if device == Device::Cpu { Ok(()) } else { self.point(device, "reserved", time_ns, reserved) }
    }

    fn point(&mut self, device: Device, name: &str, time_ns: u64, bytes: u64) -> io::Result<()> {
        let process = self.process();
        self.trace.event('C', |event| {
            event.text("name", &format!("{device} {name}"))?;
            event.track(process)?;
            event.time(time_ns)?;
            event.object("args", |args| args.number("bytes", bytes))
        })
    }

    fn peak(&mut self, device: &DeviceSnapshot) -> io::Result<()> {
        let (process, peak) = (self.process(), &device.peak);
        self.trace.event('i', |event| {
            event.text("s", "g")?;
            event.text("cat", "peak")?;
            event.text("name", &format!("{} peak {}", device.device, Bytes(peak.total())))?;
            event.text("cname", "terrible")?;
            event.track(Track { tid: Some(0), ..process })?;
            event.time(peak.time_ns)?;
            event.object("args", |args| {
                args.number("total_bytes", peak.total())?;
                args.number("bytes", peak.bytes)?;
                args.number("before_recording_bytes", peak.not_recorded)?;
                args.number("below_threshold_bytes", peak.below_threshold)?;
                args.number("blocks", peak.blocks.len())?;
                device_args(args, device.device)
            })
        })
    }

    fn finish(self) -> io::Result<()> {
        let Self { data, options, stacks, selection, .. } = self;
        self.trace.finish(|out| {
            stacks.write(out)?;
            out.text("displayTimeUnit", "ms")?;
            out.object("otherData", |out| {
                out.text("recorded_by", concat!("memtrace ", env!("CARGO_PKG_VERSION")))?;
                out.text("program", &data.process.program)?;
                out.number("started_unix_us", data.process.started_unix_us)?;
                out.number("min_size", data.settings.min_size)?;
                if !selection.left_out.is_nothing() {
                    out.text("left_out", &selection.left_out.to_string())?;
                }
                devices(data, options.device).try_for_each(|device| {
                    out.object(device.device, |out| {
                        out.number("records", device.records.len())?;
                        out.number("records_overwritten", device.overwritten)
                    })
                })
            })
        })
    }

    fn process(&self) -> Track {
        Track { pid: self.data.process.pid, tid: None }
    }

    fn thread(&self, thread: ThreadId) -> Track {
        Track { tid: Some(thread.number().into()), ..self.process() }
    }
}

/// Every thread that did something, in the order of their numbers.
fn threads(data: &SnapshotData) -> BTreeSet<ThreadId> {
    let records = data.devices.iter().flat_map(|device| &device.records).map(|record| record.thread);
    records.chain(scopes::marks(data).iter().map(|mark| mark.thread)).collect()
}

/// As torch.profiler numbers devices; pinned, managed and imported memory, which it does not tell apart from
/// the host's, are -2, -3 and -4 there.
fn device_args(args: &mut Object<'_, impl Write>, device: Device) -> io::Result<()> {
    let (kind, ordinal) = match device {
        Device::Cpu => (0, -1),
        Device::Cuda(ordinal) => (1, i64::from(ordinal)),
        Device::Pinned => (0, -2),
        Device::Managed => (0, -3),
        Device::Imported => (0, -4),
    };
    args.number("Device Type", kind)?;
    args.number("Device Id", ordinal)
}

/// A text, if there is something to say.
fn said(args: &mut Object<'_, impl Write>, key: &str, text: &str) -> io::Result<()> {
    if text.is_empty() { Ok(()) } else { args.text(key, text) }
}

/// The frames of a stack, one a line, innermost first.
fn stack_text(data: &SnapshotData, stack: StackId) -> String {
    let lines = data.stacks.frames(stack).map(|frame| frame_location(frame, &data.process.working_dir));
    lines.collect::<Vec<_>>().join("\n")
}
