//! Scopes with their statistics, and operator calls.

use std::collections::HashMap;
use std::io;

use memtrace_core::DeviceView;
use memtrace_core::analysis::operators as operators_of;
use memtrace_core::snapshot::{ContextId, ScopeStats};

use crate::tables::ColumnKind::{Flag, Number, Rising, Text};
use crate::tables::{RunTables, TableSpec, TableWriter};

pub(super) const SCOPES: TableSpec = TableSpec {
    name: "scopes",
    columns: &[
        ("device", Text),
        ("scope", Number),
        ("parent", Number),
        ("name", Text),
        ("path", Text),
        ("is_module", Flag),
        ("calls", Number),
        ("allocations", Number),
        ("allocated_bytes", Number),
        ("own_peak_bytes", Number),
        ("total_peak_bytes", Number),
    ],
};

/// A row for each scope and device; scope 0 is outside of all scopes.
pub(super) fn scopes(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    for device in &run.data.devices {
        let name = device.device.to_string();
        let of_context: HashMap<ContextId, &ScopeStats> =
            device.scopes.iter().map(|stats| (stats.context, stats)).collect();
        for (number, node) in (0u32..).zip(&run.data.contexts) {
            let stats = of_context.get(&ContextId(number));
            let path = run.data.context_path(ContextId(number));
            out.row(&[
                (&name).into(),
                number.into(),
                (number > 0).then_some(node.parent.0).into(),
                (&node.name).into(),
                (&path).into(),
                node.module.into(),
                stats.map(|stats| stats.calls).into(),
                stats.map(|stats| stats.allocations).into(),
                stats.map(|stats| stats.allocated_bytes).into(),
                stats.map(|stats| stats.own_peak).into(),
                stats.and_then(|stats| stats.total_peak).into(),
            ])?;
        }
    }
    Ok(())
}

pub(super) const OPERATORS: TableSpec = TableSpec {
    name: "operators",
    columns: &[
        ("device", Text),
        ("operator", Text),
        ("is_backward", Flag),
        ("number", Number),
        ("scope_path", Text),
        ("line", Text),
        ("thread", Number),
        ("begin_ns", Rising),
        ("end_ns", Rising),
        ("allocations", Number),
        ("added_bytes", Number),
        ("before_bytes", Number),
        ("peak_bytes", Number),
        ("after_bytes", Number),
        ("reserved_bytes", Number),
    ],
};

/// A row for each call of an operator.
pub(super) fn operators(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    for device in &run.data.devices {
        let name = device.device.to_string();
        for call in operators_of(&DeviceView::of(run.data, device)).calls {
            out.row(&[
                (&name).into(),
                (&*call.operator).into(),
                call.is_backward.into(),
                call.number.into(),
                (&*call.scope).into(),
                (&*call.line).into(),
                call.thread.into(),
                call.begin_ns.into(),
                call.end_ns.into(),
                call.allocations.into(),
                call.added.into(),
                call.before.into(),
                call.peak.into(),
                call.allocated.into(),
                call.reserved.into(),
            ])?;
        }
    }
    Ok(())
}
