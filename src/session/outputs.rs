//! What people call on a finished recording: reports and files, as memtrace's own work.

use std::fmt;
use std::fs;
use std::io::IsTerminal;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use super::operators::Operators;
use super::output::base_dir;
use super::process::default_name;
use super::say;
use super::writing::create;
use crate::analysis::{Moment, Since};
use crate::error::Error;
use crate::export::{self, Export, Format, Text};
use crate::record::guard::{Own, own_work};
use crate::report::ReportOptions;
use crate::snapshot::{Device, SnapshotData};

/// A finished recording: its data (see [`SnapshotData`]), a report, and files for people's tools.
///
/// A file appears whole or not at all: it is written to a temporary name and renamed. If there is one of that name already, the
/// new one has a number (`peak-2.svg`), and the path that it has is given back.
#[derive(Debug)]
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

    /// Who held the memory at the peak: an answer in sentences, what could be better, tables. Print it with `{}`; it is 80
    /// columns wide on a terminal (or `COLUMNS`), and uncut elsewhere.
    pub fn report(&self) -> Report {
        Report::of(|| for_terminal().render(&self.data))
    }

    /// What was allocated since an earlier snapshot of the same session and is still live: by line, operator, module, scope and
    /// age. [`Moment::Growth`](crate::analysis::Moment::Growth) draws the same as a flamegraph.
    ///
    /// ```no_run
    /// # let session = memtrace::start()?;
    /// let before = session.snapshot();
    /// // Some requests or steps later:
    /// println!("{}", session.snapshot().since(&before));
    /// # Ok::<(), memtrace::Error>(())
    /// ```
    pub fn since(&self, earlier: &Self) -> Report {
        Report::of(|| {
            let (text, moment) = (for_terminal(), Moment::Growth(Since::of(&earlier.data)));
            let text = Text { report: ReportOptions { moment, ..text.report }, ..text };
            text.render(&self.data)
        })
    }

    /// The same for another device, moment, width, number of rows, or with some sections only.
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
    /// If the [moment](crate::analysis::Moment) is not known: the log does not reach back to it, or there is no such scope.
    pub fn report_with(&self, options: &Text) -> Result<Report, Error> {
        Ok(Report { text: Own::try_make(|| options.render(&self.data))? })
    }

    /// The calls of operators on the main device, one after another: what they are called, what they added, the memory after each
    /// and the peak inside it. As torch.distributed's `MemoryTracker`; prints as a table.
    pub fn operators(&self) -> Operators {
        self.operators_on(None)
    }

    /// The same for a device; the main device if `None`.
    pub fn operators_on(&self, device: impl Into<Option<Device>>) -> Operators {
        let device = device.into();
        Operators::make(|| export::operators_of(&self.data, device))
    }

    /// Writes a file in the format that the end of its name says, with the options that the format has by default, and gives its
    /// path: `.pickle` (PyTorch's `memory_viz`), `.trace.json` (Chrome, Perfetto), `.layout.json` (memory layout), `.json` (the
    /// report's numbers), `.svg` (flamegraph of the peak), `.folded`, `.txt` (the report), `.memtrace` (a capture),
    /// `.operators.json`, `.operators.csv` and `.operators.svg` (see [`operators`](Self::operators)), `.categories.json`,
    /// `.categories.raw.json`, `.categories.svg` and `.categories.html` (the bytes of each category over time, as
    /// torch.profiler's `export_memory_timeline`). [`export`] has the formats one by one.
    ///
    /// As with all files, one whose name ends in `.gz` is compressed.
    ///
    /// # Errors
    /// If the name says no format, the file cannot be written, or there is nothing to draw.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<PathBuf, Error> {
        let format = Format::of(path.as_ref())?;
        create(path.as_ref(), |out| format.write(&self.data, out))
    }

    /// Writes a file in any format with options: those of [`export`], or one of your own. The name says nothing but whether it is
    /// compressed.
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

    /// A name for a file of this snapshot: host, program, pid, rank if there is one, seconds since 1970.
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

/// What becomes of a snapshot that nobody called for and that cannot be written.
pub(super) const LOST: &str = "the snapshot is lost";

/// A callback for [`Builder::on_trace_ready`](crate::Builder::on_trace_ready) that writes each snapshot to
/// a folder, as torch's `tensorboard_trace_handler` does: a timeline and a PyTorch snapshot, compressed,
/// named after host, program, pid, rank and time. What cannot be written is said on the standard error.
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

/// Colours on a terminal, unless the user wants none, and its width.
fn for_terminal() -> Text {
    if !std::io::stdout().is_terminal() {
        return Text::default();
    }
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    Text { color: !no_color, width: columns.unwrap_or(80), ..Text::default() }
}

/// A report as text: made once, printed as often as wanted.
#[derive(Debug)]
pub struct Report {
    text: Own<String>,
}

impl Report {
    /// Of a moment that is always known.
    fn of(text: impl FnOnce() -> Result<String, memtrace_core::Error>) -> Self {
        Self { text: Own::make(|| text().unwrap_or_else(|error| error.to_string())) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Makes a new folder `NAME-1`, `NAME-2`, … for the outputs of one run, under `memtrace` in cargo's target folder if this
/// program lies in one, or else in the working directory.
///
/// # Errors
/// If the folder cannot be made.
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
