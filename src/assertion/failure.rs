//! Why an assertion failed, as a report.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use super::measure::{Measured, Unattributed};
use super::setup::Needed;
use super::undecided::Undecided;
use crate::error::{Error, Kind};
use crate::export;
use crate::record::Leaves;
use crate::record::guard::Own;
use crate::session::{Snapshot, write_new};
use crate::snapshot::{Device, SnapshotData};
use crate::units::{Bytes, grouped, signed};
use crate::variable;

/// Rows of a table.
const ROWS: usize = 10;

/// Why an assertion about memory failed: prints the limit, what was measured, the lines, operators and scopes that
/// held it, and where the snapshot is that was saved.
///
/// `Debug` prints the same as `Display`, so that a test which returns it is readable.
pub struct Failure(Own<Report>);

struct Report {
    text: String,
    verdict: Verdict,
    snapshot: Option<PathBuf>,
}

impl Leaves for Failure {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Violated,
    Undecided,
    NotMade,
}

impl Failure {
    /// The limit was exceeded, what ought not to grow grew, …; else the assertion is undecided, or could not be made at all.
    pub fn is_violation(&self) -> bool {
        self.0.verdict == Verdict::Violated
    }

    /// What was measured is within the limits, but with what may have been done for it on other threads it would not be.
    pub fn is_undecided(&self) -> bool {
        self.0.verdict == Verdict::Undecided
    }

    /// The snapshot that was saved, if it could be: a pickle for PyTorch's memory_viz.
    pub fn snapshot(&self) -> Option<&Path> {
        self.0.snapshot.as_deref()
    }

    fn new(verdict: Verdict, text: String, snapshot: Option<PathBuf>) -> Self {
        Self(Own::new(Report { text, verdict, snapshot }))
    }

    /// With tables of what was live at the peak, and the snapshot saved.
    pub(super) fn at_peak(head: &str, measured: &Measured, needed: &Needed, device: Device) -> Self {
        Self::without_setup(head, measured, needed, |data| export::at_peak(data, device, ROWS))
    }

    /// With what `tables` says of what the code needs each time.
    pub(super) fn without_setup(
        head: &str,
        measured: &Measured,
        needed: &Needed,
        tables: impl FnOnce(&SnapshotData) -> String,
    ) -> Self {
        let setup = needed.setup().map_or(String::new(), |setup| format!("Note: {setup}\n"));
        Self::saved(head, measured, &needed.all, |_| tables(&needed.data), &setup)
    }

    /// With what `tables` says about the measurement's snapshot, which is saved.
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
        let end = match &saved {
            Ok(path) => format!("Snapshot: {} (drop it on pytorch.org/memory_viz)", path.display()),
            Err(error) => format!("No snapshot was saved: {error}"),
        };
        let (totals, tables) = (totals(measured), tables(snapshot));
        let text = format!("{head}\n{totals}{note}\n{}\n\n{end}\n", tables.trim_end());
        Self::new(Verdict::Violated, text, saved.ok())
    }

    /// It passes without what these threads did, and nobody can tell whether that was for this code.
    pub(super) fn undecided(what: &str, undecided: &Undecided) -> Self {
        let text = format!(
            "undecided: {what}\nThreads that were there before share memory with this code, and nobody can tell \
             for whom they worked:\n{}Have them begun inside of the code, let their work carry \
             `memtrace::Context`, count everything with `whole_process = true`, or leave them out with \
             `allow = \"a thread's or a function's name\"`",
            undecided.table()
        );
        Self::new(Verdict::Undecided, text, None)
    }

    pub(super) fn violation(text: String) -> Self {
        Self::new(Verdict::Violated, text, None)
    }
}

/// It could not be made.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self(Own::make(|| Report { text: error.to_string(), verdict: Verdict::NotMade, snapshot: None }))
    }
}

impl From<Kind> for Failure {
    fn from(kind: Kind) -> Self {
        Error::from(kind).into()
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

/// Sums, and what they are without.
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
    // The runner says which GPU it chose.
    let gpu = variable::value("MEMTRACE_GPU_USED");
    if let Some(used) = gpu.filter(|_| m.devices().iter().any(|on| matches!(on.device, Device::Cuda(_)))) {
        _ = writeln!(text, "On a {} GPU", used.display());
    }
    notes(m).iter().for_each(|note| _ = writeln!(text, "Note: {note}"));
    text
}

/// What the numbers are without.
pub(super) fn notes(measured: &Measured) -> Vec<String> {
    let mut notes = Vec::new();
    let Unattributed { bytes, allocations, pool_bytes, pool_allocations } = measured.unattributed;
    if pool_allocations > 0 {
        let (pool, count) = (Bytes(pool_bytes), grouped(pool_allocations));
        notes.push(format!(
            "unattributed: rayon's workers allocated {pool} in {count} allocations meanwhile, for this code or for \
             other; `measure_in_pool` counts what is done for this code"
        ));
    }
    if allocations > pool_allocations {
        let (others, count) = (Bytes(bytes - pool_bytes), grouped(allocations - pool_allocations));
        notes.push(format!(
            "unattributed: threads that carry no measurement allocated {others} in {count} allocations meanwhile"
        ));
    }
    if measured.unknown_frees > 0 {
        notes.push(format!("{} older blocks of unknown size were freed: net is without them", measured.unknown_frees));
    }
    if measured.lost_blocks > 0 {
        notes.push(format!("{} blocks were not counted for lack of memory", grouped(measured.lost_blocks)));
    }
    notes
}

/// To a new file called after the test: libtest and nextest name a test's thread after it.
fn save(snapshot: &Snapshot) -> Result<PathBuf, Error> {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("unnamed").replace("::", "-");
    let clean = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let name: String = test.chars().map(clean).take(100).collect();
    write_new(snapshot, &format!("{name}.pickle"))
}
