//! `report` of several files: each is the recording of a rank. One recording is in memory at a time.

use std::path::PathBuf;

use memtrace_core::analysis::{Key, Moment, RankSummary, Ranks};
use memtrace_core::export::ranks_json;
use memtrace_core::report::Report;

use super::ReportArgs;
use crate::failure::CommandFailure;
use crate::ranks::JobChoice;
use crate::{output, ranks};

pub(super) fn show(args: &ReportArgs, files: &[PathBuf]) -> Result<(), CommandFailure> {
    if args.at == Moment::Allocated {
        return Err(CommandFailure::usage(
            "ranks are compared by what is live at a moment; --at all is for one recording",
        ));
    }
    let keys = if args.by.is_empty() { vec![Key::default()] } else { args.by.clone() };
    let selection = &args.selection;
    let found = ranks::read(files, Some(selection), JobChoice::of(&args.ranks), &keys, |recording, file| {
        RankSummary::at(&args.at, recording, file, selection.device, &keys)
    })?;
    let found = Ranks { moment: args.at.clone(), ..found };
    if let (true, Some(rank)) = (found.ranks.is_empty(), found.without.first()) {
        let why = rank.moment_unknown.as_deref().unwrap_or_default();
        return Err(CommandFailure::usage(format!("no rank can be compared: {}: {why}", rank.name())));
    }
    let report = Report::of_ranks(&found, selection.top);
    match selection.json {
        true => output::print_shown(&ranks_json(&found, &report)?)?,
        false => output::print(&report, None, selection)?,
    }
    ranks::all_read(found.unread.len(), files.len())
}
