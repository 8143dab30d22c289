//! The failure of a memory assertion: its text, and the snapshot that it saves.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use memtrace_core::export;
use memtrace_core::snapshot::{Device, SnapshotData};
use memtrace_core::units::{Bytes, grouped, signed};
use memtrace_core::visible;

use super::measure::{Measured, Unattributed};
use super::setup::Needed;
use super::undecided::Undecided;
use crate::error::Error;
use crate::record::Leaves;
use crate::record::guard::Own;
use crate::session::{Snapshot, write_new};
use crate::variable;

/// The most rows of a table.
pub(super) const ROWS: usize = 10;

/// A failed memory assertion. Prints the limit, the measurement, the lines, operators and scopes that held the memory,
/// and the path of a saved snapshot.
///
/// `Debug` prints the same as `Display`, so that the output of a test that returns a `Failure` is readable.
pub struct Failure(Own<FailureReport>);

struct FailureReport {
    text: String,
    verdict: FailureKind,
    snapshot: Option<PathBuf>,
}

impl Leaves for Failure {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    Violated,
    Undecided,
    NotRun,
}

impl Failure {
    /// True if the code violates the assertion: a limit was exceeded, or something leaked or grew. Otherwise the
    /// verdict is undecided, or the assertion could not run, for instance because the allocator is not installed.
    pub fn is_violation(&self) -> bool {
        self.0.verdict == FailureKind::Violated
    }

    /// True if the evidence neither satisfies nor violates the assertion. Either the measurement alone satisfies it,
    /// but not together with work that other threads may have done for the code; or a GPU's memory lies within the
    /// range of what may be needed.
    pub fn is_undecided(&self) -> bool {
        self.0.verdict == FailureKind::Undecided
    }

    /// The path of the saved snapshot, a pickle for PyTorch's memory_viz, if it could be written.
    pub fn snapshot(&self) -> Option<&Path> {
        self.0.snapshot.as_deref()
    }

    /// Callers pass the names in the text through `visible::line` first. What is invisible nevertheless is made visible
    /// here.
    fn new(verdict: FailureKind, text: &str, snapshot: Option<PathBuf>) -> Self {
        Self(Own::new(FailureReport { text: visible::lines(text).into_owned(), verdict, snapshot }))
    }

    /// A violation with tables of what was live at the peak.
    pub(super) fn at_peak(head: &str, measured: &Measured, needed: &Needed, device: Device) -> Self {
        Self::without_setup(head, measured, needed, |data| export::at_peak(data, device, ROWS))
    }

    /// A violation with tables that leave one-time initialization out.
    pub(super) fn without_setup(
        head: &str,
        measured: &Measured,
        needed: &Needed,
        tables: impl FnOnce(&SnapshotData) -> String,
    ) -> Self {
        let setup = needed.setup().map_or(String::new(), |setup| format!("Note: {setup}\n"));
        Self::saved(head, measured, &needed.all, |_| tables(&needed.data), &setup)
    }

    /// A violation with tables of the measurement's snapshot.
    pub(super) fn with_snapshot(head: &str, measured: &Measured, tables: impl FnOnce(&SnapshotData) -> String) -> Self {
        Self::saved(head, measured, &measured.snapshot(), tables, "")
    }

    fn saved(
        head: &str,
        measured: &Measured,
        snapshot: &Snapshot,
        tables: impl FnOnce(&SnapshotData) -> String,
        note: &str,
    ) -> Self {
        let saved = save(snapshot);
        let end = place_of(&saved);
        let (totals, tables) = (totals(measured), tables(snapshot));
        let text = format!("{head}\n{totals}{note}\n{}\n\n{end}\n", tables.trim_end());
        Self::new(FailureKind::Violated, &text, saved.ok())
    }

    pub(super) fn undecided(what: &str, undecided: &Undecided) -> Self {
        let text = format!(
            "undecided: {what}\nThreads that existed before this code ran may have worked for it; memtrace cannot see whether they did:\n{}\
             Start them inside the code, hand them a `memtrace::Context`, count the \
             whole process with `whole_process = true`, or exclude them with `allow = \"name of a thread or function\"`",
            undecided.table()
        );
        Self::new(FailureKind::Undecided, &text, None)
    }

    /// A violation by threads that existed before the measurement.
    pub(super) fn in_step(what: &str, undecided: &Undecided) -> Self {
        Self::new(FailureKind::Violated, &format!("{what}:\n{}", undecided.table()), None)
    }

    /// A violation with its reasons and a saved snapshot, without a measurement.
    pub(super) fn of_snapshot(text: &str, snapshot: &Snapshot) -> Self {
        let saved = save(snapshot);
        Self::new(FailureKind::Violated, &format!("{text}\n{}\n", place_of(&saved)), saved.ok())
    }

    /// An undecided verdict: the recording does not show whether the assertion holds.
    pub(super) fn unknown(text: &str) -> Self {
        Self::new(FailureKind::Undecided, text, None)
    }

    /// A violation in one line.
    pub(super) fn violation(text: &str) -> Self {
        Self::new(FailureKind::Violated, &visible::line(text), None)
    }
}

fn place_of(saved: &Result<PathBuf, Error>) -> String {
    match saved {
        Ok(path) => {
            let path = path.to_string_lossy();
            format!("Snapshot: {} (drop it on pytorch.org/memory_viz)", visible::line(&path))
        }
        Err(error) => format!("No snapshot was saved: {error}"),
    }
}

/// The assertion could not run.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(Own::make(|| FailureReport { text: error.to_string(), verdict: FailureKind::NotRun, snapshot: None }))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl std::error::Error for Failure {}

/// The totals, by device if there are several, with notes.
fn totals(measured: &Measured) -> String {
    let m = measured;
    let (allocations, net) = (grouped(m.allocations), signed(m.net));
    let mut text = format!("Allocated {} in {allocations} allocations; net {net}\n", Bytes(m.allocated));
    if m.devices().len() > 1 {
        for on in m.devices() {
            let peak = grouped(on.peak);
            _ = writeln!(text, "    {}: peak {} ({peak} bytes), net {}", on.device, Bytes(on.peak), signed(on.net));
        }
    }
    // Set by the test runner, which chooses the GPU.
    let gpu = variable::value("MEMTRACE_GPU_USED");
    if let Some(used) = gpu.filter(|_| m.devices().iter().any(|on| matches!(on.device, Device::Cuda(_)))) {
        _ = writeln!(text, "On a {} GPU", visible::line(&used.to_string_lossy()));
    }
    for note in notes(m) {
        _ = writeln!(text, "Note: {note}");
    }
    text
}

/// Notes on memory that the totals leave out.
pub(super) fn notes(measured: &Measured) -> Vec<String> {
    let mut notes = Vec::new();
    let Unattributed { bytes, allocations, pool_bytes, pool_allocations } = measured.unattributed;
    if pool_allocations > 0 {
        let (pool, count) = (Bytes(pool_bytes), grouped(pool_allocations));
        notes.push(format!(
            "unattributed: rayon's workers allocated {pool} in {count} allocations meanwhile, for this code or for \
             other code; `measure_in_pool` counts only their work for this code"
        ));
    }
    if allocations > pool_allocations {
        let (others, count) = (Bytes(bytes - pool_bytes), grouped(allocations - pool_allocations));
        notes.push(format!(
            "unattributed: threads outside any measurement allocated {others} in {count} allocations meanwhile"
        ));
    }
    if measured.unknown_frees > 0 {
        notes.push(format!("{} older blocks of unknown size were freed, which net leaves out", measured.unknown_frees));
    }
    if measured.lost_blocks > 0 {
        notes.push(format!("{} blocks were not counted for lack of memory", grouped(measured.lost_blocks)));
    }
    notes
}

/// Saves to a new file named after the test. libtest and nextest give each test's thread the test's name.
fn save(snapshot: &Snapshot) -> Result<PathBuf, Error> {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed").replace("::", "-");
    let clean = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = test.chars().map(clean).take(100).collect();
    write_new(snapshot, &format!("{name}.pickle"))
}
