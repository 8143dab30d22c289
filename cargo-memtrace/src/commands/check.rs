//! `check`: exit code 1 if a recording's peak is over a limit or a scope leaks, 3 if the recording does not tell.

use std::path::PathBuf;

use clap::Args;
use memtrace_core::analysis::runs::{LeakVerdict, ScopeLeak, left_by_scopes};
use memtrace_core::snapshot::DeviceSnapshot;
use memtrace_core::units::{grouped, round};
use memtrace_core::{Bytes, Device, DeviceView, Recording};
use serde_json::json;

use crate::arguments::ReadingArgs;
use crate::failure::CommandFailure;
use crate::{input, moment, output};

/// Fail if a recording's peak or leaks are over a limit
#[derive(Args)]
#[command(after_help = "Examples:
  cargo memtrace check --peak 6GiB
  cargo memtrace check new.memtrace --baseline old.memtrace --tolerance 1%
  cargo memtrace check --no-leak

--no-leak judges each scope that ran repeatedly as `assert_no_leak!` judges code: caches that fill up and what is allocated once
are no leak. It needs scopes that run 5 times, or 12 times if memory grows, and a whole log.")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    reading: ReadingArgs,
    /// The largest peak that is allowed
    #[arg(long, value_name = "SIZE", value_parser = moment::size)]
    peak: Option<u64>,
    /// The peak of this recording is the largest that is allowed
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// How far the peak may be over the baseline, in per cent
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = moment::percent)]
    tolerance: f64,
    /// No scope may leave more memory behind the more often it runs; undecided (exit code 3) if the recording does not tell
    #[arg(long)]
    no_leak: bool,
}

/// One limit and whether it holds.
struct CheckOutcome {
    verdict: CheckVerdict,
    what: String,
}

#[derive(Clone, Copy)]
enum CheckVerdict {
    Holds,
    Fails,
    Undecided,
}

impl CheckVerdict {
    fn is_met(self) -> Option<bool> {
        match self {
            Self::Holds => Some(true),
            Self::Fails => Some(false),
            Self::Undecided => None,
        }
    }
}

pub(crate) fn run(args: &CheckArgs) -> Result<(), CommandFailure> {
    if args.peak.is_none() && args.baseline.is_none() && !args.no_leak {
        return Err(CommandFailure::usage("nothing is checked: give --peak, --baseline or --no-leak"));
    }
    let selection = &args.reading.selection;
    let file = input::read_selected(args.reading.file.as_deref(), selection)?;
    let recording = Recording::new(&file.data);
    let device = recording.device_or_main(selection.device).ok_or_else(|| missing("the recording"))?;
    let mut outcomes = Vec::new();
    outcomes.extend(args.peak.map(|limit| under(device, limit, "the limit of")));
    if let Some(baseline) = &args.baseline {
        let baseline = input::read(Some(baseline))?;
        let before = baseline.data.device(device.device).ok_or_else(|| missing("the baseline"))?;
        let limit = before.peak.total() as f64 * (1.0 + args.tolerance / 100.0);
        outcomes.push(under(device, limit as u64, &format!("the baseline and {} %,", args.tolerance)));
    }
    if args.no_leak {
        outcomes.extend(no_leak(&recording, selection.device));
    }
    print(outcomes, selection.json)
}

fn missing(which: &str) -> CommandFailure {
    CommandFailure::usage(format!("{which} has nothing on this device; choose another with --device"))
}

fn under(device: &DeviceSnapshot, limit: u64, name: &str) -> CheckOutcome {
    let peak = device.peak.total();
    let (verdict, word, by) = match peak.checked_sub(limit) {
        None | Some(0) => (CheckVerdict::Holds, "within", String::new()),
        Some(over) => (CheckVerdict::Fails, "over", format!(" by {}", Bytes(over))),
    };
    CheckOutcome {
        verdict,
        what: format!("the peak of {} on {} is {word} {name} {}{by}", Bytes(peak), device.device, Bytes(limit)),
    }
}

/// What scopes leak on the selected device, or on any.
fn no_leak(recording: &Recording<'_>, selected: Option<Device>) -> Vec<CheckOutcome> {
    let is_asked =
        |device: &&DeviceView<'_>| selected.map_or(device.peak.total() > 0, |selected| selected == device.device);
    recording.devices().iter().filter(is_asked).map(no_leak_on).collect()
}

fn no_leak_on(device: &DeviceView<'_>) -> CheckOutcome {
    let on = device.device;
    let (verdict, what) = match left_by_scopes(device) {
        LeakVerdict::Nothing(scopes) => {
            let scopes: Vec<String> = scopes.iter().map(|scope| format!("`{scope}`")).collect();
            let size = match device.data().settings.min_size {
                0 => String::new(),
                size => format!(", in blocks of {} or more", round(size)),
            };
            (CheckVerdict::Holds, format!("no leak on {on} in the scopes {}{size}", scopes.join(", ")))
        }
        LeakVerdict::Leaks(ScopeLeak { scope, runs, bytes, line }) => {
            let (bytes, runs) = (Bytes(bytes), grouped(runs as u64));
            let what = format!("leak in scope `{scope}` on {on}: {bytes} in {runs} runs, most of it at {line}");
            (CheckVerdict::Fails, what)
        }
        LeakVerdict::Undecided(why) => (CheckVerdict::Undecided, format!("leaks on {on}: {why}")),
    };
    CheckOutcome { verdict, what }
}

fn print(outcomes: Vec<CheckOutcome>, json: bool) -> Result<(), CommandFailure> {
    if json {
        let row = |outcome: &CheckOutcome| json!({ "met": outcome.verdict.is_met(), "what": outcome.what });
        let value = json!({ "version": 1, "checks": outcomes.iter().map(row).collect::<Vec<_>>() });
        output::print_json(format!("{value:#}\n"))?;
    }
    let (mut met, mut failed, mut undecided) = (Vec::new(), Vec::new(), Vec::new());
    for CheckOutcome { verdict, what } in outcomes {
        match verdict {
            CheckVerdict::Holds => met.push(format!("ok: {what}")),
            CheckVerdict::Fails => failed.push(what),
            CheckVerdict::Undecided => undecided.push(what),
        }
    }
    if !json {
        output::print_lines(met)?;
    }
    match (failed.is_empty(), undecided.is_empty()) {
        (true, true) => Ok(()),
        (true, false) => Err(CommandFailure::Undecided(undecided)),
        (false, _) => {
            output::tell(undecided.iter().map(|what| format!("undecided: {what}")));
            Err(CommandFailure::Check(failed))
        }
    }
}
