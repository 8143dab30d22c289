//! Findings from uses of blocks: memory that no GPU operation needs at the peak, and writes that nothing reads.

use std::collections::BTreeMap;

use super::finding::{Cost, Finding, lines};
use crate::analysis::{Waste, WasteKind, line_and_callers, waste};
use crate::report::device_memory::time;
use crate::snapshot::{DeadWrite, DeviceSnapshot, SnapshotData, StackId};
use crate::units::{Bytes, grouped};

/// Memory that could be freed earlier, allocated later, or not at all.
pub(super) fn wasted(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    waste(data, device).iter().map(wasted_by).collect()
}

fn wasted_by(row: &Waste) -> Finding {
    let blocks = match row.blocks {
        1 => Bytes(row.bytes).to_string(),
        count => format!("{} in {} blocks", Bytes(row.bytes), grouped(count)),
    };
    let (what, advice) = match row.kind {
        WasteKind::PastLastUse => {
            (format!("{blocks}, held {} after the last use, by {}", time(row.idle_ns), row.kernel), after(row))
        }
        WasteKind::NeverUsed => (
            format!("{blocks} that no GPU operation uses"),
            vec!["Do not allocate this memory, or allocate it where it is needed.".to_owned()],
        ),
        WasteKind::Early => (
            format!("{blocks}, allocated {} before the first use, by {}", time(row.idle_ns), row.kernel),
            vec![match &*row.use_line {
                "" => "Allocate this memory where it is used first.".to_owned(),
                line => format!("Allocate this memory where it is used first: {line}."),
            }],
        ),
    };
    let then = format!("The peak would be {}: {} bytes.", Bytes(row.peak_without), grouped(row.peak_without));
    Finding {
        kind: match row.kind {
            WasteKind::PastLastUse => "past_last_use",
            WasteKind::NeverUsed => "never_used",
            WasteKind::Early => "allocated_early",
        },
        what,
        line: Some(row.line.clone()).filter(|line| !line.is_empty()),
        cost: Cost::OfPeak(row.saves),
        certainty: "Certain: every operation in between is known, and none gets the address.",
        advice: advice.into_iter().chain([then]).collect(),
    }
}

fn after(row: &Waste) -> Vec<String> {
    match &*row.use_line {
        "" => lines(&["Drop the value after its last use, or end its scope there."]),
        line => vec![
            format!("Drop the value after its last use at {line}:"),
            "`drop(x)`, or a block that ends there.".to_owned(),
        ],
    }
}

/// Blocks that are filled or copied to twice before anything reads them.
pub(super) fn written_twice(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let Some(work) = &data.gpu_work else { return Vec::new() };
    let mut sites: BTreeMap<(StackId, u32, u32), (u64, u64)> = BTreeMap::new();
    for uses in &device.uses {
        let Some(DeadWrite { bytes, first, second, stack }) =
            uses.dead_write.filter(|dead| dead.stack != StackId::NONE)
        else {
            continue;
        };
        let (all, count) = sites.entry((stack, first.0, second.0)).or_default();
        *all = all.saturating_add(bytes);
        *count += 1;
    }
    let most = sites.into_iter().max_by_key(|(_, (bytes, _))| *bytes);
    let finding = |((stack, first, second), (bytes, count)): ((StackId, u32, u32), (u64, u64))| {
        let name = |id| work.kernel(crate::snapshot::KernelId(id));
        Finding {
            kind: "written_twice",
            what: format!(
                "{} times {} writes a block that {} then overwrites, and nothing reads it in between",
                grouped(count),
                name(first),
                name(second)
            ),
            line: Some(line_and_callers(data, stack, 0).concat()),
            cost: Cost::Written(bytes),
            certainty: "Certain: no operation in between gets the address.",
            advice: lines(&[
                "Allocate without filling where an upload or a copy follows: build the tensor from its data.",
            ]),
        }
    };
    most.filter(|(_, (bytes, _))| *bytes >= device.peak.bytes / 10).map(finding).into_iter().collect()
}
