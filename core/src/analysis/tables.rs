//! The tables of breakdowns: one list for the report, for failed assertions and for JSON.

use super::breakdown::{
    Breakdown, by_age, by_category, by_function, by_line, by_model_line, by_module, by_name, by_operator, by_parameter,
    by_scope, live_by_line,
};
use crate::attribute::{module, operator};
use crate::snapshot::{ContextId, DeviceSnapshot, SnapshotData};

/// A table of what was held, by something.
pub(crate) struct BreakdownTable {
    /// Its name in JSON, which has all tables.
    pub(crate) key: &'static str,
    /// What it is by, as its heading ends.
    pub(crate) by: &'static str,
    /// What a row is about.
    pub(crate) column: &'static str,
    pub(crate) shown: Shown,
    /// Has it anything to say that others do not?
    pub(crate) matters: fn(&SnapshotData, &DeviceSnapshot) -> bool,
    pub(crate) make: fn(&SnapshotData, &DeviceSnapshot) -> Breakdown,
}

/// Where texts have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Always,
    InReports,
    /// Of failed assertions; reports have more about it elsewhere.
    InFailures,
    Never,
    /// In reports of another moment than the peak.
    AtMoments,
    /// In reports of the peak, behind all others.
    AtEnd,
}

/// In the order in which texts have them.
pub(crate) const TABLES: [BreakdownTable; 11] = [
    of("peak_by_line", "line", "Location", Shown::Always, |_, _| true, by_line),
    of("peak_by_model_line", "line of the model", "Location", Shown::Always, is_other, by_model_line),
    of("peak_by_function", "function", "Function", Shown::InReports, |_, _| true, by_function),
    of("peak_by_operator", "operator", "Operator", Shown::Always, has_tensors, by_operator),
    of("peak_by_category", "category", "Category", Shown::Always, has_tensors, by_category),
    of("peak_by_module", "module", "Module", Shown::InReports, has_modules, by_module),
    of("peak_by_parameter", "parameter", "Parameter", Shown::Never, has_modules, by_parameter),
    of("peak_by_name", "name", "Name", Shown::Always, has_names, by_name),
    of("peak_by_scope", "scope", "Scope", Shown::InFailures, has_scopes, by_scope),
    of("peak_by_age", "age", "Allocated", Shown::AtMoments, |_, _| true, by_age),
    of("live_by_line", "line", "Location", Shown::AtEnd, |_, _| true, live_by_line),
];

const fn of(
    key: &'static str,
    by: &'static str,
    column: &'static str,
    shown: Shown,
    matters: fn(&SnapshotData, &DeviceSnapshot) -> bool,
    make: fn(&SnapshotData, &DeviceSnapshot) -> Breakdown,
) -> BreakdownTable {
    BreakdownTable { key, by, column, shown, matters, make }
}

/// Are there other lines of the model than the program's?
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
