//! `report` of several files: each is the recording of a rank. One is in memory at a time.

use std::path::PathBuf;

use memtrace_core::analysis::{Key, Moment, RankSummary};
use memtrace_core::export::ranks_json;
use memtrace_core::report::Report;

use super::ReportArgs;
use crate::failure::CommandFailure;
use crate::ranks::JobChoice;
use crate::{output, ranks};

pub(super) fn show(args: &ReportArgs, files: &[PathBuf]) -> Result<(), CommandFailure> {
    if args.at != Moment::Peak {
        return Err(CommandFailure::usage("ranks are compared at their peaks; --at is for one recording"));
    }
    let keys = if args.by.is_empty() { vec![Key::default()] } else { args.by.clone() };
    let selection = &args.selection;
    let found = ranks::read(files, Some(selection), JobChoice::of(&args.ranks), &keys, |recording, file| {
        RankSummary::of(recording, file, selection.device, &keys)
    })?;
    let report = Report::of_ranks(&found, selection.top);
    match selection.json {
        true => output::print_shown(&ranks_json(&found, &report)?)?,
        false => output::print(&report, None, selection)?,
    }
    ranks::all_read(found.unread.len(), files.len())
}
