//! Judges the limits for one recording.

use memtrace_core::analysis::runs::{LeakVerdict, ScopeLeak, left_by_scopes};
use memtrace_core::units::{grouped, round};
use memtrace_core::{Bytes, Device, DeviceView, Recording};

use super::outcome::{CheckOutcome, CheckVerdict};

/// `--peak`.
pub(super) fn peak(device: Device, peak: u64, limit: u64) -> CheckOutcome {
    under(device, peak, limit, "the limit of")
}

pub(super) fn under(device: Device, peak: u64, limit: u64, name: &str) -> CheckOutcome {
    let (verdict, word, by) = match peak.checked_sub(limit) {
        None | Some(0) => (CheckVerdict::Holds, "within", String::new()),
        Some(over) => (CheckVerdict::Fails, "over", format!(" by {}", Bytes(over))),
    };
    let what = format!("the peak of {} on {device} is {word} {name} {}{by}", Bytes(peak), Bytes(limit));
    CheckOutcome { verdict, what, bytes: peak }
}

/// `--no-leak`: which scopes leak on the selected device, or on any device.
pub(super) fn no_leak(recording: &Recording<'_>, selected: Option<Device>) -> Vec<CheckOutcome> {
    let is_asked =
        |device: &&DeviceView<'_>| selected.map_or(device.peak.total() > 0, |selected| selected == device.device);
    recording.devices().iter().filter(is_asked).map(no_leak_on).collect()
}

fn no_leak_on(device: &DeviceView<'_>) -> CheckOutcome {
    let on = device.device;
    let (verdict, bytes, what) = match left_by_scopes(device) {
        LeakVerdict::Nothing(scopes) => {
            let scopes: Vec<String> = scopes.iter().map(|scope| format!("`{scope}`")).collect();
            let size = match device.data().settings.min_size {
                0 => String::new(),
                size => format!(", in blocks of {} or more", round(size)),
            };
            (CheckVerdict::Holds, 0, format!("no leak on {on} in the scopes {}{size}", scopes.join(", ")))
        }
        LeakVerdict::Leaks(ScopeLeak { scope, runs, bytes, line }) => {
            let runs = grouped(runs as u64);
            let leak = Bytes(bytes);
            let what = format!("leak in scope `{scope}` on {on}: {leak} in {runs} runs, most of it at {line}");
            (CheckVerdict::Fails, bytes, what)
        }
        LeakVerdict::Undecided(why) => (CheckVerdict::Undecided, 0, format!("leaks on {on}: {why}")),
    };
    CheckOutcome { verdict, what, bytes }
}
