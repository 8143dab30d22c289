//! Scopes with their statistics, and operator calls.

use std::collections::HashMap;
use std::io;

use memtrace_core::DeviceView;
use memtrace_core::analysis::{OperatorCall, operators as operators_of};
use memtrace_core::snapshot::{ContextId, ContextNode, ScopeStats};

use crate::tables::{RunTables, TableWriter};

table! { SCOPES = "scopes", scope(
    name: &str, (number, node): (u32, &ContextNode), path: &str, stats: Option<&ScopeStats>
) {
    device: Text = name,
    scope: Number = number,
    parent: Number = (number > 0).then_some(node.parent.0),
    name: Text = &node.name,
    path: Text = path,
    is_module: Flag = node.module,
    calls: Number = stats.map(|stats| stats.calls),
    allocations: Number = stats.map(|stats| stats.allocations),
    allocated_bytes: Number = stats.map(|stats| stats.allocated_bytes),
    own_peak_bytes: Number = stats.map(|stats| stats.own_peak),
    total_peak_bytes: Number = stats.and_then(|stats| stats.total_peak),
} }

/// A row for each scope and device. Scope 0 is outside of all scopes.
pub(super) fn scopes(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    for device in &run.data.devices {
        let name = device.device.to_string();
        let of_context: HashMap<ContextId, &ScopeStats> =
            device.scopes.iter().map(|stats| (stats.context, stats)).collect();
        for (number, node) in (0u32..).zip(&run.data.contexts) {
            let id = ContextId(number);
            scope(out, &name, (number, node), &run.data.context_path(id), of_context.get(&id).copied())?;
        }
    }
    Ok(())
}

table! { OPERATORS = "operators", operator(name: &str, call: &OperatorCall) {
    device: Text = name,
    operator: Text = &*call.operator,
    is_backward: Flag = call.is_backward,
    number: Number = call.number,
    scope_path: Text = &*call.scope,
    line: Text = &*call.line,
    thread: Number = call.thread,
    begin_ns: Rising = call.begin_ns,
    end_ns: Rising = call.end_ns,
    allocations: Number = call.allocations,
    added_bytes: Number = call.added,
    before_bytes: Number = call.before,
    peak_bytes: Number = call.peak,
    after_bytes: Number = call.allocated,
    reserved_bytes: Number = call.reserved,
} }

/// A row for each call of an operator.
pub(super) fn operators(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    run.data.devices.iter().try_for_each(|device| {
        let name = device.device.to_string();
        let calls = operators_of(&DeviceView::of(run.data, device)).calls;
        calls.iter().try_for_each(|call| operator(out, &name, call))
    })
}
