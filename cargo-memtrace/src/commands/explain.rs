//! `explain`: one line, function, operator or address.

use std::path::Path;

use memtrace_core::analysis::Subject;
use memtrace_core::report::{Report, ReportOptions};

use crate::cli::ExplainArgs;
use crate::failure::CommandFailure;
use crate::{input, output};

pub(crate) fn explain(args: &ExplainArgs) -> Result<(), CommandFailure> {
    let (file, subject): (Option<&Path>, &Path) = match &*args.what {
        [file, subject] => (Some(file), subject),
        [subject] => (None, subject),
        _ => return Err(CommandFailure::usage("name a line, a function, an operator or an address")),
    };
    let subject = subject.to_string_lossy();
    let recording = input::read_selected(file, &args.selection)?;
    let options = ReportOptions { device: args.selection.device, rows: args.selection.top, ..ReportOptions::default() };
    let report = Report::of_subject(&recording.data, &Subject::parse(&subject), &options).ok_or_else(|| {
        let known = "`cargo memtrace report --by line,operator,function` lists what there is";
        CommandFailure::usage(format!("no block of {} belongs to {subject:?}; {known}", recording.path.display()))
    })?;
    output::print(&report, &args.selection)
}
