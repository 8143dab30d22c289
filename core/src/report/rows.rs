//! Rows with named fields, as JSON has them.

use serde::Serialize;

use super::ranks::rows::{RankChangeRow, RankRow, SpreadRow};
use crate::analysis::{self, Breakdown, BreakdownTable, CostRow, DiffRow, Key, LiveSet, Part, Parts};
use crate::figures::figures;

/// The rows of a section.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub(crate) enum NamedRows {
    Live(Vec<Row>),
    Changes(Vec<ChangeRow>),
    Blocks(Vec<BlockRow>),
    Ranks(Vec<RankRow>),
    Spread(Vec<SpreadRow>),
    RankChanges(Vec<RankChangeRow>),
    RanksDiff(Vec<RanksDiffRow>),
}

figures! {
    /// Live memory of one line, function, scope or other key.
    pub(crate) struct Row(row: &analysis::Row, cost: Option<&CostRow>) {
        /// The key.
        label: String = row.label.clone(),
        /// Bytes of its blocks.
        pub(crate) bytes: u64 = row.bytes,
        /// Number of its blocks; null if only bytes are known.
        count: Option<u64> = row.count,
        /// Median size of its blocks.
        median_bytes: Option<u64> = row.count.map(|_| row.median),
        /// Of a line of the forward pass or a layer, what the bytes are for; absent if that is not known.
        #[serde(skip_serializing_if = "Option::is_none")]
        parts: Option<PartFigures> = cost.and_then(|cost| cost.parts.as_ref()).map(PartFigures::of),
        /// Of these, the largest block of the whole log that they need for a moment only.
        #[serde(skip_serializing_if = "Option::is_none")]
        largest_temporary_bytes: Option<u64> = cost.map(|cost| cost.largest_temporary),
    }

    /// What memory of a line or a layer is for. The figures add up to its bytes.
    pub(crate) struct PartFigures(parts: &Parts) {
        /// Trained weights.
        parameters: u64 = parts[Part::Parameters as usize],
        /// Gradients of parameters.
        gradients: u64 = parts[Part::Gradients as usize],
        /// What an optimizer keeps between steps.
        optimizer_state: u64 = parts[Part::OptimizerState as usize],
        /// Allocated by the forward pass for the backward pass.
        activations: u64 = parts[Part::Activations as usize],
        /// Allocated by the backward pass, known gradients of parameters not included.
        backward_pass: u64 = parts[Part::BackwardPass as usize],
        /// Anything else.
        other: u64 = parts[Part::Other as usize],
    }

    /// What one key holds before and after.
    pub(crate) struct ChangeRow(row: &DiffRow) {
        /// The key.
        label: String = row.label.clone(),
        /// `after_bytes` minus `before_bytes`.
        change_bytes: i64 = row.change(),
        /// Bytes in the first recording.
        before_bytes: u64 = row.before,
        /// Bytes in the second one.
        after_bytes: u64 = row.after,
        /// Number of blocks in the first recording; null if unknown.
        blocks_before: Option<u64> = row.blocks_before,
        /// Number of blocks in the second one; null if unknown.
        blocks_after: Option<u64> = row.blocks_after,
    }

    /// What one key holds on all ranks before and after, each at its own peak.
    pub(crate) struct RanksDiffRow(row: ChangeRow, ranks: Option<&analysis::RanksDiffRow>) {
        #[serde(flatten)]
        row: ChangeRow = row,
        /// The rank whose part changed most; null of a row that sums others.
        most_rank: Option<u32> = ranks.map(|of| of.most_rank),
        /// The change of its part.
        most_change_bytes: Option<i64> = ranks.map(|of| of.most_change),
    }
}

impl Row {
    pub(crate) fn all(breakdown: &Breakdown) -> Vec<Self> {
        breakdown.rows.iter().map(|row| Self::of(row, None)).collect()
    }

    /// The rows of a table, with their parts where they have any.
    pub(crate) fn all_of(table: &BreakdownTable, live: &LiveSet<'_>) -> Vec<Self> {
        match table.by {
            Key::ForwardLine | Key::Layer => {
                live.costs(table.by).iter().map(|cost| Self::of(&cost.row, Some(cost))).collect()
            }
            _ => Self::all(&table.of(live)),
        }
    }

    /// The first rows, and the others as one.
    pub(super) fn first(mut all: Vec<Self>, rows: usize) -> Vec<Self> {
        Self::keep(&mut all, rows);
        all
    }

    /// Keeps the first rows, and sums the others in one.
    pub(crate) fn keep(all: &mut Vec<Self>, rows: usize) {
        let rest = all.split_off(rows.min(all.len()));
        if !rest.is_empty() {
            let label = format!("({} smaller rows)", rest.len());
            let bytes = rest.iter().map(|row| row.bytes).sum();
            let count = rest.iter().map(|row| row.count).sum();
            all.push(Self { label, bytes, count, median_bytes: None, parts: None, largest_temporary_bytes: None });
        }
    }
}

/// The life of a block.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct BlockRow {
    /// Its address, hexadecimal after `0x`.
    pub(crate) address: String,
    /// Its real size.
    pub(crate) bytes: u64,
    /// When it was allocated, in nanoseconds since the recording began; null if that was not seen.
    pub(crate) from_ns: Option<u64>,
    /// When it was freed; null if it is live.
    pub(crate) to_ns: Option<u64>,
    /// It was live at the peak.
    pub(crate) at_peak: bool,
    /// Its name.
    pub(crate) name: Option<String>,
    /// Its category, in torch.profiler's words.
    pub(crate) category: String,
    /// Its scope with those around it; null outside of scopes.
    pub(crate) scope: Option<String>,
    /// The line that freed it; null if unknown.
    pub(crate) freed_at: Option<String>,
}
