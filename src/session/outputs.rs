//! Public API of a finished recording: its report and its files, made as own work.

use std::fmt;
use std::fs;
use std::io::{IsTerminal, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use memtrace_core::analysis::{Moment, Since};
use memtrace_core::export::{self, Export, Format, Pprof, Text, file};
use memtrace_core::report::ReportOptions;
use memtrace_core::snapshot::{Device, SnapshotData};

use super::files::{base_dir, create};
use super::operators::Operators;
use super::process::default_name;
use super::say;
use crate::error::Error;
use crate::record::guard::{Own, own_work};

/// A finished recording: its data (see [`SnapshotData`]), a report, and files for other tools.
///
/// A file appears whole or not at all: it is written under a temporary name and renamed. An existing file is never
/// overwritten; the new one gets a number (`peak-2.svg`), and the methods return its path.
#[derive(Debug)]
#[must_use = "print its `report()` or `write` it to a file"]
pub struct Snapshot {
    data: Own<SnapshotData>,
}

impl Deref for Snapshot {
    type Target = SnapshotData;
    fn deref(&self) -> &SnapshotData {
        &self.data
    }
}

impl Snapshot {
    pub(crate) fn take(collect: impl FnOnce() -> SnapshotData) -> Self {
        Self::of(Own::make(collect))
    }

    pub(super) fn of(data: Own<SnapshotData>) -> Self {
        Self { data }
    }

    /// The report on the peak: a summary, findings and tables. Print it with `{}`. On a terminal it is 80 columns wide
    /// (or `COLUMNS`); elsewhere lines are not cut.
    pub fn report(&self) -> RenderedReport {
        RenderedReport::of(|| for_terminal().render(&self.data))
    }

    /// The report on growth: what was allocated since an earlier snapshot of the same session and is still live, by
    /// line, operator, module, scope and age. [`Moment::Growth`](crate::analysis::Moment::Growth) draws it as a
    /// flamegraph.
    ///
    /// ```no_run
    /// # let session = memtrace::start()?;
    /// let before = session.snapshot();
    /// // Some requests or steps later:
    /// println!("{}", session.snapshot().since(&before));
    /// # Ok::<(), memtrace::Error>(())
    /// ```
    pub fn since(&self, earlier: &Self) -> RenderedReport {
        RenderedReport::of(|| {
            let text = for_terminal();
            let moment = Moment::Growth(Since::of(&earlier.data));
            Text { report: ReportOptions { moment, ..text.report }, ..text }.render(&self.data)
        })
    }

    /// The report for another device, moment, width or number of rows, or with some sections only.
    ///
    /// ```no_run
    /// use memtrace::export::Text;
    /// use memtrace::report::ReportOptions;
    /// # let session = memtrace::start()?;
    /// let sections = vec!["peak_by_line".into(), "scopes".into()];
    /// let report = ReportOptions { sections, rows: 5, ..Default::default() };
    /// println!("{}", session.snapshot().report_with(&Text { width: 100, report, ..Default::default() })?);
    /// # Ok::<(), memtrace::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the log does not reach back to the [moment](crate::analysis::Moment), or there is no such scope.
    pub fn report_with(&self, options: &Text) -> Result<RenderedReport, Error> {
        Ok(RenderedReport { text: Own::try_make(|| options.render(&self.data))? })
    }

    /// The operator calls on the main device, in order, with the columns of torch.distributed's `MemoryTracker`: name,
    /// bytes added, memory afterwards and peak inside. Prints as a table.
    pub fn operators(&self) -> Operators {
        self.operators_on(None)
    }

    /// [`operators`](Self::operators) for a device; `None` is the main device.
    pub fn operators_on(&self, device: impl Into<Option<Device>>) -> Operators {
        let device = device.into();
        Operators::make(|| export::operators_of(&self.data, device))
    }

    /// Writes a file in the format of its extension, with that format's default options, and returns its path.
    ///
    /// [`export`] has the table of all formats. `.gz` after a format's extension compresses the file.
    ///
    /// # Errors
    /// If the extension names no format, the file cannot be written, or there is nothing to draw.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let format = Format::of(path.as_ref())?;
        create(path.as_ref(), |out| format.write(&self.data, out))
    }

    /// Writes a file in any format with options: one of [`export`], or your own. The name decides only whether the file
    /// is compressed (`.gz`).
    ///
    /// ```no_run
    /// use memtrace::export::{ChromeTrace, Flamegraph, Folded, Measure};
    /// # let session = memtrace::start()?;
    /// let snapshot = session.snapshot();
    /// snapshot.write_as("whole.trace.json.gz", &ChromeTrace { max_bytes: None, ..Default::default() })?;
    /// snapshot.write_as("count.svg", &Flamegraph(Folded { measure: Measure::Count, ..Default::default() }))?;
    /// # Ok::<(), memtrace::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be written, or there is nothing to draw.
    pub fn write_as(&self, path: impl AsRef<Path>, format: &dyn Export) -> Result<PathBuf, Error> {
        create(path.as_ref(), |out| format.write(&self.data, out))
    }

    /// Writes a [pprof profile](export::Pprof) for a server's `/debug/pprof/heap`, compressed with the feature `gzip`.
    /// The process's symbols are resolved once. `docs/servers.md` in the repository has a handler and its cost.
    ///
    /// ```no_run
    /// # let session = memtrace::start()?;
    /// let mut body = Vec::new();
    /// session.snapshot().write_pprof(&mut body)?; // the response, with the type application/octet-stream
    /// # Ok::<(), memtrace::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `out` fails.
    pub fn write_pprof(&self, mut out: impl Write) -> Result<(), Error> {
        let profile = Own::try_make(|| {
            let mut profile = Vec::new();
            file::compressed_or_plain(&mut profile, |out| Pprof::default().write(&self.data, out)).map(|_| profile)
        })?;
        // Written outside own work, because what the writer allocates is the program's memory.
        Ok(out.write_all(&profile).and_then(|()| out.flush())?)
    }

    /// A file name for this snapshot: host, program, pid, rank if there is one, and seconds since 1970.
    ///
    /// ```no_run
    /// # let session = memtrace::start()?;
    /// let snapshot = session.snapshot();
    /// snapshot.write(snapshot.file_name("pickle.gz"))?; // box_train_4711_rank0_1790000000.pickle.gz
    /// # Ok::<(), memtrace::Error>(())
    /// ```
    pub fn file_name(&self, extension: &str) -> String {
        default_name(&self.data.process, extension)
    }
}

/// Added to the error when a dump cannot be written.
pub(super) const LOST: &str = "the snapshot is lost";

/// A callback for [`Builder::on_trace_ready`](crate::Builder::on_trace_ready) that writes each snapshot to a folder, as
/// torch's `tensorboard_trace_handler` does. It writes a compressed timeline and a compressed PyTorch snapshot, with
/// names from [`Snapshot::file_name`]. Write errors are reported on stderr.
#[must_use = "give it to `Builder::on_trace_ready`"]
pub fn trace_handler(dir: impl Into<PathBuf>) -> impl FnMut(&Snapshot) + Send + 'static {
    let dir = dir.into();
    move |snapshot| {
        for extension in ["trace.json.gz", "pickle.gz"] {
            let path = Own::make(|| dir.join(snapshot.file_name(extension)));
            let _own = own_work();
            match snapshot.write(&*path) {
                Ok(path) => say(&format!("wrote {}", path.display())),
                Err(error) => say(&error.and(LOST).to_string()),
            }
        }
    }
}

/// Options for stdout: colours and a width if it is a terminal.
fn for_terminal() -> Text {
    if !std::io::stdout().is_terminal() {
        return Text::default();
    }
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    Text { color: !no_color, width: columns.unwrap_or(80), ..Text::default() }
}

/// A report as text; print it with `{}`.
#[derive(Debug)]
#[must_use = "print it: `println!(\"{}\", snapshot.report())`"]
pub struct RenderedReport {
    text: Own<String>,
}

impl RenderedReport {
    /// Renders a report. Its moment must be one that every snapshot has, such as the peak, so that there is no error.
    fn of(text: impl FnOnce() -> Result<String, memtrace_core::Error>) -> Self {
        Self { text: Own::make(|| text().unwrap_or_else(|error| error.to_string())) }
    }
}

impl fmt::Display for RenderedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Creates a new folder `NAME-1`, `NAME-2`, … for the outputs of one run, under `memtrace` in cargo's target folder if
/// this program is in one, or else in the working directory.
///
/// # Errors
/// If the folder cannot be created.
pub fn output_dir(name: &str) -> Result<PathBuf, Error> {
    let base = base_dir(Path::new(""));
    fs::create_dir_all(&base).map_err(|source| Error::output(&base, source))?;
    for number in 1..u32::MAX {
        let dir = base.join(format!("{name}-{number}"));
        match fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::output(&dir, error)),
        }
    }
    Err(memtrace_core::Error::exists(&base).into())
}
