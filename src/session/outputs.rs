//! What people call on a finished recording: reports and files, as memtrace's own work.

use std::fmt;
use std::fs;
use std::io::{IsTerminal, Write};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use super::operators::Operators;
use super::output::{self, base_dir};
use super::process::default_name;
use super::say;
use super::writing::create;
use crate::error::Error;
use crate::export::categories;
use crate::export::chrome::{layout, timeline};
use crate::export::file::Place;
use crate::export::{self, Format, LeftOut};
use crate::record::guard::{Own, own_work};
use crate::snapshot::{Device, SnapshotData};

/// A finished recording: its data (see [`SnapshotData`]), a report, and files for people's tools.
///
/// A file appears whole or not at all: it is written to a temporary name and renamed. One of the same name is replaced, as
/// torch's `_dump_snapshot` does it.
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

    /// Who held the memory at the peak, as tables; print it with `{}`.
    pub fn report(&self) -> Report {
        Report { text: Own::make(|| export::text::to_string(&self.data, &text_options())) }
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

    /// A file in the format that the end of its name says: `.pickle` (PyTorch's `memory_viz`),
    /// `.trace.json` (Chrome, Perfetto), `.layout.json` (memory layout), `.json` (the report's numbers),
    /// `.svg` (flamegraph of the peak), `.folded`, `.txt` (the report), `.memtrace` (a capture), `.operators.json`,
    /// `.operators.csv` and `.operators.svg` (see [`operators`](Self::operators)), `.categories.json`,
    /// `.categories.raw.json`, `.categories.svg` and `.categories.html` (see
    /// [`write_category_timeline`](Self::write_category_timeline)).
    ///
    /// As with all files, one whose name ends in `.gz` is compressed.
    ///
    /// # Errors
    /// If the name says no format, the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.write_to(Place::Replaced(path.as_ref()))
    }

    /// With the options that every format has by default.
    pub(super) fn write_to(&self, place: Place<'_>) -> Result<(), Error> {
        let format = Format::of(place.path())?;
        create(place, |out| format.write(&self.data, out))
    }

    /// The bytes of each category over time, exact at every record, as torch.profiler's `export_memory_timeline`: stacked
    /// areas as a page (`.categories.html`) or a picture (`.categories.svg`), the numbers as PyTorch writes them
    /// (`.categories.json`, `.categories.raw.json`; see [`categories::write`] and [`categories::write_raw`]), by the end
    /// of the file's name. One whose name ends in `.gz` is compressed.
    ///
    /// # Errors
    /// If the name says none of these, the file cannot be written, or there is nothing to draw.
    pub fn write_category_timeline(&self, path: impl AsRef<Path>, options: &categories::Options) -> Result<(), Error> {
        self.create_category_timeline(Place::Replaced(path.as_ref()), options)
    }

    fn create_category_timeline(&self, place: Place<'_>, options: &categories::Options) -> Result<(), Error> {
        let format = Format::of(place.path())?;
        create(place, |out| format.write_timeline(&self.data, options, out))
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

    /// Everything, to be read again with [`read_capture`](crate::read_capture), also elsewhere.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_capture(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.write_capture_with(path, None)
    }

    /// The same, of at most `max_bytes` if that is possible: the oldest records are left out, as if the
    /// log had been shorter. What was live at the peak and at the end stays.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_capture_with(&self, path: impl AsRef<Path>, max_bytes: Option<u64>) -> Result<(), Error> {
        self.create(path.as_ref(), |out| export::write_capture(&self.data, max_bytes, out))
    }

    /// The report's numbers as JSON.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_json(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.write_json_with(path, &export::json::Options::default())
    }

    /// The report's numbers as JSON, with options: compact, a size to keep to.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_json_with(&self, path: impl AsRef<Path>, options: &export::json::Options) -> Result<(), Error> {
        self.create(path.as_ref(), |out| export::json::write(&self.data, options, out))
    }

    /// A snapshot pickle for PyTorch's `memory_viz` (pytorch.org/memory_viz).
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_pytorch(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.write_pytorch_with(path, &export::pytorch::Options::default())
    }

    /// The same with options: one device, a size to keep to.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_pytorch_with(&self, path: impl AsRef<Path>, options: &export::pytorch::Options) -> Result<(), Error> {
        self.create(path.as_ref(), |out| export::pytorch::write(&self.data, options, out))
    }

    /// A timeline for Perfetto (ui.perfetto.dev) and `chrome://tracing`: scopes, every alloc and free, the
    /// total as a curve, and its peak.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_chrome(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.write_chrome_with(path, &timeline::Options::default())
    }

    /// The same with options: one device, whole stacks as text, a size to keep to.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_chrome_with(&self, path: impl AsRef<Path>, options: &timeline::Options) -> Result<(), Error> {
        self.create(path.as_ref(), |out| timeline::write(&self.data, options, out))
    }

    /// What lay where in memory, step by step, for the same viewers: one row a step with the blocks that
    /// were live at the step's highest moment; the horizontal axis is bytes. As ExecuTorch's memory trace.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_memory_layout(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.write_memory_layout_with(path, &layout::Options::default())
    }

    /// The same with options: what a step is, packed instead of by address, a size to keep to.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_memory_layout_with(&self, path: impl AsRef<Path>, options: &layout::Options) -> Result<(), Error> {
        self.create(path.as_ref(), |out| layout::write(&self.data, options, out))
    }

    /// A flamegraph (SVG) of what was live at the peak, by bytes.
    ///
    /// # Errors
    /// If the file cannot be written, or nothing was live at the peak.
    #[cfg(feature = "flamegraph")]
    pub fn write_flamegraph(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        self.write_flamegraph_with(path, &export::flamegraph::Options::default())
    }

    /// A flamegraph (SVG) of what was live at the peak, with options: by count, another device.
    ///
    /// # Errors
    /// If the file cannot be written, or nothing was live at the peak.
    #[cfg(feature = "flamegraph")]
    pub fn write_flamegraph_with(
        &self,
        path: impl AsRef<Path>,
        options: &export::flamegraph::Options,
    ) -> Result<(), Error> {
        self.create(path.as_ref(), |out| export::flamegraph::write(&self.data, options, out))
    }

    /// Folded stacks of what was live at the peak, for flamegraph tools: `outer;…;inner bytes`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write_folded(&self, path: impl AsRef<Path>, options: &export::folded::Options) -> Result<(), Error> {
        self.create(path.as_ref(), |out| export::folded::write(&self.data, options, out))
    }

    fn create(
        &self,
        path: &Path,
        content: impl FnOnce(&mut dyn Write) -> Result<LeftOut, memtrace_core::Error>,
    ) -> Result<(), Error> {
        create(Place::Replaced(path), content)
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
            match output::beside(&path, |path| snapshot.write_to(Place::New(path))) {
                Ok(path) => say(&format!("wrote {}", path.display())),
                Err(error) => say(&error.and(LOST).to_string()),
            }
        }
    }
}

/// Colours on a terminal, unless the user wants none.
fn text_options() -> export::text::Options {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    export::text::Options { color: std::io::stdout().is_terminal() && !no_color, ..export::text::Options::default() }
}

/// A report as text: made once, printed as often as wanted.
#[derive(Debug)]
pub struct Report {
    text: Own<String>,
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
