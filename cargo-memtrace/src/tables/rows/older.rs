//! Times before the log of a stream with a budget, by stack and by scope.

use std::io;

use memtrace_core::snapshot::OlderTime;

use crate::tables::ColumnKind::{Flag, Number, Rising, Text};
use crate::tables::{RunTables, TableCell, TableSpec, TableWriter};

pub(super) const OLDER_TIMES: TableSpec = TableSpec {
    name: "older_times",
    columns: &[
        ("device", Text),
        ("from_ns", Rising),
        ("to_ns", Rising),
        ("records", Number),
        ("lacks_records", Flag),
        ("highest_bytes", Number),
        ("highest_ns", Rising),
        ("stack", Number),
        ("scope", Number),
        ("at_highest_bytes", Number),
        ("least_bytes", Number),
    ],
};

pub(super) fn older_times(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    run.data.devices.iter().try_for_each(|device| {
        let name = device.device.to_string();
        device.older.iter().try_for_each(|time| of_time(&name, time, out))
    })
}

/// A row for each stack, one for the bytes of no stack that is kept, and a row for each scope.
fn of_time(device: &String, time: &OlderTime, out: &mut dyn TableWriter) -> io::Result<()> {
    let of_stacks = time.stacks.iter().map(|row| row.at_highest).fold(0, u64::saturating_add);
    let null = TableCell::Null;
    let stacks = time.stacks.iter().map(|row| [row.of.0.into(), null, row.at_highest.into(), row.least.into()]);
    let rest = [null, null, time.highest.saturating_sub(of_stacks).into(), null];
    let scopes = time.scopes.iter().map(|row| [null, row.of.0.into(), row.at_highest.into(), row.least.into()]);
    stacks.chain([rest]).chain(scopes).try_for_each(|[stack, scope, at_highest, least]| {
        out.row(&[
            device.into(),
            time.from_ns.into(),
            time.to_ns.into(),
            time.records.into(),
            time.lacks_records.into(),
            time.highest.into(),
            time.highest_ns.into(),
            stack,
            scope,
            at_highest,
            least,
        ])
    })
}
