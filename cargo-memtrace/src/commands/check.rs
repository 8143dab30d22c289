//! `check`: exit code 1 if a recording's peak or leaks are over a limit.

use memtrace_core::Bytes;
use memtrace_core::analysis::{device_or_main, live_by_scope};
use memtrace_core::snapshot::{DeviceSnapshot, SnapshotData};
use serde_json::json;

use crate::cli::CheckArgs;
use crate::failure::CommandFailure;
use crate::{input, output};

/// One limit and whether it holds.
struct CheckOutcome {
    is_met: bool,
    what: String,
}

pub(crate) fn check(args: &CheckArgs) -> Result<(), CommandFailure> {
    if args.peak.is_none() && args.baseline.is_none() && !args.no_leak {
        return Err(CommandFailure::usage("nothing is checked: give --peak, --baseline or --no-leak"));
    }
    let recording = input::read_selected(args.reading.file.as_deref(), &args.reading.selection)?;
    let (data, selection) = (&recording.data, &args.reading.selection);
    let device = device_or_main(data, selection.device).ok_or_else(|| missing("the recording"))?;
    let mut outcomes = Vec::new();
    outcomes.extend(args.peak.map(|limit| under(device, limit, "the limit of")));
    if let Some(baseline) = &args.baseline {
        let baseline = input::read(Some(baseline))?;
        let before = baseline.data.device(device.device).ok_or_else(|| missing("the baseline"))?;
        let limit = before.peak.total() as f64 * (1.0 + args.tolerance / 100.0);
        outcomes.push(under(device, limit as u64, &format!("the baseline and {} %,", args.tolerance)));
    }
    outcomes.extend(args.no_leak.then(|| no_leak(data, device)));
    print(&outcomes, selection.json)
}

fn missing(which: &str) -> CommandFailure {
    CommandFailure::usage(format!("{which} has nothing on this device; choose another with --device"))
}

fn under(device: &DeviceSnapshot, limit: u64, name: &str) -> CheckOutcome {
    let peak = device.peak.total();
    let (is_met, word) = if peak <= limit { (true, "within") } else { (false, "over") };
    let by = if is_met { String::new() } else { format!(" by {}", Bytes(peak - limit)) };
    CheckOutcome {
        is_met,
        what: format!("the peak of {} on {} is {word} {name} {}{by}", Bytes(peak), device.device, Bytes(limit)),
    }
}

/// What was allocated in a scope and is live at the end.
fn no_leak(data: &SnapshotData, device: &DeviceSnapshot) -> CheckOutcome {
    let rows = live_by_scope(data, device).rows;
    let leaks: Vec<_> = rows.iter().filter(|row| !row.label.starts_with('(') && row.bytes > 0).collect();
    let bytes = leaks.iter().map(|row| row.bytes).sum();
    match leaks.first() {
        None if device.scopes.is_empty() => CheckOutcome {
            is_met: true,
            what: format!(
                "no scope was open on {}, so nothing counts as a leak; `leaks` prints what is live",
                device.device
            ),
        },
        None => CheckOutcome {
            is_met: true,
            what: format!("nothing that a scope allocated on {} is live at the end", device.device),
        },
        Some(first) => CheckOutcome {
            is_met: false,
            what: format!(
                "{} that scopes allocated on {} are live at the end, most in {}: {}",
                Bytes(bytes),
                device.device,
                first.label,
                Bytes(first.bytes)
            ),
        },
    }
}

fn print(outcomes: &[CheckOutcome], json: bool) -> Result<(), CommandFailure> {
    if json {
        let row = |outcome: &CheckOutcome| json!({ "met": outcome.is_met, "what": outcome.what });
        let value = json!({ "version": 1, "checks": outcomes.iter().map(row).collect::<Vec<_>>() });
        output::print_json(format!("{value:#}\n"))?;
    } else {
        let met = outcomes.iter().filter(|outcome| outcome.is_met);
        output::print_lines(met.map(|outcome| format!("ok: {}", outcome.what)))?;
    }
    let failed: Vec<String> =
        outcomes.iter().filter(|outcome| !outcome.is_met).map(|outcome| outcome.what.clone()).collect();
    if failed.is_empty() { Ok(()) } else { Err(CommandFailure::Check(failed)) }
}
