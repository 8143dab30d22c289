//! Older times by stack and by scope: summaries of the parts before the log of a stream with a budget.

use std::io;

use memtrace_core::snapshot::OlderTime;

use crate::tables::{RunTables, TableWriter};

table! { OLDER_TIMES = "older_times", write_older(
    device: &str, time: &OlderTime, [stack, scope]: [Option<u32>; 2], at_highest: u64, least: Option<u64>
) {
    device: Text = device,
    from_ns: Rising = time.from_ns,
    to_ns: Rising = time.to_ns,
    records: Number = time.records,
    lacks_records: Flag = time.lacks_records,
    highest_bytes: Number = time.highest,
    highest_ns: Rising = time.highest_ns,
    stack: Number = stack,
    scope: Number = scope,
    at_highest_bytes: Number = at_highest,
    least_bytes: Number = least,
} }

pub(super) fn older_times(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    run.data.devices.iter().try_for_each(|device| {
        let name = device.device.to_string();
        device.older.iter().try_for_each(|time| of_time(&name, time, out))
    })
}

/// A row for each kept stack, one for the bytes of all other stacks, and a row for each scope.
fn of_time(device: &str, time: &OlderTime, out: &mut dyn TableWriter) -> io::Result<()> {
    let of_stacks = time.stacks.iter().map(|row| row.at_highest).fold(0, u64::saturating_add);
    let stacks = time.stacks.iter().map(|row| ([Some(row.of.0), None], row.at_highest, Some(row.least)));
    let rest = ([None; 2], time.highest.saturating_sub(of_stacks), None);
    let scopes = time.scopes.iter().map(|row| ([None, Some(row.of.0)], row.at_highest, Some(row.least)));
    let mut rows = stacks.chain([rest]).chain(scopes);
    rows.try_for_each(|(of, at_highest, least)| write_older(out, device, time, of, at_highest, least))
}
