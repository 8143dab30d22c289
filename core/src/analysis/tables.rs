//! The list of breakdown tables, shared by reports, failed assertions and JSON.

use super::breakdown::{
    Breakdown, by_age, by_category, by_crate, by_function, by_line, by_model_line, by_module, by_name, by_operator,
    by_parameter, by_scope, by_stream, by_thread, live_by_line,
};
use crate::attribute::{module, operator};
use crate::snapshot::{ContextId, DeviceSnapshot, SnapshotData};

pub(crate) struct BreakdownTable {
    /// Its key in JSON, which has all tables.
    pub(crate) key: &'static str,
    /// The end of its heading.
    pub(crate) by: &'static str,
    /// Heading of the label column.
    pub(crate) column: &'static str,
    pub(crate) shown: Shown,
    /// Does it say anything that other tables do not?
    pub(crate) matters: fn(&SnapshotData, &DeviceSnapshot) -> bool,
    /// What is said instead to those who ask for it.
    pub(crate) nothing: &'static str,
    pub(crate) make: fn(&SnapshotData, &DeviceSnapshot) -> Breakdown,
}

/// Which texts show a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Always,
    InReports,
    /// Failed assertions; reports have more detail elsewhere.
    InFailures,
    Never,
    /// Reports of moments other than the peak.
    AtMoments,
    /// Reports of the peak, after all other tables.
    AtEnd,
}

/// The tables in the order of texts.
pub(crate) const TABLES: [BreakdownTable; 11] = [
    of("peak_by_line", "line", "Location", Shown::Always, |_, _| true, by_line),
    of("peak_by_model_line", "line of the model", "Location", Shown::Always, is_other, by_model_line)
        .or_says("the lines of the model are the lines above"),
    of("peak_by_function", "function", "Function", Shown::InReports, |_, _| true, by_function),
    of("peak_by_operator", "operator", "Operator", Shown::Always, has_tensors, by_operator)
        .or_says("no operators of tensors are recorded"),
    of("peak_by_category", "category", "Category", Shown::Always, has_tensors, by_category)
        .or_says("no tensors are recorded, so no block has a category"),
    of("peak_by_module", "module", "Module", Shown::InReports, has_modules, by_module)
        .or_says("no modules are recorded: those are spans of a model"),
    of("peak_by_parameter", "parameter", "Parameter", Shown::Never, has_modules, by_parameter)
        .or_says("no modules are recorded, so no parameters"),
    of("peak_by_name", "name", "Name", Shown::Always, has_names, by_name)
        .or_says("no names are recorded: `memtrace::name` names a block"),
    of("peak_by_scope", "scope", "Scope", Shown::InFailures, has_scopes, by_scope)
        .or_says("no block was allocated in a scope: `memtrace::scope` opens one"),
    of("peak_by_age", "age", "Allocated", Shown::AtMoments, |_, _| true, by_age),
    of("live_by_line", "line", "Location", Shown::AtEnd, |_, _| true, live_by_line),
];

/// Tables that only a request shows, and that JSON does not have.
pub(crate) const ON_REQUEST: [BreakdownTable; 3] = [
    of("peak_by_thread", "thread", "Thread", Shown::Never, |_, _| true, by_thread),
    of("peak_by_stream", "stream", "Stream", Shown::Never, |_, _| true, by_stream),
    of("peak_by_crate", "crate", "Crate", Shown::Never, |_, _| true, by_crate),
];

const fn of(
    key: &'static str,
    by: &'static str,
    column: &'static str,
    shown: Shown,
    matters: fn(&SnapshotData, &DeviceSnapshot) -> bool,
    make: fn(&SnapshotData, &DeviceSnapshot) -> Breakdown,
) -> BreakdownTable {
    BreakdownTable { key, by, column, shown, matters, nothing: "", make }
}

impl BreakdownTable {
    const fn or_says(self, nothing: &'static str) -> Self {
        Self { nothing, ..self }
    }
}

/// Do model lines differ from user lines?
fn is_other(data: &SnapshotData, device: &DeviceSnapshot) -> bool {
    by_model_line(data, device) != by_line(data, device)
}

fn has_tensors(data: &SnapshotData, device: &DeviceSnapshot) -> bool {
    device.peak.blocks.iter().any(|block| operator(data, block.stack).is_some())
}

fn has_modules(data: &SnapshotData, device: &DeviceSnapshot) -> bool {
    device.peak.blocks.iter().any(|block| module(data, block.context).is_some())
}

fn has_names(_: &SnapshotData, device: &DeviceSnapshot) -> bool {
    !device.names.is_empty()
}

fn has_scopes(_: &SnapshotData, device: &DeviceSnapshot) -> bool {
    device.peak.blocks.iter().any(|block| block.context != ContextId::ROOT)
}
