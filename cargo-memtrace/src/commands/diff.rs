//! `diff`: what changed between two recordings, or between two moments of one.

use memtrace_core::analysis::DiffKey;
use memtrace_core::export::markdown;
use memtrace_core::report::{DiffOptions, Report};

use crate::cli::{By, DiffArgs};
use crate::failure::CommandFailure;
use crate::progress::Progress;
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
    let other = match args.before == args.after {
        true => None,
        false => Some(input::read_selected(Some(&args.after), &args.selection)?),
    };
    let progress = Progress::of("comparing the recordings");
    let report = Report::of_diff(&before.data, &other.as_ref().unwrap_or(&before).data, &options)?;
    drop(progress);
    if args.md { output::print_shown(&markdown(&report)) } else { output::print(&report, None, &args.selection) }
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
        By::Thread => DiffKey::Thread,
        By::Stream => DiffKey::Stream,
        By::Crate => DiffKey::Crate,
        By::Age => {
            let message = "a difference has no table by age; `cargo memtrace report --by age` has";
            return Err(CommandFailure::usage(message));
        }
    })
}
