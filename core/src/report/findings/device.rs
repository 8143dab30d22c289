//! Findings on device memory held by frameworks, libraries and the driver.

use super::finding::{Confidence, Cost, Finding, FindingKind, is_large, lines};
use crate::analysis::{Churn, Key, Row, by_allocator, churn, fragmentation};
use crate::recording::DeviceView;
use crate::report::device_memory::library_need;
use crate::snapshot::Device;
use crate::units::{Bytes, capitalized, grouped};

/// A framework suballocates much of the device's memory.
pub(super) fn given_out_in_parts(device: &DeviceView<'_>) -> Vec<Finding> {
    let rows = by_allocator(device).into_iter().filter(|row| is_large(row.bytes, device));
    let finding = |row: Row| Finding {
        kind: FindingKind::GivenOutInParts,
        what: format!("{}'s allocator holds whole pages and hands out parts of them to tensors", row.label),
        line: None,
        cost: Cost::OfPeak(row.bytes),
        confidence: Confidence::Likely,
        why: "the pages are held; how much of them is in use is not known.",
        advice: lines(&["Query that framework's own memory statistics, or have it release unused pages."]),
    };
    rows.map(finding).collect()
}

/// A native library such as cuBLAS allocates much memory itself.
pub(super) fn one_library(device: &DeviceView<'_>) -> Vec<Finding> {
    fn name(row: &Row) -> &str {
        row.label.trim_matches(['(', ')'])
    }
    let Device::Cuda(_) = device.device else { return Vec::new() };
    let is_library = |label: &str| label.starts_with("(lib") && label.ends_with(')');
    let rows = device.by(Key::Operator).rows.iter();
    let large = rows.filter(|row| is_library(&row.label) && is_large(row.bytes, device));
    let finding = |row: &Row| Finding {
        kind: FindingKind::OneLibrary,
        what: format!("{} allocates memory for itself", name(row)),
        line: None,
        cost: Cost::OfPeak(row.bytes),
        confidence: Confidence::Likely,
        why: "the library itself called the driver.",
        advice: vec![capitalized(library_need(name(row)))],
    };
    large.map(finding).collect()
}

/// Pool churn: the pool releases memory at each synchronisation and reserves it again.
pub(super) fn release_threshold(device: &DeviceView<'_>) -> Vec<Finding> {
    let churn = churn(device).filter(|churn| churn.ns.saturating_mul(100) >= device.data().process.duration_ns);
    let finding = |churn: Churn| Finding {
        kind: FindingKind::ReleaseThreshold,
        what: format!("the driver's pool released memory and reserved {} again", Bytes(churn.bytes)),
        line: None,
        cost: Cost::Time(churn.ns),
        confidence: Confidence::Likely,
        why: "that is the time of the calls that made the pool grow.",
        advice: vec![
            format!(
                "Raise the pool's release threshold to {}, so that it keeps its memory; the section",
                Bytes(churn.keep)
            ),
            "*Time in the driver's allocator* has the code.".to_owned(),
        ],
    };
    churn.map(finding).into_iter().collect()
}

/// External fragmentation, which may be the reason for a refused allocation.
pub(super) fn fragmented(device: &DeviceView<'_>) -> Vec<Finding> {
    let all = fragmentation(device);
    let in_holes = all.unused().saturating_sub(all.empty);
    // The largest hole does not count, because it is still usable.
    let in_small_holes = in_holes.saturating_sub(all.largest_hole);
    let refused = device.ooms.last().is_some_and(|oom| oom.size > all.largest_hole && oom.size <= all.unused());
    if all.estimated || !refused && in_small_holes.saturating_mul(4) < all.reserved || in_holes == 0 {
        return Vec::new();
    }
    vec![Finding {
        kind: FindingKind::Fragmentation,
        what: format!(
            "{} holes between live blocks, the largest of {}",
            grouped(all.holes as u64),
            Bytes(all.largest_hole)
        ),
        line: None,
        cost: Cost::Unusable(if refused { in_holes } else { in_small_holes }),
        confidence: Confidence::Likely,
        why: if refused {
            "an allocation smaller than the unused memory was refused."
        } else {
            "it is unused; smaller blocks may still fill it."
        },
        advice: lines(&["Allocate long-lived blocks before short-lived ones, and large blocks first."]),
    }]
}
