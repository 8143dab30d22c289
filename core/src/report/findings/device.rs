//! What frameworks, libraries and the driver do with the device's memory.

use super::finding::{Cost, Finding, is_large, lines};
use crate::analysis::{Churn, Row, by_allocator, by_operator, churn, fragmentation};
use crate::snapshot::{Device, DeviceSnapshot, SnapshotData};
use crate::units::{Bytes, grouped};

/// A framework has an allocator of its own.
pub(super) fn given_out_in_parts(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let rows = by_allocator(data, device).into_iter().filter(|row| is_large(row.bytes, device));
    let finding = |row: Row| Finding {
        kind: "given_out_in_parts",
        what: format!("{}'s allocator holds whole pages and gives tensors parts of them", row.label),
        line: None,
        cost: Cost::OfPeak(row.bytes),
        certainty: "Certain; how much of the pages is in use is not seen.",
        advice: lines(&["Ask that framework for its own figures, or let it give back what is unused."]),
    };
    rows.map(finding).collect()
}

/// A library such as cuBLAS holds much itself.
pub(super) fn one_library(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let Device::Cuda(_) = device.device else { return Vec::new() };
    let is_library = |label: &str| label.starts_with("(lib") && label.ends_with(')');
    let rows = by_operator(data, device).rows.into_iter();
    let large = rows.filter(|row| is_library(&row.label) && is_large(row.bytes, device));
    let finding = |row: Row| Finding {
        kind: "one_library",
        what: format!("{} allocates for itself", row.label.trim_matches(['(', ')'])),
        line: None,
        cost: Cost::OfPeak(row.bytes),
        certainty: "Certain: the library itself asked the driver for it.",
        advice: lines(&["Its workspace comes with its handle: use fewer handles, or give it a workspace of yours."]),
    };
    large.map(finding).collect()
}

/// The pool gives memory back whenever the program synchronises, and takes it again.
pub(super) fn release_threshold(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let churn = churn(device).filter(|churn| churn.ns.saturating_mul(100) >= data.process.duration_ns);
    let finding = |churn: Churn| Finding {
        kind: "release_threshold",
        what: format!("the driver's pool gave memory back and took {} again", Bytes(churn.bytes)),
        line: None,
        cost: Cost::Time(churn.ns),
        certainty: "Certain: that is the time of the calls that made the pool grow.",
        advice: vec![
            format!("Set the pool's release threshold to {}, so that it keeps them: the lines for", Bytes(churn.keep)),
            "that stand under *Time in the driver's allocator*.".to_owned(),
        ],
    };
    churn.map(finding).into_iter().collect()
}

/// What is free lies in pieces, and that may be why something was refused.
pub(super) fn fragmented(_: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let all = fragmentation(device);
    let in_holes = all.unused().saturating_sub(all.empty);
    // A single large one is room for what comes.
    let in_small_holes = in_holes.saturating_sub(all.largest_hole);
    let refused = device.ooms.last().is_some_and(|oom| oom.size > all.largest_hole && oom.size <= all.unused());
    if all.estimated || !refused && in_small_holes.saturating_mul(4) < all.reserved || in_holes == 0 {
        return Vec::new();
    }
    vec![Finding {
        kind: "fragmentation",
        what: format!(
            "{} holes between live blocks, the largest of {}",
            grouped(all.holes as u64),
            Bytes(all.largest_hole)
        ),
        line: None,
        cost: Cost::Unusable(if refused { in_holes } else { in_small_holes }),
        certainty: if refused {
            "Certain: an allocation was refused that is smaller than all that is unused."
        } else {
            "Certain that it is unused; smaller blocks may still fill it."
        },
        advice: lines(&["Allocate what stays before what goes, and large blocks first."]),
    }]
}
