//! The tables and their rows.

mod blocks;
mod context;
mod events;
mod older;
mod stacks;

use std::io;

use super::columns::ColumnKind::{Flag, Number, Text, Time};
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

const RUNS: TableSpec = TableSpec {
    name: "runs",
    columns: &[
        ("version", Number),
        ("recording", Text),
        ("program", Text),
        ("host", Text),
        ("pid", Number),
        ("rank", Number),
        ("job", Text),
        ("world_size", Number),
        ("started", Time),
        ("duration_ns", Number),
        ("min_size", Number),
    ],
};

fn runs(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    let process = &run.data.process;
    out.row(&[
        VERSION.into(),
        (&*run.recording.to_string_lossy()).into(),
        (&process.program).into(),
        (&process.host).into(),
        process.pid.into(),
        process.rank.into(),
        process.launcher.job.as_ref().into(),
        process.launcher.world_size.into(),
        process.started_unix_us.into(),
        process.duration_ns.into(),
        run.data.settings.min_size.into(),
    ])
}

const LABELS: TableSpec = TableSpec { name: "labels", columns: &[("key", Text), ("value", Text)] };

fn labels(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    run.labels.iter().try_for_each(|(key, value)| out.row(&[key.into(), value.into()]))
}

const DEVICES: TableSpec = TableSpec {
    name: "devices",
    columns: &[
        ("device", Text),
        ("peak_bytes", Number),
        ("peak_ns", Number),
        ("end_bytes", Number),
        ("peak_below_threshold", Number),
        ("peak_not_recorded", Number),
        ("allocations", Number),
        ("allocated_bytes", Number),
        ("reserved_peak_bytes", Number),
        ("refused", Number),
        ("records", Number),
        ("overwritten", Number),
        ("lost_in_gaps", Number),
        ("sample_interval", Number),
        ("is_main", Flag),
    ],
};

fn devices(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    let main = memtrace_core::analysis::main_device(run.data);
    run.data.devices.iter().try_for_each(|device| {
        let (peak, stats) = (&device.peak, &device.stats);
        out.row(&[
            (&device.device.to_string()).into(),
            peak.total().into(),
            peak.time_ns.into(),
            (stats.allocated_bytes.current + device.below_threshold).into(),
            peak.below_threshold.into(),
            peak.not_recorded.into(),
            stats.allocations.allocated.into(),
            stats.allocated_bytes.allocated.into(),
            stats.reserved_bytes.peak.into(),
            stats.num_ooms.into(),
            device.records.len().into(),
            device.overwritten.into(),
            device.gaps.iter().map(|gap| gap.records).sum::<u64>().into(),
            device.sample_interval().into(),
            (main == Some(device.device)).into(),
        ])
    })
}
