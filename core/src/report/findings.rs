//! Findings: what could be better, what it costs, how sure that is, and what to do. Each kind is a function here, and its
//! row in [`KINDS`].

use std::collections::HashMap;
use std::fmt;

use super::device_memory::time;
use crate::analysis::{by_allocator, by_operator, churn, fragmentation, line_and_callers, live_twice};
use crate::attribute::Categories;
use crate::snapshot::{Block, Category, Device, DeviceSnapshot, SnapshotData, StackId};
use crate::units::{Bytes, grouped};

/// What could be better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which kind: `live_twice`, `optimizer_transient`, `kept_graph`, `given_out_in_parts`, `one_library`,
    /// `release_threshold`, `fragmentation`.
    pub kind: &'static str,
    /// What was found.
    pub what: String,
    /// The line, or nothing if it is in no one place.
    pub place: String,
    /// What it costs.
    pub cost: Cost,
    /// How sure it is, and why.
    pub certainty: &'static str,
    /// What to do about it, in lines.
    pub advice: Vec<String>,
}

/// What a finding costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Bytes of the peak.
    OfPeak(u64),
    /// Bytes that are live at the end.
    AtEnd(u64),
    /// Bytes of the device that nobody can use.
    Unusable(u64),
    /// Nanoseconds.
    Time(u64),
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfPeak(bytes) => write!(f, "{} of the peak", Bytes(*bytes)),
            Self::AtEnd(bytes) => write!(f, "{} at the end", Bytes(*bytes)),
            Self::Unusable(bytes) => write!(f, "{} unusable", Bytes(*bytes)),
            Self::Time(ns) => f.write_str(&time(*ns)),
        }
    }
}

impl Cost {
    /// Bytes before time, the most first.
    fn rank(self) -> (bool, u64) {
        match self {
            Self::OfPeak(bytes) | Self::AtEnd(bytes) | Self::Unusable(bytes) => (true, bytes),
            Self::Time(ns) => (false, ns),
        }
    }
}

type Kind = fn(&SnapshotData, &DeviceSnapshot) -> Vec<Finding>;

const KINDS: [Kind; 7] =
    [twice, optimizer_transient, kept_graph, given_out_in_parts, one_library, release_threshold, fragmented];

/// What was found on a device, the most expensive first.
pub fn findings(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let mut found: Vec<Finding> = KINDS.iter().flat_map(|find| find(data, device)).collect();
    found.sort_by_key(|finding| std::cmp::Reverse(finding.cost.rank()));
    found
}

fn lines(text: &[&str]) -> Vec<String> {
    text.iter().map(|line| (*line).to_owned()).collect()
}

/// Is it at least a tenth of the peak?
fn is_large(bytes: u64, device: &DeviceSnapshot) -> bool {
    bytes > 0 && bytes >= device.peak.total() / 10
}

/// A tensor lives on although another has taken its name.
fn twice(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let saved = |then: Option<u64>, older| then.map_or(older, |then| device.peak.bytes.saturating_sub(then));
    let rows = live_twice(data, device).into_iter();
    let large = rows.filter(|row| is_large(saved(row.peak_without, row.older), device));
    let finding = |row: crate::analysis::LiveTwice| Finding {
        kind: "live_twice",
        what: format!("{} blocks of {} that take each other's place", grouped(row.count), Bytes(row.size)),
        place: row.lines.join(", then "),
        cost: Cost::OfPeak(saved(row.peak_without, row.older)),
        certainty: "Likely: they were freed as variables are at a function's end; whether the older are read is not seen.",
        advice: lines(&["Drop each when the next one is there: `let mut x = …; x = f(&x)?;`."]),
    };
    large.map(finding).collect()
}

/// `AdamW::step` works with variables, so that each of its intermediate results keeps the one before it.
fn optimizer_transient(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let mut in_step: HashMap<StackId, bool> = HashMap::new();
    let is_step = |function: &str| function.contains("AdamW") && function.ends_with("step");
    let mut in_step =
        |stack| *in_step.entry(stack).or_insert_with(|| data.stacks.frames(stack).any(|f| is_step(&f.function)));
    let categories = Categories::of(data, device);
    let is_transient = |block: &Block| {
        !matches!(categories.get(block.seq), Category::OptimizerState | Category::Parameter)
            && device.name(block.seq).is_none()
    };
    let blocks: Vec<(&Block, u64)> = device
        .peak_weights()
        .filter(|(block, _)| in_step(block.stack) && is_transient(block))
        .map(|(block, weight)| (block, weight.bytes))
        .collect();
    let bytes = blocks.iter().map(|(_, bytes)| bytes).sum();
    let Some(largest) = blocks.iter().map(|(block, _)| block).max_by_key(|block| block.size) else { return Vec::new() };
    if !is_large(bytes, device) || bytes < 8 * largest.size {
        return Vec::new();
    }
    vec![Finding {
        kind: "optimizer_transient",
        what: format!("AdamW::step holds {} times its largest parameter for a moment", bytes / largest.size.max(1)),
        place: line_and_callers(data, largest.stack, 0).concat(),
        cost: Cost::OfPeak(bytes),
        certainty: "Certain: these blocks were allocated by the step and are live at the peak.",
        advice: lines(&[
            "candle computes the step with variables, so each result keeps the one before it.",
            "A step of your own on `var.as_detached_tensor()` needs 4 times instead (docs/findings.md).",
        ]),
    }]
}

/// What a forward pass made is live at the end.
fn kept_graph(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let categories = Categories::of(data, device);
    let of_graph = |block: &Block| matches!(categories.get(block.seq), Category::Activation | Category::AutogradDetail);
    let blocks: Vec<(&Block, u64)> = device
        .live_weights()
        .filter(|(block, _)| of_graph(block))
        .map(|(block, weight)| (block, weight.bytes))
        .collect();
    let bytes = blocks.iter().map(|(_, bytes)| bytes).sum();
    let largest = blocks.iter().max_by_key(|(_, bytes)| *bytes).filter(|_| is_large(bytes, device));
    let finding = |(block, _): &(&Block, u64)| Finding {
        kind: "kept_graph",
        what: format!("{} activations and intermediate results of a backward pass", grouped(blocks.len() as u64)),
        place: line_and_callers(data, block.stack, 0).concat(),
        cost: Cost::AtEnd(bytes),
        certainty: "Certain that they are live; a graph that will still be used is no mistake.",
        advice: lines(&[
            "A loss or a gradient that is kept keeps its graph: keep `loss.to_scalar()` or",
            "`tensor.detach()`, and drop the `GradStore` (docs/findings.md).",
        ]),
    };
    largest.map(finding).into_iter().collect()
}

/// A framework has an allocator of its own.
fn given_out_in_parts(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let rows = by_allocator(data, device).into_iter().filter(|row| is_large(row.bytes, device));
    let finding = |row: crate::analysis::Row| Finding {
        kind: "given_out_in_parts",
        what: format!("{}'s allocator holds whole pages and gives tensors parts of them", row.label),
        place: String::new(),
        cost: Cost::OfPeak(row.bytes),
        certainty: "Certain; how much of the pages is in use is not seen.",
        advice: lines(&["Ask that framework for its own figures, or let it give back what is unused."]),
    };
    rows.map(finding).collect()
}

/// A library such as cuBLAS holds much itself.
fn one_library(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let Device::Cuda(_) = device.device else { return Vec::new() };
    let is_library = |label: &str| label.starts_with("(lib") && label.ends_with(')');
    let rows = by_operator(data, device).rows.into_iter();
    let large = rows.filter(|row| is_library(&row.label) && is_large(row.bytes, device));
    let finding = |row: crate::analysis::Row| Finding {
        kind: "one_library",
        what: format!("{} allocates for itself", row.label.trim_matches(['(', ')'])),
        place: String::new(),
        cost: Cost::OfPeak(row.bytes),
        certainty: "Certain: the library itself asked the driver for it.",
        advice: lines(&["Its workspace comes with its handle: use fewer handles, or give it a workspace of yours."]),
    };
    large.map(finding).collect()
}

/// The pool gives memory back whenever the program synchronises, and takes it again.
fn release_threshold(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let churn = churn(device).filter(|churn| churn.ns.saturating_mul(100) >= data.process.duration_ns);
    let finding = |churn: crate::analysis::Churn| Finding {
        kind: "release_threshold",
        what: format!("the driver's pool gave memory back and took {} again", Bytes(churn.bytes)),
        place: String::new(),
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
fn fragmented(_: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let all = fragmentation(device);
    let in_holes = all.unused().saturating_sub(all.empty);
    let refused = device.ooms.last().is_some_and(|oom| oom.size > all.largest_hole && oom.size <= all.unused());
    if all.estimated || !refused && in_holes.saturating_mul(4) < all.reserved || in_holes == 0 {
        return Vec::new();
    }
    vec![Finding {
        kind: "fragmentation",
        what: format!(
            "{} holes between live blocks, the largest of {}",
            grouped(all.holes as u64),
            Bytes(all.largest_hole)
        ),
        place: String::new(),
        cost: Cost::Unusable(in_holes),
        certainty: if refused {
            "Certain: an allocation was refused that is smaller than all that is unused."
        } else {
            "Certain that it is unused; smaller blocks may still fill it."
        },
        advice: lines(&["Allocate what stays before what goes, and large blocks first."]),
    }]
}
