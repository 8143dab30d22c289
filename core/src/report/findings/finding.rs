//! The parts of a finding.

use std::fmt;

use serde::Serialize;

use crate::analysis::line_and_callers;
use crate::attribute::{Attribution, is_python};
use crate::report::device_memory::time;
use crate::snapshot::{Block, DeviceSnapshot, Weight, words};
use crate::units::{Bytes, grouped};

/// A finding: something that could be better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Finding {
    /// Its kind, such as `live_twice`; later versions may add kinds.
    #[cfg_attr(test, schemars(with = "String"))]
    pub kind: FindingKind,
    /// What is wrong.
    pub what: String,
    /// The line responsible, if there is one.
    pub line: Option<String>,
    /// What it costs.
    pub cost: Cost,
    /// How certain it is.
    pub confidence: Confidence,
    /// Why it is no more and no less certain.
    pub why: &'static str,
    /// How to fix it, in lines.
    pub advice: Vec<String>,
}

words! {
    /// What a finding is about. The table of docs/findings.md has a row for each.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum FindingKind {
        /// Blocks of one size replace each other, and the older one lives on.
        LiveTwice = "live_twice",
        /// An optimizer's step takes far more than its largest parameter.
        OptimizerTransient = "optimizer_transient",
        /// A graph's activations and intermediate results are kept to the end.
        KeptGraph = "kept_graph",
        /// A graph keeps intermediate results that no backward pass needs.
        KeptByVariables = "kept_by_variables",
        /// The graph of a loss lives on after its backward pass.
        KeptLoss = "kept_loss",
        /// Memory accumulates.
        Growth = "growth",
        /// An operator makes an n × n matrix from n values.
        Square = "square",
        /// A framework has an allocator of its own.
        GivenOutInParts = "given_out_in_parts",
        /// A library itself holds much.
        OneLibrary = "one_library",
        /// Blocks that no GPU operation uses any more.
        PastLastUse = "past_last_use",
        /// Blocks that no GPU operation ever uses.
        NeverUsed = "never_used",
        /// Blocks that are used for the first time later.
        AllocatedEarly = "allocated_early",
        /// Blocks that are written twice, and nothing reads them in between.
        WrittenTwice = "written_twice",
        /// Blocks that are not used for a long time.
        Idle = "idle",
        /// Outputs beside an input that nothing uses afterwards.
        InPlace = "in_place",
        /// Modules keep much for the backward pass.
        Checkpoint = "checkpoint",
        /// An operator's temporaries are far larger than its inputs and outputs.
        OperatorTemporaries = "operator_temporaries",
        /// The driver's pool gives memory back and takes it again.
        ReleaseThreshold = "release_threshold",
        /// What is reserved lies in holes.
        Fragmentation = "fragmentation",
    }
}

words! {
    /// How certain it is that the advice saves what the finding says.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Confidence {
        /// It follows from what was recorded, and the advice of this kind was followed in ten programs: each had the predicted peak,
        /// within a hundredth (`examples/llama/tests/followed.rs`).
        Certain = "certain",
        /// The figures follow from what was recorded; that it is a mistake, or what the advice saves, does not.
        Likely = "likely",
        /// The figures are certain, and the program may want it so: the advice trades time for memory.
        Possible = "possible",
    }
}

/// The cost of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Cost {
    /// Bytes of the peak.
    #[serde(rename = "peak_bytes")]
    OfPeak(u64),
    /// Bytes live at the end.
    #[serde(rename = "live_bytes")]
    AtEnd(u64),
    /// Bytes of the device that cannot be used.
    #[serde(rename = "unusable_bytes")]
    Unusable(u64),
    /// Nanoseconds.
    #[serde(rename = "ns")]
    Time(u64),
    /// Bytes written for nothing.
    #[serde(rename = "written_bytes")]
    Written(u64),
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OfPeak(bytes) => write!(f, "{} of the peak", Bytes(*bytes)),
            Self::AtEnd(bytes) => write!(f, "{} at the end", Bytes(*bytes)),
            Self::Unusable(bytes) => write!(f, "{} unusable", Bytes(*bytes)),
            Self::Time(ns) => f.write_str(&time(*ns)),
            Self::Written(bytes) => write!(f, "{} written in vain", Bytes(*bytes)),
        }
    }
}

impl Finding {
    /// How certain it is and why, as a sentence.
    pub fn certainty(&self) -> String {
        format!("{:?}: {}", self.confidence, self.why)
    }

    /// The finding as lines of text.
    pub(crate) fn lines(&self, number: usize) -> Vec<String> {
        let Self { cost, what, line, advice, .. } = self;
        let at = line.iter().map(|line| format!("at {line}"));
        let below = at.chain([self.certainty()]).chain(advice.iter().cloned()).map(|line| format!("   {line}"));
        [format!("{number}. {cost}: {what}")].into_iter().chain(below).collect()
    }

    /// Sort key: bytes before time.
    pub(super) fn rank(&self) -> (bool, u64) {
        let (is_memory, cost) = match self.cost {
            Cost::OfPeak(bytes) | Cost::AtEnd(bytes) | Cost::Unusable(bytes) => (true, bytes),
            Cost::Time(ns) => (false, ns),
            // At about 1 TB/s, so that it can be compared with time.
            Cost::Written(bytes) => (false, bytes / 1000),
        };
        (is_memory, cost)
    }
}

/// The advice in the program's language.
pub(super) fn in_its_language(data: &Attribution<'_>, rust: &[&str], python: &[&str]) -> Vec<String> {
    lines(if is_python(data) { python } else { rust })
}

pub(super) fn lines(text: &[&str]) -> Vec<String> {
    text.iter().map(|line| (*line).to_owned()).collect()
}

/// The peak that a replay found.
pub(super) fn then(peak: u64) -> String {
    format!("The peak would be {}.", exactly(peak))
}

/// The same where the advice may save more.
pub(super) fn then_at_most(peak: u64) -> String {
    format!("The peak would be at most {}.", exactly(peak))
}

/// The same where not all that it depends on is known.
pub(super) fn then_about(peak: u64) -> String {
    format!("The peak would be about {}.", Bytes(peak))
}

/// `1.000 GiB: 1,073,741,824 bytes`
pub(super) fn exactly(bytes: u64) -> String {
    format!("{}: {} bytes", Bytes(bytes), grouped(bytes))
}

/// Is it at least 10 % of the peak?
pub(super) fn is_large(bytes: u64, device: &DeviceSnapshot) -> bool {
    bytes > 0 && bytes >= device.peak.total() / 10
}

/// The number and bytes of these blocks and the largest of them, if they are large together.
pub(super) fn large<'a>(
    blocks: impl Iterator<Item = (&'a Block, Weight)>,
    device: &DeviceSnapshot,
) -> Option<(u64, u64, &'a Block)> {
    let blocks: Vec<(&Block, u64)> = blocks.map(|(block, weight)| (block, weight.bytes)).collect();
    let bytes = blocks.iter().map(|(_, bytes)| bytes).sum();
    let (largest, _) = blocks.iter().max_by_key(|(_, bytes)| *bytes).filter(|_| is_large(bytes, device))?;
    Some((blocks.len() as u64, bytes, largest))
}

pub(super) fn line_of(data: &Attribution<'_>, block: &Block) -> String {
    line_and_callers(data, block.stack, 0).concat()
}
