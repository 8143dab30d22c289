//! What `run` prints when its program has ended: a statement for each recording, and the answer for the program's own.

use std::path::Path;

use memtrace_core::Bytes;
use memtrace_core::report::Report;

use crate::failure::CommandFailure;
use crate::recordings::{self, Announced};
use crate::{called, input, output};

/// Completes and reports the recordings of a program's processes. `child` is the program's process, which has ended;
/// other processes may still record. With `children`, the recordings of child processes that held at least this many
/// bytes count, too.
pub(super) fn conclude(announced: &[Announced], child: u32, children: Option<u64>, is_newest: bool) {
    let answered = match children {
        Some(least) => largest(announced, child, least).map(|one| of_main(one, child, false)),
        None => last_of(announced, child).map(|one| of_main(one, child, is_newest)),
    };
    if let Some(Err(failure)) = answered {
        output::say(failure);
    }
}

/// The last recording of the program's process. A process that executes another program has several. Says where the
/// others are.
fn last_of(announced: &[Announced], child: u32) -> Option<&Announced> {
    let main = announced.iter().rposition(|one| one.pid == child).unwrap_or(0);
    for (at, one) in announced.iter().enumerate().filter(|(at, _)| *at != main) {
        let verb = if complete(one, child) { "recorded" } else { "still records" };
        output::say(format!("process {} {verb} to {}", one.pid, shown(&announced[at].path)));
    }
    announced.get(main)
}

/// The recording of the process that held the most. Says where the others are, and removes those of processes that held
/// less than `least`.
fn largest(announced: &[Announced], child: u32, least: u64) -> Option<&Announced> {
    let mut held: Vec<(u64, String, &Announced)> = announced.iter().filter_map(|one| held(one, child)).collect();
    held.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
    // At least one recording stays, because the user asked for one.
    let kept = held.iter().filter(|(bytes, ..)| *bytes >= least).count().max(1).min(held.len());
    let (kept, small) = held.split_at(kept);
    for (bytes, name, one) in kept {
        output::say(format!("{name} held {} at its peak: {}", Bytes(*bytes), shown(&one.path)));
    }
    small.iter().for_each(|(.., one)| recordings::remove_own(&one.path));
    if !small.is_empty() {
        let count = small.len();
        output::say(format!("recordings removed, of processes that held less than {}: {count}", Bytes(least)));
    }
    kept.first().map(|(.., one)| *one)
}

/// The most bytes that a process held on one device, and the process. Says so and returns `None` if the process still
/// records, or if the file is not memtrace's recording.
fn held(one: &Announced, child: u32) -> Option<(u64, String, &Announced)> {
    let file = shown(&one.path);
    if !complete(one, child) {
        output::say(format!("process {} still records to {file}", one.pid));
        return None;
    }
    let read = Some(&one.path).filter(|path| memtrace_core::is_capture(path)).map(|path| input::read(Some(path)));
    let Some(Ok(read)) = read else {
        output::say(format!("process {} recorded to {file}", one.pid));
        return None;
    };
    let peak = read.data.devices.iter().map(|device| device.peak.total()).max().unwrap_or(0);
    Some((peak, format!("{} (process {})", read.data.process.program, one.pid), one))
}

/// Adds the names of functions to a recording, because the next build replaces the program that has them. False if the
/// recording has not ended.
fn complete(recorded: &Announced, child: u32) -> bool {
    let Announced { pid, path } = recorded;
    if *pid != child && !recordings::has_ended(path) {
        return false;
    }
    if memtrace_core::is_capture(path)
        && let Err(error) = memtrace_core::store_names(path, *pid, |_, _| {})
    {
        output::say(format!("{error}; it stays without the names of functions"));
    }
    true
}

/// Prints the report's answer, where the recording is, and the next command, on the standard error.
fn of_main(recorded: &Announced, child: u32, is_newest: bool) -> Result<(), CommandFailure> {
    let (pid, file) = (recorded.pid, shown(&recorded.path));
    let argument = quoted(&file);
    if !complete(recorded, child) {
        output::say(format!(
            "process {pid} still records to {file}; when it has ended: {} report {argument}",
            called::name()
        ));
        return Ok(());
    }
    // A pickle has no CPU device, so its answer would be about a GPU.
    if !memtrace_core::is_capture(&recorded.path) {
        output::say(format!("recorded to {file}"));
        return Ok(());
    }
    let data = input::read(Some(&recorded.path))?.data;
    let report = Report::first_look(&data)?;
    if report.sections.is_empty() {
        let why =
            if data.health.cut_off { "; it was ended, or its disk was full, before the first was written" } else { "" };
        output::say(format!("the program recorded no block to {file}{why}"));
        return Ok(());
    }
    output::tell_report(&Report { sections: Vec::new(), ..report });
    let cut = if data.health.cut_off { ", but for what was not written yet when the program was ended" } else { "" };
    let next = if is_newest { String::new() } else { format!(" {argument}") };
    let lines = [String::new(), format!("memtrace: recorded to {file}{cut}")];
    output::tell(lines.into_iter().chain([format!("memtrace: next: {} report{next}", called::name())]));
    Ok(())
}

/// The path, relative to the working directory if it is below it.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here).unwrap_or(path).display().to_string()
}

/// Quotes a file name, so that a shell reads it as one word.
fn quoted(file: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./+,:@%=".contains(c);
    // The name may look like an option.
    let file = if file.starts_with('-') { format!("./{file}") } else { file.to_owned() };
    if file.chars().all(is_plain) { file } else { format!("'{}'", file.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_spaces_and_quotes_are_one_word_of_a_shell() {
        for (file, word) in [
            ("a-1.memtrace", "a-1.memtrace"),
            ("my runs/ü.memtrace", "'my runs/ü.memtrace'"),
            ("-x", "./-x"),
            ("it's", r"'it'\''s'"),
        ] {
            assert_eq!(quoted(file), word);
        }
    }
}
