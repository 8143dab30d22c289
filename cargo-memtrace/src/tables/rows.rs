//! The tables and their rows.

/// Defines a table and the function that writes a row of it, from the name, kind and value of each column.
macro_rules! table {
    ($table:ident = $name:literal, $row:ident($($parameters:tt)*) {
        $($column:ident: $kind:ident = $value:expr,)*
    }) => {
        pub(super) const $table: $crate::tables::TableSpec = $crate::tables::TableSpec {
            name: $name,
            columns: &[$((stringify!($column), $crate::tables::ColumnKind::$kind)),*],
        };

        fn $row(out: &mut dyn $crate::tables::TableWriter, $($parameters)*) -> std::io::Result<()> {
            out.row(&[$($crate::tables::TableCell::from($value)),*])
        }
    };
}

mod blocks;
mod context;
mod events;
mod older;
mod stacks;

use std::io;

use memtrace_core::snapshot::{DeviceSnapshot, MemoryStats, Peak, Process};

use super::columns::{TableSpec, TableWriter};
use super::run::{RunTables, VERSION};

type WriteRows = fn(&RunTables<'_>, &mut dyn TableWriter) -> io::Result<()>;

/// All tables, each with its rows.
pub(super) const TABLES: [(&TableSpec, WriteRows); 12] = [
    (&RUNS, runs),
    (&LABELS, labels),
    (&DEVICES, devices),
    (&events::EVENTS, events::events),
    (&events::MARKS, events::marks),
    (&events::SEGMENTS, events::segments),
    (&blocks::BLOCKS, blocks::blocks),
    (&stacks::STACKS, stacks::stacks),
    (&stacks::FRAMES, stacks::frames),
    (&context::SCOPES, context::scopes),
    (&context::OPERATORS, context::operators),
    (&older::OLDER_TIMES, older::older_times),
];

table! { RUNS = "runs", write_run((run, process): (&RunTables<'_>, &Process)) {
    version: Number = VERSION,
    recording: Text = &*run.recording.to_string_lossy(),
    program: Text = &process.program,
    host: Text = &process.host,
    pid: Number = process.pid,
    rank: Number = process.rank,
    job: Text = process.launcher.job.as_ref(),
    world_size: Number = process.launcher.world_size,
    started: Time = process.started_unix_us,
    duration_ns: Number = process.duration_ns,
    min_size: Number = run.data.settings.min_size,
} }

fn runs(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    write_run(out, (run, &run.data.process))
}

table! { LABELS = "labels", label((key, value): &(String, String)) {
    key: Text = key,
    value: Text = value,
} }

fn labels(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    run.labels.iter().try_for_each(|one| label(out, one))
}

table! { DEVICES = "devices", device(device: &DeviceSnapshot, (peak, stats): (&Peak, &MemoryStats), is_main: bool) {
    device: Text = &device.device.to_string(),
    peak_bytes: Number = peak.total(),
    peak_ns: Number = peak.time_ns,
    end_bytes: Number = stats.allocated_bytes.current + device.below_threshold,
    peak_below_threshold: Number = peak.below_threshold,
    peak_not_recorded: Number = peak.not_recorded,
    allocations: Number = stats.allocations.allocated,
    allocated_bytes: Number = stats.allocated_bytes.allocated,
    reserved_peak_bytes: Number = stats.reserved_bytes.peak,
    refused: Number = stats.num_ooms,
    records: Number = device.records.len(),
    overwritten: Number = device.overwritten,
    lost_in_gaps: Number = device.gaps.iter().map(|gap| gap.records).sum::<u64>(),
    sample_interval: Number = device.sample_interval(),
    is_main: Flag = is_main,
} }

fn devices(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    let main = memtrace_core::analysis::main_device(run.data);
    let row = |one: &DeviceSnapshot| device(out, one, (&one.peak, &one.stats), main == Some(one.device));
    run.data.devices.iter().try_for_each(row)
}
