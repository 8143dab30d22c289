//! Stacks: their labels in reports, and their frames.

use std::io;

use memtrace_core::analysis::{line_and_callers, operator_label, shorten_path};
use memtrace_core::attribute::{AllocationSite, Attribution, allocation_site};
use memtrace_core::snapshot::{Frame, StackId};

use crate::tables::{RunTables, TableCell, TableWriter};

table! { STACKS = "stacks", stack(
    number: u32, line: Option<&String>, [function, file, at]: [TableCell<'_>; 3], operator: &str
) {
    stack: Number = number,
    line: Text = line,
    file: Text = file,
    line_number: Number = at,
    function: Text = function,
    operator: Text = operator,
} }

/// A row for each stack; number 0 stands for blocks without a stack.
pub(super) fn stacks(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    let data = &Attribution::new(run.data);
    (0..data.stacks.len() as u32).try_for_each(|number| {
        let site = match allocation_site(data, StackId(number)) {
            AllocationSite::User(frame) | AllocationSite::Framework(frame) => Some(frame),
            AllocationSite::Unknown => None,
        };
        let place = site.map_or([TableCell::Null; 3], |frame| cells(run, frame));
        let label = line_and_callers(data, StackId(number), 0);
        stack(out, number, label.first(), place, &operator_label(data, number))
    })
}

table! { FRAMES = "frames", frame(
    stack: u32, depth: usize, [function, file, at]: [TableCell<'_>; 3], is_inlined: bool
) {
    stack: Number = stack,
    depth: Number = depth,
    function: Text = function,
    file: Text = file,
    line_number: Number = at,
    is_inlined: Flag = is_inlined,
} }

pub(super) fn frames(run: &RunTables<'_>, out: &mut dyn TableWriter) -> io::Result<()> {
    let stacks = &run.data.stacks;
    (0..stacks.len() as u32).try_for_each(|number| {
        let mut frames = stacks.frames(StackId(number)).enumerate();
        frames.try_for_each(|(depth, of)| frame(out, number, depth, cells(run, of), of.inlined))
    })
}

/// Cells for function, file and line.
fn cells<'a>(run: &RunTables<'a>, frame: &'a Frame) -> [TableCell<'a>; 3] {
    let file = frame.file.as_deref().map(|file| shorten_path(file, &run.data.process.working_dir));
    [frame.function.as_ref().into(), file.into(), frame.line.map(|line| line.get()).into()]
}
