//! Output to the standard output, the standard error, or a new file. All text is printed here, with invisible
//! characters in its names made visible. A line that is passed to these functions is printed as one line, whatever it
//! contains.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use memtrace_core::export::{Export, LeftOut, Text, file, report_json};
use memtrace_core::report::{Report, ReportOptions};
use memtrace_core::snapshot::SnapshotData;
use memtrace_core::visible;

use crate::arguments::{ColorWhen, SelectionArgs};
use crate::failure::CommandFailure;
use crate::links::Links;

/// Prints a report as text or JSON. For a report on a recording, the recording is passed, so that the JSON has complete
/// tables.
pub(crate) fn print(
    report: &Report,
    of: Option<(&SnapshotData, &ReportOptions)>,
    selection: &SelectionArgs,
) -> Result<(), CommandFailure> {
    if selection.json {
        return print_shown(&report_json(report, of)?);
    }
    let text = text(selection);
    print_linked(&text.show(report), text.color, of.map(|(data, _)| &*data.process.working_dir))
}

/// Prints a report as text, in colours if the output is a terminal.
pub(crate) fn print_report(report: &Report) -> Result<(), CommandFailure> {
    print_linked(&Text { width: columns(), ..Text::default() }.show(report), has_color(ColorWhen::Auto), None)
}

/// Prints a rendered report. On a terminal, places in the source are clickable.
fn print_linked(text: &str, has_color: bool, working_dir: Option<&str>) -> Result<(), CommandFailure> {
    let is_plain = !has_color || !io::stdout().is_terminal();
    match Links::of_terminal(working_dir).filter(|_| !is_plain) {
        Some(links) => print_shown(&links.put_into(text)),
        None => print_shown(text),
    }
}

/// Prints lines on the standard output.
pub(crate) fn print_lines(lines: impl IntoIterator<Item = impl AsRef<str>>) -> Result<(), CommandFailure> {
    print_shown(&lines.into_iter().map(|line| visible::line(line.as_ref()).into_owned() + "\n").collect::<String>())
}

pub(crate) fn print_json(json: String) -> Result<(), CommandFailure> {
    print_shown(&visible::json(json))
}

/// Prints text whose names are already visible: a rendered report, or memtrace's own words. A reader that has gone
/// away, such as `head`, is no error.
pub(crate) fn print_shown(text: &str) -> Result<(), CommandFailure> {
    let mut out = io::stdout().lock();
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

/// The result of writing text to the standard output.
pub(crate) fn printed(written: io::Result<()>) -> Result<(), CommandFailure> {
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandFailure::usage(format!("cannot write to the standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a line on the standard error.
pub(crate) fn say(line: impl Display) {
    tell([format!("memtrace: {line}")]);
}

/// Prints lines on the standard error.
pub(crate) fn tell(lines: impl IntoIterator<Item = impl AsRef<str>>) {
    let text: String = lines.into_iter().map(|line| visible::line(line.as_ref()).into_owned() + "\n").collect();
    // If nobody reads this, or the disk is full, the exit code must not change.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Prints a rendered report on the standard error.
pub(crate) fn tell_report(report: &Report) {
    let text = Text { width: 100, ..Text::default() }.show(report);
    let _ = write!(io::stderr(), "\n{text}");
}

fn text(selection: &SelectionArgs) -> Text {
    Text { width: width(io::stdout().is_terminal()), color: has_color(selection.color), ..Text::default() }
}

fn has_color(when: ColorWhen) -> bool {
    match when {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto => {
            io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        }
    }
}

/// The number of columns for a picture in the terminal.
pub(crate) fn columns() -> usize {
    let width = width(io::stdout().is_terminal());
    if width == usize::MAX { 80 } else { width }
}

/// The path of an output file beside a recording, for instance `PROGRAM-3.svg` beside `PROGRAM-3.memtrace`.
pub(crate) fn beside(recording: &Path, extension: &str) -> PathBuf {
    let name = recording.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".gz").unwrap_or(&name);
    recording.with_file_name(stem.strip_suffix(".memtrace").unwrap_or(stem).to_owned() + "." + extension)
}

/// The value of `COLUMNS`, or the width of the terminal. In files and pipes, lines are not cut without `COLUMNS`.
pub(crate) fn width(is_terminal: bool) -> usize {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns
        .or(is_terminal.then(|| terminal_size::terminal_size().map_or(80, |(width, _)| width.0.into())))
        .unwrap_or(usize::MAX)
}

/// The requested file, or the one beside the recording. The requested name must not have another format's extension.
pub(crate) fn named(asked: Option<&PathBuf>, recording: &Path, extension: &str) -> Result<PathBuf, CommandFailure> {
    let kind = extension.rsplit('.').next().unwrap_or(extension);
    let Some(path) = asked else { return Ok(beside(recording, extension)) };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let plain = Path::new(name.strip_suffix(".gz").unwrap_or(&name));
    if plain.extension().is_some_and(|other| !other.eq_ignore_ascii_case(kind)) {
        let path = path.display();
        return Err(CommandFailure::usage(format!("cannot write .{kind} to {path}; give a name that ends in .{kind}")));
    }
    Ok(path.clone())
}

/// Writes a recording to a file, or to the standard output for `-`. Says where the file is.
pub(crate) fn export(data: &SnapshotData, format: &dyn Export, path: &Path) -> Result<(), CommandFailure> {
    made(data, format, path).map(drop)
}

/// Writes a recording, and returns the file's path; `None` for the standard output.
pub(crate) fn made(data: &SnapshotData, format: &dyn Export, path: &Path) -> Result<Option<PathBuf>, CommandFailure> {
    if path == Path::new("-") {
        let mut out = StandardOutput { out: io::stdout().lock(), failed: None };
        let written = format.write(data, &mut out).and_then(|_| Ok(out.flush()?));
        return match out.failed {
            Some(error) => printed(Err(error)).map(|()| None),
            None => Ok(written.map(|()| None)?),
        };
    }
    let (path, left_out): (PathBuf, LeftOut) = file::create(path, |out| format.write(data, out))?;
    say(format!("wrote {}", path.display()));
    if !left_out.is_nothing() {
        say(left_out);
    }
    Ok(Some(path))
}

/// The standard output, with the reason why it could not be written to, because the error of a format does not have
/// this reason.
struct StandardOutput {
    out: io::StdoutLock<'static>,
    failed: Option<io::Error>,
}

impl StandardOutput {
    fn noted<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.map_err(|error| {
            let kind = error.kind();
            if kind != io::ErrorKind::Interrupted {
                self.failed.get_or_insert(error);
            }
            kind.into()
        })
    }
}

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes);
        self.noted(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.out.flush();
        self.noted(flushed)
    }
}
