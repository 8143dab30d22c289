//! A device's records as trace events, and its counters.

use std::io;

use super::Timeline;
use crate::analysis::log::{self, Entry};
use crate::analysis::reserved::Reserved;
use crate::export::advice::last_use;
use crate::export::chrome::event::{Object, Track};
use crate::export::chrome::names::Name;
use crate::export::chrome::scopes;
use crate::export::gathered::quoted;
use crate::report::sampled;
use crate::snapshot::{BlockUse, Device, DeviceSnapshot, RecordKind, SnapshotData};
use crate::units::Bytes;

const MEMORY: &str = r#""s":"t","cat":"cpu_instant_event","name":"[memory]""#;

/// Members common to all events of a device.
struct OnDevice<'a> {
    device: Device,
    /// The members that name the device.
    args: String,
    /// The names of the device's counters of allocated and reserved bytes, as JSON.
    allocated: String,
    reserved: String,
    snapshot: &'a DeviceSnapshot,
}

impl<'a> OnDevice<'a> {
    fn of(snapshot: &'a DeviceSnapshot) -> Self {
        let device = snapshot.device;
        let estimated = sampled::behind(snapshot.sample_interval());
        let name = |what: &str| quoted(&format!("{device} {what}{estimated}"));
        let (allocated, reserved) = (name("allocated"), name("reserved"));
        let args = device_args(device);
        Self { device, args, allocated, reserved, snapshot }
    }
}

impl Timeline<'_, '_> {
    pub(super) fn device(&mut self, device: &DeviceSnapshot) -> io::Result<()> {
        let here = OnDevice::of(device);
        let mut allocated = self.known.at_start.get(&device.device).copied().unwrap_or_default();
        let mut reserved = Reserved::of(device);
        let now = |reserved: &Option<Reserved<'_>>, allocated| reserved.as_ref().map_or(allocated, Reserved::bytes);
        self.counter(&here, log::start_ns(device), allocated, now(&reserved, allocated))?;
        for entry in log::entries_after(device, allocated) {
            allocated = entry.allocated;
            self.segments(&here, reserved.as_mut(), entry.record.time_ns)?;
            if let Some(reserved) = &mut reserved {
                reserved.after(entry.record);
            }
            if !self.selection.shows(device.device, entry.record) {
                continue;
            }
            let bytes = now(&reserved, allocated);
            self.memory(&here, &entry, bytes)?;
            self.counter(&here, entry.record.time_ns, entry.allocated, bytes)?;
        }
        let end = scopes::end_ns(self.data);
        self.segments(&here, reserved.as_mut(), end)?;
        self.counter(&here, end, allocated, now(&reserved, allocated))?;
        self.peak(device, &here.args)
    }

    /// Writes points of the counter of reserved bytes, for the segments that were reserved or released before
    /// `until_ns`.
    fn segments(&mut self, here: &OnDevice<'_>, reserved: Option<&mut Reserved<'_>>, until_ns: u64) -> io::Result<()> {
        let Some(reserved) = reserved else { return Ok(()) };
        let mut points = Vec::new();
        reserved.before(until_ns, |time_ns, bytes| points.push((time_ns, bytes)));
        points.into_iter().try_for_each(|(time_ns, bytes)| self.point(&here.reserved, time_ns, bytes))
    }

    fn memory(&mut self, here: &OnDevice<'_>, entry: &Entry<'_>, reserved: u64) -> io::Result<()> {
        let Entry { record, allocated, weight, change } = *entry;
        let track = self.thread(record.thread);
        let frame = self.stacks.number(record.stack);
        let (names, data) = (&self.known.names, self.data);
        self.trace.event("i", |event| {
            event.members(MEMORY);
            event.track(track);
            event.time(record.time_ns);
            if frame > 0 {
                event.number("sf", frame.into());
            }
            event.object("args", |args| {
                args.number("Addr", record.address);
                args.signed("Bytes", change);
                if weight.bytes != record.size {
                    args.number("block bytes", record.size);
                }
                args.number("Total Allocated", allocated);
                args.number("Total Reserved", reserved);
                args.members(&here.args);
                if let Some(name) = here.snapshot.name(record.alloc_seq).filter(|name| !name.is_empty()) {
                    args.text("block", name);
                }
                add_name(args, "scope", names.path(record.context));
                add_name(args, "source", names.line(record.stack));
                if record.kind == RecordKind::Free {
                    add_name(args, "allocated at", names.line(record.alloc_stack));
                    if let Some(last) = last_use(here.snapshot, record.alloc_seq) {
                        args.text("last used by", kernel_name(data, last));
                        add_name(args, "last used at", names.line(last.stack));
                    }
                }
            });
        })
    }

    /// Writes a point of the counters. Reserved bytes have a counter of their own, because viewers stack the series of
    /// one counter.
    fn counter(&mut self, here: &OnDevice<'_>, time_ns: u64, allocated: u64, reserved: u64) -> io::Result<()> {
        self.point(&here.allocated, time_ns, allocated)?;
        if here.device == Device::Cpu { Ok(()) } else { self.point(&here.reserved, time_ns, reserved) }
    }

    fn point(&mut self, curve: &str, time_ns: u64, bytes: u64) -> io::Result<()> {
        let process = &self.known.process;
        self.trace.event("C", |event| {
            event.json("name", curve);
            event.track(process);
            event.time(time_ns);
            event.object("args", |args| args.number("bytes", bytes));
        })
    }

    fn peak(&mut self, device: &DeviceSnapshot, device_args: &str) -> io::Result<()> {
        let (track, peak) = (Track::thread(self.data.process.pid, 0), &device.peak);
        self.trace.event("i", |event| {
            event.text("s", "g");
            event.text("cat", "peak");
            event.text("name", &format!("{} peak {}", device.device, Bytes(peak.total())));
            event.text("cname", "terrible");
            event.track(&track);
            event.time(peak.time_ns);
            event.object("args", |args| {
                args.number("total_bytes", peak.total());
                args.number("bytes", peak.bytes);
                args.number("before_recording_bytes", peak.not_recorded);
                args.number("below_threshold_bytes", peak.below_threshold);
                args.number("blocks", peak.blocks.len() as u64);
                args.members(device_args);
            });
        })
    }
}

/// torch.profiler's device numbers. It does not distinguish pinned, managed and imported memory from host memory; here
/// they are -2, -3 and -4.
fn device_args(device: Device) -> String {
    let (kind, ordinal) = match device {
        Device::Cpu => (0, -1),
        Device::Cuda(ordinal) => (1, i64::from(ordinal)),
        Device::Pinned => (0, -2),
        Device::Managed => (0, -3),
        Device::Imported => (0, -4),
    };
    format!("\"Device Type\":{kind},\"Device Id\":{ordinal}")
}

/// Adds a name that is not empty.
#[inline]
fn add_name(args: &mut Object<'_, '_>, key: &str, name: &Name) {
    if !name.is_empty() {
        args.json(key, &name.json);
    }
}

fn kernel_name<'a>(data: &'a SnapshotData, used: &BlockUse) -> &'a str {
    data.gpu_work.as_ref().map_or("", |work| work.kernel(used.kernel))
}
