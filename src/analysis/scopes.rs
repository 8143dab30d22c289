//! Memory by scope: what a scope held itself, and what the device held while it was open.

use std::collections::HashMap;

use crate::snapshot::{ContextId, DeviceSnapshot, SnapshotData};

/// One scope path.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    for block in &device.peak.blocks {
        *at_peak.entry(block.context).or_default() += block.size;
    }
    let mut rows: Vec<(Vec<u32>, ScopeRow)> = device
        .scopes
        .iter()
        .map(|stats| {
            let path = ids_of(data, stats.context);
            let row = ScopeRow {
                path: data.context_path(stats.context),
                depth: path.len(),
                name: data.contexts.get(stats.context.0 as usize).map(|n| n.name.clone()).unwrap_or_default(),
                at_peak: at_peak.get(&stats.context).copied().unwrap_or(0),
                own_peak: stats.own_peak,
                total_peak: stats.total_peak,
                calls: stats.calls,
                allocations: stats.allocations,
            };
            (path, row)
        })
        .collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// A context's path as numbers: sorting by it puts children below their parents.
fn ids_of(data: &SnapshotData, context: ContextId) -> Vec<u32> {
    let mut ids = Vec::new();
    let mut at = context;
    while at != ContextId::ROOT {
        ids.push(at.0);
        at = data.contexts.get(at.0 as usize).map_or(ContextId::ROOT, |node| node.parent);
    }
    ids.reverse();
    ids
}
