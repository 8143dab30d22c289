//! Rows with named fields, for JSON.

use serde::Serialize;

use super::ranks::rows::{RankChangeRow, RankRow, SpreadRow};
use crate::analysis::{self, Breakdown, BreakdownTable, CostRow, DiffRow, Key, LiveSet, Part, Parts};
use crate::figures::figures;

/// The rows of a table, all of one type.
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
        /// The line, function, scope or other key.
        label: String = row.label.clone(),
        /// Bytes of its blocks.
        pub(crate) bytes: u64 = row.bytes,
        /// Number of its blocks; null if only bytes are known.
        count: Option<u64> = row.count,
        /// Median size of its blocks, in bytes; null if unknown.
        median_bytes: Option<u64> = row.count.map(|_| row.median),
        /// Bytes by purpose, in tables by line of the forward pass and by layer. Absent if unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        parts: Option<PartFigures> = cost.and_then(|cost| cost.parts.as_ref()).map(PartFigures::of),
        /// Size of its largest temporary block in the whole log, in bytes; 0 if there is none. Only in tables by line
        /// of the forward pass and by layer.
        #[serde(skip_serializing_if = "Option::is_none")]
        largest_temporary_bytes: Option<u64> = cost.map(|cost| cost.largest_temporary),
    }

    /// Bytes of a line or a layer, by purpose. They add up to the `bytes` of its row.
    pub(crate) struct PartFigures(parts: &Parts) {
        /// Bytes of trained weights.
        parameters: u64 = parts[Part::Parameters as usize],
        /// Bytes of gradients of parameters.
        gradients: u64 = parts[Part::Gradients as usize],
        /// Bytes that an optimizer keeps between steps.
        optimizer_state: u64 = parts[Part::OptimizerState as usize],
        /// Bytes that the forward pass allocated for the backward pass.
        activations: u64 = parts[Part::Activations as usize],
        /// Bytes that the backward pass allocated, except known gradients of parameters.
        backward_pass: u64 = parts[Part::BackwardPass as usize],
        /// All other bytes.
        other: u64 = parts[Part::Other as usize],
    }

    /// Live memory of one line, function or other key in two recordings or jobs.
    pub(crate) struct ChangeRow(row: &DiffRow) {
        /// The line, function or other key.
        label: String = row.label.clone(),
        /// `after_bytes` minus `before_bytes`.
        change_bytes: i64 = row.change(),
        /// Live bytes in the first recording or job.
        before_bytes: u64 = row.before,
        /// Live bytes in the second recording or job.
        after_bytes: u64 = row.after,
        /// Number of live blocks in the first recording or job; null if unknown.
        blocks_before: Option<u64> = row.blocks_before,
        /// Number of live blocks in the second recording or job; null if unknown.
        blocks_after: Option<u64> = row.blocks_after,
    }

    /// Live memory of one line, function or other key on all ranks of two jobs, each rank at its own peak.
    pub(crate) struct RanksDiffRow(row: ChangeRow, ranks: Option<&analysis::RanksDiffRow>) {
        #[serde(flatten)]
        row: ChangeRow = row,
        /// The rank whose bytes changed most; null in a row that sums other rows.
        most_rank: Option<u32> = ranks.map(|of| of.most_rank),
        /// Change of the bytes on this rank; null in a row that sums other rows.
        most_change_bytes: Option<i64> = ranks.map(|of| of.most_change),
    }
}

impl Row {
    pub(crate) fn all(breakdown: &Breakdown) -> Vec<Self> {
        breakdown.rows.iter().map(|row| Self::of(row, None)).collect()
    }

    /// The rows of a table, with the parts of their bytes if the table has any.
    pub(crate) fn all_of(table: &BreakdownTable, live: &LiveSet<'_>) -> Vec<Self> {
        match table.by {
            Key::ForwardLine | Key::Layer => {
                live.costs(table.by).iter().map(|cost| Self::of(&cost.row, Some(cost))).collect()
            }
            _ => Self::all(&table.of(live)),
        }
    }

    /// The first rows, and one row that sums the others.
    pub(super) fn first(mut all: Vec<Self>, rows: usize) -> Vec<Self> {
        Self::keep(&mut all, rows);
        all
    }

    /// Keeps the first rows, and sums the others in one row.
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

/// The lifetime of a block.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct BlockRow {
    /// Address of the block, in hexadecimal after `0x`.
    pub(crate) address: String,
    /// Real size of the block, in bytes.
    pub(crate) bytes: u64,
    /// When the block was allocated, in nanoseconds since the recording began; null if that was not seen.
    pub(crate) from_ns: Option<u64>,
    /// When the block was freed, in nanoseconds since the recording began; null if it is live.
    pub(crate) to_ns: Option<u64>,
    /// True if the block was live at the peak.
    pub(crate) at_peak: bool,
    /// Name of the block; null if it has none.
    pub(crate) name: Option<String>,
    /// Category of the block, as in PyTorch's memory timeline.
    pub(crate) category: String,
    /// The scope that allocated the block, with the scopes around it; null outside of scopes.
    pub(crate) scope: Option<String>,
    /// Source line that freed the block; null if unknown.
    pub(crate) freed_at: Option<String>,
}
