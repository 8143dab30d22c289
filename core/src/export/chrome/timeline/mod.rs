//! Timeline trace: scopes as slices, every alloc and free as an event, the total as a counter, and the peak. If uses
//! were recorded, it also has the advice at its times, and each block's last use in its free.
//!
//! Memory events have the names and keys of torch.profiler (`profile_memory=True`, torch 2.15), so its tools read them.
//! The format's table of stack frames has the whole stacks. `chrome://tracing` shows that table, but Perfetto (v52)
//! does not, so each event also has its user line.

mod advice;
mod memory;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};

use super::event::{Trace, Track};
use super::names::{Names, scope_name, thread_name};
use super::stack_frames::{Frames, StackFrames};
use super::{MAX_BYTES, devices, scopes};
use crate::analysis::log::allocated_at_start;
use crate::error::Error;
use crate::export::advice::{Advice, advice};
use crate::export::budget::{self, Selection};
use crate::export::{Export, LeftOut};
use crate::recording::Recording;
use crate::report::sampled;
use crate::snapshot::{Device, DeviceSnapshot, Mark, SnapshotData, Thread, ThreadId};

/// A timeline for Perfetto (ui.perfetto.dev) and `chrome://tracing`: scopes, every alloc and free, the total as a curve, and
/// its peak.
#[derive(Clone, Debug)]
pub struct ChromeTrace {
    /// Only this device; all if `None`.
    pub device: Option<Device>,
    /// The size limit, within which the peak is never lost. 128 MiB by default, about 300,000 records, which Perfetto
    /// reads in a few seconds. Totals stay exact.
    pub max_bytes: Option<u64>,
}

impl Default for ChromeTrace {
    fn default() -> Self {
        Self { device: None, max_bytes: Some(MAX_BYTES) }
    }
}

impl Export for ChromeTrace {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let known = Known::of(data);
        budget::records(data, self.max_bytes, out, |selection, out| write_selection(data, self, &known, selection, out))
    }
}

/// Data computed once for all measurements of a budget.
struct Known {
    names: Names,
    frames: Frames,
    /// Live bytes before the oldest record.
    at_start: BTreeMap<Device, u64>,
    process: Track,
    /// The threads with records or marks, by number.
    threads: BTreeMap<ThreadId, Track>,
    edges: Vec<Mark>,
    advice: BTreeMap<Device, Vec<Advice>>,
}

impl Known {
    fn of(data: &SnapshotData) -> Self {
        let recording = Recording::new(data);
        let (names, frames) = (Names::new(&recording), Frames::of(data));
        let pid = data.process.pid;
        let track = |thread: ThreadId| (thread, Track::thread(pid, thread.number().into()));
        let threads = threads(data).into_iter().map(track).collect();
        let start = |device: &DeviceSnapshot| (device.device, allocated_at_start(device));
        let at_start = data.devices.iter().map(start).collect();
        let advice = recording.devices().iter().map(|device| (device.device, advice(device))).collect();
        Self { names, frames, at_start, process: Track::process(pid), threads, edges: scopes::nested(data), advice }
    }
}

fn write_selection(
    data: &SnapshotData,
    options: &ChromeTrace,
    known: &Known,
    selection: &Selection<'_>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let stacks = StackFrames::new(data, &known.frames);
    let mut timeline = Timeline { data, options, known, selection, stacks, trace: Trace::begin(out) };
    timeline.metadata()?;
    timeline.slices()?;
    for device in devices(data, options.device) {
        timeline.device(device)?;
        timeline.advice(device)?;
    }
    Ok(timeline.finish()?)
}

struct Timeline<'a, 'o> {
    data: &'a SnapshotData,
    options: &'a ChromeTrace,
    known: &'a Known,
    selection: &'a Selection<'a>,
    stacks: StackFrames<'a>,
    trace: Trace<'o>,
}

impl<'a> Timeline<'a, '_> {
    fn metadata(&mut self) -> io::Result<()> {
        self.trace.process(&self.known.process, &self.data.process.program, "memory", 0)?;
        let threads = self.data.process.threads.iter().rev().map(|thread| (thread.number, thread));
        let threads: HashMap<ThreadId, &Thread> = threads.collect();
        for (&thread, track) in &self.known.threads {
            let name = thread_name(self.data, thread, threads.get(&thread).copied());
            self.trace.thread(track, &name, thread.number().into())?;
        }
        Ok(())
    }

    fn slices(&mut self) -> io::Result<()> {
        let edges = self.known.edges.iter();
        let mut shown = edges.filter(|edge| self.selection.shows_mark(edge));
        shown.try_for_each(|edge| self.edge(edge))
    }

    fn edge(&mut self, edge: &Mark) -> io::Result<()> {
        let track = self.thread(edge.thread);
        let (data, names) = (self.data, &self.known.names);
        self.trace.event(if edge.enter { "B" } else { "E" }, |event| {
            event.track(track);
            event.time(edge.time_ns);
            if edge.enter {
                event.json("cat", "\"user_annotation\"");
                event.text("name", scope_name(data, edge.context));
                event.object("args", |args| args.json("scope", &names.path(edge.context).json));
            }
        })
    }

    fn finish(self) -> io::Result<()> {
        let Self { data, options, stacks, selection, .. } = self;
        self.trace.finish(|out| {
            stacks.write(out);
            out.text("displayTimeUnit", "ms");
            out.object("otherData", |out| {
                out.text("recorded_by", concat!("memtrace ", env!("CARGO_PKG_VERSION")));
                out.text("program", &data.process.program);
                out.number("started_unix_us", data.process.started_unix_us);
                out.number("min_size", data.settings.min_size);
                if !selection.left_out.is_nothing() {
                    out.text("left_out", &selection.left_out.to_string());
                }
                for device in devices(data, options.device) {
                    out.object(&device.device.to_string(), |out| {
                        out.number("records", device.records.len() as u64);
                        out.number("records_overwritten", device.overwritten);
                        if let Some(note) = sampled::note(device.sample_interval()) {
                            out.text("figures", &note);
                        }
                    });
                }
            });
        })
    }

    fn thread(&self, thread: ThreadId) -> &'a Track {
        self.known.threads.get(&thread).unwrap_or(&self.known.process)
    }
}

fn threads(data: &SnapshotData) -> BTreeSet<ThreadId> {
    let mut threads: BTreeSet<ThreadId> = scopes::marks(data).iter().map(|mark| mark.thread).collect();
    let mut last = None;
    for record in data.devices.iter().flat_map(|device| &device.records) {
        // A record usually has the same thread as the previous one, which is in the set already.
        if last.replace(record.thread) != Some(record.thread) {
            threads.insert(record.thread);
        }
    }
    threads
}
