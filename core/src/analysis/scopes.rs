//! Memory by scope: what a scope held itself, and what the device held while it was open.

use std::collections::HashMap;

use crate::snapshot::{ContextId, DeviceSnapshot, SnapshotData};

/// One scope path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScopeRow {
    /// Names from the outermost scope inwards, joined by ` > `; empty outside every scope.
    pub path: String,
    /// Nesting depth, from 1; 0 outside every scope.
    pub depth: usize,
    /// The scope's own name.
    pub name: String,
    /// Bytes live at the peak that were allocated directly in it, not in a scope inside it: these
    /// add up to the total.
    pub at_peak: u64,
    /// "Memory of this block": the most bytes live at once among what was allocated in it or inside it.
    pub own_peak: u64,
    /// "Total while in this block": the device's largest total while it was open.
    pub total_peak: Option<u64>,
    /// How often it was entered.
    pub calls: u64,
    /// Allocations in it or inside it.
    pub allocations: u64,
}

/// The scopes of a recording as a tree in the order of their first use, parents before children.
pub fn scopes(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<ScopeRow> {
    let mut at_peak: HashMap<ContextId, u64> = HashMap::new();
    for (block, weight) in device.peak_weights() {
        *at_peak.entry(block.context).or_default() += weight.bytes;
    }
    let mut rows: Vec<(Vec<ContextId>, ScopeRow)> = device
        .scopes
        .iter()
        .map(|stats| {
            let path = data.context_ids(stats.context);
            let row = ScopeRow {
                path: data.context_path(stats.context),
                depth: path.len(),
                name: data.context_names(stats.context).pop().unwrap_or_default().to_owned(),
                at_peak: at_peak.get(&stats.context).copied().unwrap_or(0),
                own_peak: stats.own_peak,
                total_peak: stats.total_peak,
                calls: stats.calls,
                allocations: stats.allocations,
            };
            (path, row)
        })
        .collect();
    // By path as numbers: children come below their parents.
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows.into_iter().map(|(_, row)| row).collect()
}
