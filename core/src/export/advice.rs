//! Annotations from uses of blocks: when memory that is live at the peak is not needed, and what to do about it.

use std::num::NonZeroU64;

use crate::analysis::{IdleMemory, Waste, WasteKind, idle_memory, waste};
use crate::recording::DeviceView;
use crate::snapshot::{BlockUse, DeviceSnapshot};
use crate::units::Bytes;

/// The beginning of the name of every advice. By this, the import of a snapshot distinguishes advice from scopes.
pub(super) const PREFIX: &str = "memtrace advice: ";

/// A time span in which the blocks of one allocation site are not needed. It includes the device's peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    /// What is not needed, with its source lines.
    pub(super) name: String,
    /// The peak without these blocks and the blocks of all earlier advice.
    pub(super) peak_without: u64,
}

/// The advice on a device, in the order of the analysis.
pub(super) fn advice(device: &DeviceView<'_>) -> Vec<Advice> {
    let (waste, idle) = (waste(device), idle_memory(device));
    waste.iter().map(of_waste).chain(idle.iter().map(of_idle)).collect()
}

fn of_waste(row: &Waste) -> Advice {
    let why = match row.kind {
        WasteKind::PastLastUse => format!("past the last use, {}", at(&row.kernel, &row.use_line)),
        WasteKind::NeverUsed => "never used".to_owned(),
        WasteKind::Early => format!("before the first use, {}", at(&row.kernel, &row.use_line)),
    };
    Advice {
        from_ns: row.from_ns,
        until_ns: row.until_ns,
        name: format!("{PREFIX}{} of {} {why}", Bytes(row.bytes), row.line),
        peak_without: row.peak_without,
    }
}

fn of_idle(row: &IdleMemory) -> Advice {
    let until = match &*row.kernel {
        "" => String::new(),
        kernel => format!(" until {}", at(kernel, &row.use_line)),
    };
    Advice {
        from_ns: row.from_ns,
        until_ns: row.until_ns,
        name: format!("{PREFIX}{} of {} idle{until}", Bytes(row.bytes), row.line),
        peak_without: row.peak_without,
    }
}

fn at(kernel: &str, line: &str) -> String {
    if line.is_empty() { kernel.to_owned() } else { format!("{kernel} at {line}") }
}

/// The last use of the block with this sequence number, if no later operation can have used it.
pub(super) fn last_use(device: &DeviceSnapshot, seq: Option<NonZeroU64>) -> Option<&BlockUse> {
    device.uses_of(seq).and_then(|uses| uses.known_last())
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::naive_unpickle::unpickle;
    use super::super::{ChromeTrace, Export, Pickle};
    use super::*;
    use crate::snapshot::testing::{LINE_7, LINE_9, Story};
    use crate::snapshot::{BlockUses, GpuWork, KernelId, SnapshotData};

    /// The last use of `w` is at 1.5 µs. It is live over the peak at 2 µs, and freed at 4 µs.
    fn program() -> SnapshotData {
        let mut story = Story::cuda(0);
        story.at(1_000).alloc("w", 4096).on(LINE_7).at(2_000).alloc("y", 8192).on(LINE_9);
        story.at(3_000).free("y").at(4_000).free("w");
        let mut data = story.lasting(2_000_000).build();
        let used = |seq: u64, operation, time_ns, after_alloc| {
            let used =
                BlockUse { operation, time_ns, after_alloc, stack: LINE_9, kernel: KernelId(0), ..BlockUse::default() };
            let new = BlockUses::new(NonZeroU64::new(seq).unwrap(), operation - 1);
            BlockUses { count: 1, first: Some(used), last: Some(used), ..new }
        };
        data.devices[0].uses = vec![used(1, 1, 1_500, 1), used(2, 2, 2_500, 2)];
        data.gpu_work = Some(GpuWork { kernels: vec!["norm".into()], ..GpuWork::default() });
        data
    }

    const NAME: &str = "4.000 KiB of src/model.rs:7 (Net::forward) past the last use, norm at src/main.rs:9 (net::pad)";

    #[test]
    fn a_snapshot_has_the_advice_as_an_annotation_that_is_no_scope() {
        let data = program();
        let mut pickle = Vec::new();
        Pickle::default().write(&data, &mut pickle).unwrap();
        let annotations = unpickle(&pickle).at("external_annotations").list();
        let told: Vec<(String, String, u64)> = annotations
            .iter()
            .map(|row| (row.at("stage").text(), row.at("name").text(), row.at("time_us").int() as u64))
            .collect();
        let (name, start) = (format!("{PREFIX}{NAME}"), data.process.started_unix_us);
        let stage = |word: &str, us| (word.to_owned(), name.clone(), start + us);
        assert_eq!(told, [stage("START", 1), stage("END", 4)]);
        let read = crate::ReadOptions::default().parse(&pickle).unwrap();
        assert!(read.contexts.iter().all(|context| !context.name.contains("advice")), "{:?}", read.contexts);
    }

    #[test]
    fn a_timeline_has_the_advice_as_instants_and_the_last_use_beside_the_free() {
        let mut trace = Vec::new();
        ChromeTrace::default().write(&program(), &mut trace).unwrap();
        let trace: Value = serde_json::from_slice(&trace).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let advice: Vec<(&str, f64)> = events
            .iter()
            .filter(|event| event["cat"] == "advice")
            .map(|event| (event["name"].as_str().unwrap(), event["ts"].as_f64().unwrap()))
            .collect();
        let named = |edge: &str| format!("cuda:0: {NAME}: {edge}");
        assert_eq!(advice, [(&*named("begins"), 1.5), (&*named("ends"), 4.0)]);
        let last: Vec<&str> = events.iter().filter_map(|event| event["args"]["last used by"].as_str()).collect();
        assert_eq!(last, ["norm", "norm"], "of both frees");
    }
}
