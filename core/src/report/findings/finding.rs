//! The parts of a finding.

use std::fmt;

use serde::Serialize;

use crate::attribute::Attribution;
use crate::report::device_memory::time;
use crate::snapshot::{Block, DeviceSnapshot, Weight, words};
use crate::units::{Bytes, grouped};

/// A finding: something that could be better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct Finding {
    /// Kind of the finding, such as `live_twice`. Later versions may add kinds.
    #[cfg_attr(test, schemars(with = "String"))]
    pub kind: FindingKind,
    /// What is wrong.
    pub what: String,
    /// Source line that is responsible; null if there is none.
    pub line: Option<String>,
    /// The cost, in bytes or nanoseconds.
    pub cost: Cost,
    /// How certain the finding is.
    pub confidence: Confidence,
    /// The reason for the confidence.
    pub why: &'static str,
    /// How to fix it, as lines of text.
    pub advice: Vec<String>,
}

words! {
    /// The kinds of findings. The table of docs/findings.md has a row for each.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    #[non_exhaustive]
    pub enum FindingKind {
        /// Blocks of one size replace each other, and the older one stays live.
        LiveTwice = "live_twice",
        /// An optimizer's step takes far more than its largest parameter.
        OptimizerTransient = "optimizer_transient",
        /// A graph's activations and intermediate results are kept to the end.
        KeptGraph = "kept_graph",
        /// A graph keeps intermediate results that no backward pass needs.
        KeptByVariables = "kept_by_variables",
        /// The graph of a loss stays alive after its backward pass.
        KeptLoss = "kept_loss",
        /// Memory accumulates.
        Growth = "growth",
        /// An operator makes an n × n matrix from n values.
        Square = "square",
        /// A framework suballocates the memory.
        GivenOutInParts = "given_out_in_parts",
        /// A library allocates much memory itself.
        OneLibrary = "one_library",
        /// Blocks that no GPU operation uses any more.
        PastLastUse = "past_last_use",
        /// Blocks that no GPU operation ever uses.
        NeverUsed = "never_used",
        /// Blocks that are allocated long before their first use.
        AllocatedEarly = "allocated_early",
        /// Blocks that are written twice with nothing reading them in between.
        WrittenTwice = "written_twice",
        /// Blocks that are not used for a long time.
        Idle = "idle",
        /// Outputs next to an input that nothing uses afterwards.
        InPlace = "in_place",
        /// Modules keep much for the backward pass.
        Checkpoint = "checkpoint",
        /// An operator's temporaries are far larger than its inputs and outputs.
        OperatorTemporaries = "operator_temporaries",
        /// The driver's pool releases memory and reserves it again.
        ReleaseThreshold = "release_threshold",
        /// Much of the reserved memory lies in holes.
        Fragmentation = "fragmentation",
    }
}

words! {
    /// How certain it is that the advice saves the cost of the finding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Confidence {
        /// The figures follow from the recording. Ten programs that followed advice of this kind then had the predicted
        /// peak, within a hundredth (`examples/llama/tests/followed.rs`).
        Certain = "certain",
        /// The figures follow from the recording. The recording does not show whether the program is wrong, or how much
        /// the advice saves.
        Likely = "likely",
        /// The figures are certain. The program may still be as intended, because the advice trades time for memory.
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
    /// Time in nanoseconds.
    #[serde(rename = "ns")]
    Time(u64),
    /// Bytes that were written in vain.
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
    /// The confidence and its reason, as a sentence.
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

    /// The key by which findings are sorted: any cost in bytes of memory is above any cost in time.
    pub(super) fn rank(&self) -> (bool, u64) {
        let (is_memory, cost) = match self.cost {
            Cost::OfPeak(bytes) | Cost::AtEnd(bytes) | Cost::Unusable(bytes) => (true, bytes),
            Cost::Time(ns) => (false, ns),
            // Converted to nanoseconds, at 1000 bytes per nanosecond (1 TB/s), so that it can be compared with time.
            Cost::Written(bytes) => (false, bytes / 1000),
        };
        (is_memory, cost)
    }
}

/// The advice in the program's language, which is Rust or Python.
pub(super) fn in_its_language(data: &Attribution<'_>, rust: &[&str], python: &[&str]) -> Vec<String> {
    lines(if data.is_python() { python } else { rust })
}

pub(super) fn lines(text: &[&str]) -> Vec<String> {
    text.iter().map(|line| (*line).to_owned()).collect()
}

/// A sentence on the peak that was found by replaying the log as if the advice had been followed.
pub(super) fn then(peak: u64) -> String {
    format!("The peak would be {}.", exactly(peak))
}

/// The same sentence, if the advice may save more.
pub(super) fn then_at_most(peak: u64) -> String {
    format!("The peak would be at most {}.", exactly(peak))
}

/// The same sentence, if the peak also depends on something unknown.
pub(super) fn then_about(peak: u64) -> String {
    format!("The peak would be about {}.", Bytes(peak))
}

/// `1.000 GiB: 1,073,741,824 bytes`
pub(super) fn exactly(bytes: u64) -> String {
    format!("{}: {} bytes", Bytes(bytes), grouped(bytes))
}

/// Are these bytes at least 10 % of the peak?
pub(super) fn is_large(bytes: u64, device: &DeviceSnapshot) -> bool {
    bytes > 0 && bytes >= device.peak.total() / 10
}

/// The number and bytes of these blocks and the largest of them, if together they are large.
pub(super) fn large<'a>(
    blocks: impl Iterator<Item = (&'a Block, Weight)>,
    device: &DeviceSnapshot,
) -> Option<(u64, u64, &'a Block)> {
    let blocks: Vec<(&Block, u64)> = blocks.map(|(block, weight)| (block, weight.bytes)).collect();
    let bytes = blocks.iter().map(|(_, bytes)| bytes).sum();
    let (largest, _) = blocks.iter().max_by_key(|(_, bytes)| *bytes).filter(|_| is_large(bytes, device))?;
    Some((blocks.len() as u64, bytes, largest))
}
