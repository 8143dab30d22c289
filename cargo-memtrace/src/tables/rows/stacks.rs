//! Stacks: their labels in reports, and their frames.

use std::io;

use memtrace_core::analysis::{line_and_callers, operator_label, shorten_path};
use memtrace_core::attribute::{AllocationSite, Attribution, allocation_site};
use memtrace_core::snapshot::{Frame, StackId};

use crate::tables::ColumnKind::{Flag, Number, Text};
use crate::tables::{RunTables, TableCell, TableSpec, TableWriter};

pub(super) const STACKS: TableSpec = TableSpec {
    name: "stacks",
    columns: &[
        ("stack", Number),
        ("line", Text),
        ("file", Text),
        ("line_number", Number),
        ("function", Text),
        ("operator", Text),
    ],
};

/// A row for each stack, and number 0 for blocks without one.
pub(super) fn stacks(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    let data = &Attribution::new(run.data);
    (0..data.stacks.len() as u32).try_for_each(|number| {
        let site = match allocation_site(data, StackId(number)) {
            AllocationSite::User(frame) | AllocationSite::Framework(frame) => Some(frame),
            AllocationSite::Unknown => None,
        };
        let [function, file, line] = site.map_or([TableCell::Null; 3], |frame| cells(run, frame));
        let label = line_and_callers(data, StackId(number), 0);
        let operator = operator_label(data, number);
        out.row(&[number.into(), label.first().into(), file, line, function, (&operator).into()])
    })
}

pub(super) const FRAMES: TableSpec = TableSpec {
    name: "frames",
    columns: &[
        ("stack", Number),
        ("depth", Number),
        ("function", Text),
        ("file", Text),
        ("line_number", Number),
        ("is_inlined", Flag),
    ],
};

pub(super) fn frames(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    let stacks = &run.data.stacks;
    (0..stacks.len() as u32).try_for_each(|number| {
        stacks.frames(StackId(number)).enumerate().try_for_each(|(depth, frame)| {
            let [function, file, line] = cells(run, frame);
            out.row(&[number.into(), depth.into(), function, file, line, frame.inlined.into()])
        })
    })
}

/// Function, file and line.
fn cells<'a>(run: &RunTables<'a>, frame: &'a Frame) -> [TableCell<'a>; 3] {
    let file = frame.file.as_deref().map(|file| shorten_path(file, &run.data.process.working_dir));
    [frame.function.as_ref().into(), file.into(), frame.line.map(|line| line.get()).into()]
}
