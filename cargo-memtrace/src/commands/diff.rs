//! `diff`: what changed between two recordings, or between two moments of one.

use memtrace_core::analysis::DiffKey;
use memtrace_core::export::markdown;
use memtrace_core::report::{DiffOptions, Report};

use crate::cli::{By, DiffArgs};
use crate::failure::CommandFailure;
use crate::{input, output};

pub(crate) fn diff(args: &DiffArgs) -> Result<(), CommandFailure> {
    let keys = args.by.iter().map(|by| key(*by)).collect::<Result<Vec<_>, _>>()?;
    let options = DiffOptions {
        keys,
        device: args.selection.device,
        before: args.at.clone(),
        after: args.at_after.clone().unwrap_or_else(|| args.at.clone()),
        rows: args.selection.top,
        threshold: args.threshold,
    };
    let before = input::read_selected(Some(&args.before), &args.selection)?;
    let report = if args.before == args.after {
        Report::of_diff(&before.data, &before.data, &options)?
    } else {
        Report::of_diff(&before.data, &input::read_selected(Some(&args.after), &args.selection)?.data, &options)?
    };
    if args.md { output::print_text(&markdown(&report)) } else { output::print(&report, &args.selection) }
}

fn key(by: By) -> Result<DiffKey, CommandFailure> {
    Ok(match by {
        By::Line => DiffKey::Line,
        By::Function => DiffKey::Function,
        By::Operator => DiffKey::Operator,
        By::Module => DiffKey::Module,
        By::Category => DiffKey::Category,
        By::Scope => DiffKey::Scope,
        By::Parameter => DiffKey::Parameter,
        By::Name => DiffKey::Name,
        By::Age | By::Thread | By::Stream | By::Crate => {
            let by = format!("{by:?}").to_lowercase();
            return Err(CommandFailure::usage(format!(
                "a difference has no table by {by}; `cargo memtrace report --by {by}` has"
            )));
        }
    })
}
