//! The live view of recordings that are still being written: one line per rank, and for one rank what is live on each
//! device.

mod device;
mod options;
mod ranks;
#[cfg(test)]
mod tests;

use self::options::seconds;
pub use self::options::{LookOptions, WatchedFile};
use super::Report;
use crate::analysis::DeviceLook;

impl Report {
    /// The live view of these recordings.
    pub fn of_looks(files: &[WatchedFile], options: &LookOptions) -> Self {
        let Some(chosen) = files.get(options.chosen).or_else(|| files.first()) else { return Self::default() };
        let mut report = Self { title: title(chosen), ..Self::default() };
        if files.len() > 1 {
            report.sections.push(ranks::section(files, options));
        }
        report.answer = state(chosen);
        if let Some(looks) = &chosen.looks {
            let name = if files.len() > 1 { format!(" of {}", looks.last().rank.name()) } else { String::new() };
            let table = |device: &DeviceLook| device::section(looks, device, &name, options);
            report.sections.extend(looks.last().devices.iter().map(table));
        }
        report
    }
}

fn title(file: &WatchedFile) -> String {
    let Some(looks) = &file.looks else { return format!("memtrace: {}", file.file) };
    let rank = &looks.last().rank;
    let process = if rank.has_process() { format!(", process {}", rank.process.pid) } else { String::new() };
    format!("memtrace: live memory of {}{process}, after {}", rank.process.program, seconds(looks.last().time_ns()))
}

/// What a reader must know before the figures.
fn state(file: &WatchedFile) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(problem) = &file.problem {
        lines.push(format!("Not read: {problem}"));
    }
    let Some(looks) = &file.looks else { return lines };
    let last = looks.last();
    match (file.has_ended, last.rank.is_cut_off) {
        (true, true) => lines.push("The process was killed: this is the state at its last commit.".to_owned()),
        (true, false) => lines.push("The process has ended: this is the state at its end.".to_owned()),
        (false, _) => {}
    }
    if last.devices.is_empty() {
        lines.push("Nothing is recorded yet.".to_owned());
    }
    lines
}
