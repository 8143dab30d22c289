//! Firefox Profiler JSON (processed profile): balanced allocation records, a memory track, and scopes as markers.
//!
//! The file has the version 55 of the format; the profiler upgrades older versions. Mozilla's crate
//! `fxprof-processed-profile` 0.8 has no files, lines and inlined frames, and holds the whole profile in memory.

mod counter;
mod history;
mod markers;
mod tables;
#[cfg(test)]
mod tests;

use std::io::Write;

use self::counter::MemoryCounter;
use self::history::{AllocationRecord, BlockHistory};
use self::markers::{ProfileMarkers, SCHEMA};
use self::tables::ThreadTables;
use super::gathered::Gathered;
use super::viewers::devices;
use super::{Export, LeftOut};
use crate::analysis::device_or_main;
use crate::error::Error;
use crate::report::sampled;
use crate::snapshot::{Category, Device, DeviceSnapshot, SnapshotData};

/// A profile for the [Firefox Profiler](https://profiler.firefox.com), with a process, a thread and a memory track for each
/// device. *Retained memory* of any range is what was allocated in it and is live at its end.
///
/// From the beginning to the peak this is the report's peak, to the byte, and the marker `peak` has that range. What was live
/// when the log begins is allocated there. What has no records is known at the peak and at the end only: blocks below the
/// threshold appear at the peak with their size there, and change to their size at the end. In a sample the retained memory
/// is exact at the peak and an estimate elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Firefox {
    /// Only this device; all if `None`.
    pub device: Option<Device>,
}

impl Export for Firefox {
    fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
        let mut out = Gathered::new(out);
        self.meta(data, &mut out);
        out.put(",\"libs\":[],\"pages\":[],\"profilerOverhead\":[],\n\"threads\":[");
        let mut counters = Vec::new();
        for (number, device) in devices(data, self.device).enumerate() {
            out.put(if number > 0 { ",\n" } else { "\n" });
            let mut tables = ThreadTables::new(data);
            let history = BlockHistory::of(data, device, &mut tables);
            let markers = ProfileMarkers::of(data, device, &history, &mut tables);
            counters.push(MemoryCounter::of(&history.records));
            thread_head(data, device, number, &mut out);
            allocations(&history.records, &mut out)?;
            markers.write(&mut out)?;
            tables.write(&mut out)?;
            out.put("}");
        }
        out.put("],\n\"counters\":[");
        for (number, (device, counter)) in devices(data, self.device).zip(&counters).enumerate() {
            out.put(if number > 0 { ",\n" } else { "\n" });
            out.put("{\"name\":\"malloc\",\"category\":\"Memory\",\"description\":");
            out.text(&format!("live bytes on {}{}", device.device, sampled::behind(device.sample_interval())));
            out.put(format!(",\"mainThreadIndex\":{number},\"pid\":"));
            out.text(&process_id(data, number));
            counter.write(&mut out)?;
            out.put("}");
        }
        out.put("]}\n");
        out.finish()?;
        Ok(LeftOut::default())
    }
}

impl Firefox {
    fn meta(&self, data: &SnapshotData, out: &mut Gathered<'_>) {
        meta(data, out);
        let main = device_or_main(data, self.device).map(|main| main.device);
        let selected = devices(data, self.device).position(|device| Some(device.device) == main);
        out.put(",\"initialSelectedThreads\":[");
        out.numbers(selected.into_iter().map(|number| number as u64));
        out.put("]}");
    }
}

/// The profiler takes threads with equal ids for one process.
fn process_id(data: &SnapshotData, number: usize) -> String {
    let pid = data.process.pid;
    if number == 0 { pid.to_string() } else { format!("{pid}.{number}") }
}

fn meta(data: &SnapshotData, out: &mut Gathered<'_>) {
    let note = data.devices.iter().find_map(|device| sampled::note(device.sample_interval()));
    let note = note.map_or(String::new(), |note| format!(" ({note})"));
    out.put(
        "{\"meta\":{\"version\":24,\"preprocessedProfileVersion\":55,\"processType\":0,\"debug\":false,\"product\":",
    );
    out.text(&format!("{}{note}", data.process.program));
    out.put(concat!(",\"importedFrom\":\"memtrace ", env!("CARGO_PKG_VERSION"), "\",\"interval\":1,\"startTime\":"));
    out.millis(data.process.started_unix_us.saturating_mul(1000));
    out.put(",\"symbolicated\":true,\"usesOnlyOneStackType\":true,\"sourceCodeIsNotOnSearchfox\":true,");
    out.put("\"doesNotUseFrameImplementation\":true,\"pausedRanges\":[],");
    out.put("\"extensions\":{\"length\":0,\"baseURL\":[],\"id\":[],\"name\":[]},");
    out.put("\"sampleUnits\":{\"time\":\"ms\",\"eventDelay\":\"ms\",\"threadCPUDelta\":\"ns\"},\n\"categories\":[");
    out.put("{\"name\":\"Other\",\"color\":\"grey\",\"subcategories\":[\"Other\"]}");
    for category in Category::ALL {
        let (word, colour) = (category.word(), colour(category));
        out.put(format!(",{{\"name\":\"{word}\",\"color\":\"{colour}\",\"subcategories\":[\"Other\"]}}"));
    }
    out.put("],\n\"markerSchema\":");
    out.put(SCHEMA);
}

/// One of the profiler's colours, near to the usual one of the category.
fn colour(category: Category) -> &'static str {
    match category {
        Category::Parameter => "green",
        Category::OptimizerState => "yellow",
        Category::Input => "darkgray",
        Category::Temporary => "purple",
        Category::Activation => "red",
        Category::Gradient => "blue",
        Category::AutogradDetail => "lightblue",
        Category::Unknown => "grey",
        Category::KvCache => "orange",
        Category::Workspace => "brown",
    }
}

fn thread_head(data: &SnapshotData, device: &DeviceSnapshot, number: usize, out: &mut Gathered<'_>) {
    out.put("{\"name\":");
    out.text(&device.device.to_string());
    out.put(",\"processName\":");
    out.text(&format!("{} {}", data.process.program, device.device));
    out.put(",\"pid\":");
    out.text(&process_id(data, number));
    out.put(format!(",\"tid\":\"{}\"", number + 1));
    out.put(
        ",\"isMainThread\":true,\"processType\":\"default\",\"processStartupTime\":0,\"processShutdownTime\":null,",
    );
    out.put(
        "\"registerTime\":0,\"unregisterTime\":null,\"pausedRanges\":[],\"showMarkersInTimeline\":true,\n\"samples\":",
    );
    out.put(
        "{\"length\":0,\"weightType\":\"samples\",\"stack\":[],\"timeDeltas\":[],\"weight\":[],\"threadCPUDelta\":[]}",
    );
}

fn allocations(records: &[AllocationRecord], out: &mut Gathered<'_>) -> Result<(), Error> {
    out.put(format!(",\n\"nativeAllocations\":{{\"length\":{},\"weightType\":\"bytes\"", records.len()));
    out.column("time", records, |record, out| out.millis(record.time_ns))?;
    out.column("weight", records, |record, out| out.signed(record.bytes))?;
    out.column("stack", records, |record, out| out.number_or_null(record.stack))?;
    out.column("memoryAddress", records, |record, out| out.number(record.block))?;
    out.column("threadId", records, |_, out| out.put("0"))?;
    out.put("}");
    Ok(())
}
