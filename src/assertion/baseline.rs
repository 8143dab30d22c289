//! Baselines: peaks of earlier runs, stored in files next to the tests.
//!
//! The files are text without hashes, so a review shows what changed. An earlier run's line is found again by its line
//! number or by its function.

use std::env;
use std::path::{Path, PathBuf};

use memtrace_core::analysis::{Key, device_or_main};
use memtrace_core::baseline::{BaselineEntry, Baselines, LINES, LineChange, changes};
use memtrace_core::export::table;
use memtrace_core::snapshot::{Device, SnapshotData};
use memtrace_core::units::{Bytes, grouped, signed};
use memtrace_core::{DeviceView, visible};

use super::baseline_file::{entries_of, put};
use super::failure::Failure;
use super::peak_check::PeakCheck;
use super::pending;
use crate::error::Error;
use crate::record::Leaves;
use crate::record::guard::Own;
use crate::session::say;
use crate::variable;

/// A percentage, in hundredths of a percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Percent(u32);

impl Leaves for Percent {}

impl Default for Percent {
    fn default() -> Self {
        Self(100)
    }
}

impl Percent {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let hundredths = number.map(|percent| percent * 100.0).filter(|n| (0.0..1e9).contains(n));
        let wrong = || Error::wrong(format!("cannot read {text:?} as a tolerance; write it like 5% or 0.5%"));
        hundredths.map(|n| Self(n.round() as u32)).ok_or_else(wrong)
    }

    fn of(self, bytes: u64) -> u64 {
        (u128::from(bytes) * u128::from(self.0) / 10_000).try_into().unwrap_or(u64::MAX)
    }
}

impl std::fmt::Display for Percent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 100.0)
    }
}

/// The baseline of one assertion.
#[derive(Debug)]
pub(super) struct Baseline {
    name: Own<String>,
    /// The source file, as in `file!()`.
    source: &'static str,
}

impl Baseline {
    pub(super) fn named(name: &str, source: &'static str) -> Self {
        Self { name: Own::make(|| visible::line(name.trim()).into_owned()), source }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Compares a device's peak with the baseline. If `all`, other devices that have a baseline of this name are
    /// compared, too. Also returns the bytes that the baseline had before.
    pub(super) fn check(
        &self,
        all: bool,
        device: Device,
        held: &PeakCheck<'_>,
        tolerance: Percent,
    ) -> (Result<(), Failure>, Option<u64>) {
        let (path, entries) = match self.read() {
            Ok(read) => read,
            Err(error) => return (Err(error.into()), None),
        };
        let known = |device| entries.get(&self.name, &row_of(device, held));
        let others = held.measured.devices().iter().map(|on| on.device).filter(|on| all && *on != device);
        let mut devices = [device].into_iter().chain(others.filter(|on| known(*on).is_some()));
        let outcome = devices.try_for_each(|device| self.check_device((&path, known(device)), device, held, tolerance));
        (outcome, known(device).map(|entry| entry.peak))
    }

    /// Compares one device, or stores its peak as the baseline.
    fn check_device(
        &self,
        (path, known): (&Path, Option<&BaselineEntry>),
        device: Device,
        held: &PeakCheck<'_>,
        tolerance: Percent,
    ) -> Result<(), Failure> {
        let peak = held.measured.device(device).peak;
        let row = row_of(device, held);
        pending::used(path, &self.name, &row);
        match known {
            _ if updates() => Ok(self.write(path, device, held, known)?),
            None if in_ci() => {
                self.put_up(path, device, held);
                Err(Failure::violation(&self.is_missing(path, &row)))
            }
            None => {
                let needed = held.needed().peak(device);
                let limit = needed.saturating_add(tolerance.of(needed));
                held.decided(needed, limit, device, || format!("the peak for a new baseline `{}`", *self.name))?;
                Ok(self.write(path, device, held, None)?)
            }
            Some(known) => {
                let slack = tolerance.of(known.peak);
                let is_below = peak < known.peak.saturating_sub(slack);
                if is_below {
                    say(&format!("{}: the peak is below its baseline by {}", *self.name, Bytes(known.peak - peak)));
                    self.put_up(path, device, held);
                }
                let over = |peak| {
                    self.put_up(path, device, held);
                    grown(held, peak, device, known, tolerance, &root_of(path, self.source))
                };
                let limit = known.peak.saturating_add(slack);
                let outcome =
                    held.at_most(limit, device, over, || format!("the peak matches the baseline `{}`", *self.name));
                if outcome.is_ok() && !is_below {
                    pending::withdraw(path, &self.name, &row);
                }
                outcome
            }
        }
    }

    /// Compares bytes that are not a measured peak, such as wasted ones. `over` makes the failure. `row` is the second
    /// half of the entry's key.
    pub(super) fn check_bytes(
        &self,
        row: &str,
        (bytes, lines): (u64, Vec<(u64, String)>),
        tolerance: Percent,
        over: impl FnOnce(&BaselineEntry, u64) -> Failure,
    ) -> Result<(), Failure> {
        let (path, entries) = self.read()?;
        let root = root_of(&path, self.source);
        let entry = entry_of((&self.name, row.to_owned()), bytes, lines, &root);
        let known = entries.get(&self.name, row).filter(|_| !updates());
        pending::used(&path, &self.name, row);
        match known {
            Some(known) if bytes.abs_diff(known.peak) <= tolerance.of(known.peak) => {
                pending::withdraw(&path, &self.name, row);
                Ok(())
            }
            Some(known) => {
                pending::put(&path, entry);
                let limit = known.peak.saturating_add(tolerance.of(known.peak));
                if bytes > limit { Err(over(known, limit)) } else { Ok(()) }
            }
            None if in_ci() && !updates() => {
                pending::put(&path, entry);
                Err(Failure::violation(&self.is_missing(&path, row)))
            }
            None => {
                pending::withdraw(&path, &self.name, row);
                say(&format!("baseline `{}` in {}: {}", *self.name, path.display(), Bytes(bytes)));
                Ok(put(&path, entry)?)
            }
        }
    }

    /// Offers the measurement for `cargo memtrace baselines review`.
    fn put_up(&self, path: &Path, device: Device, held: &PeakCheck<'_>) {
        let key = (&**self.name, row_of(device, held));
        pending::put(path, entry(key, &held.needed().data, device, &root_of(path, self.source)));
    }

    fn is_missing(&self, path: &Path, device: &str) -> String {
        format!(
            "there is no baseline `{}` for {device} in {}; run the tests once with MEMTRACE_UPDATE_BASELINES=1, review \
             that file and commit it",
            *self.name,
            path.display()
        )
    }

    /// Stores the measurement as the baseline, if it differs from the present one.
    fn write(
        &self,
        path: &Path,
        device: Device,
        held: &PeakCheck<'_>,
        was: Option<&BaselineEntry>,
    ) -> Result<(), Error> {
        let data = &held.needed().data;
        let entry = entry((&self.name, row_of(device, held)), data, device, &root_of(path, self.source));
        if was == Some(&entry) {
            return Ok(());
        }
        let what = match was {
            Some(was) => format!("{} → {}", Bytes(was.peak), Bytes(entry.peak)),
            None => format!("new, {}", Bytes(entry.peak)),
        };
        pending::withdraw(path, &entry.name, &entry.device);
        put(path, entry)?;
        say(&format!("baseline `{}` in {}: {what}", *self.name, path.display()));
        Ok(())
    }

    fn read(&self) -> Result<(PathBuf, Baselines), Error> {
        let path = beside(self.source)?;
        let entries = entries_of(&path)?;
        Ok((path, entries))
    }
}

/// `tests/model.peaks.txt` for `tests/model.rs`. The compiler's paths start at the workspace's root, but tests run in
/// their package's folder. So the source file is looked for from each folder above, too.
fn beside(source: &str) -> Result<PathBuf, Error> {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).or_else(|| env::current_dir().ok());
    let package = package.unwrap_or_default();
    let found = package.ancestors().map(|folder| folder.join(source)).find(|path| path.is_file());
    found.map(|path| path.with_extension("peaks.txt")).ok_or_else(|| {
        Error::wrong(format!(
            "cannot find {source} from {}; baselines are stored next to the source file, so run the tests with cargo \
             in the source tree",
            package.display()
        ))
    })
}

/// The workspace's folder with a trailing slash.
fn root_of(baselines: &Path, source: &str) -> String {
    let source = Path::new(source).with_extension("peaks.txt");
    let path = baselines.to_string_lossy();
    path.strip_suffix(&*source.to_string_lossy()).unwrap_or_default().to_owned()
}

/// The device, and whether the whole process was measured: the second half of an entry's key.
fn row_of(device: Device, held: &PeakCheck<'_>) -> String {
    let of = if held.counted.whole_process { " (whole process)" } else { "" };
    format!("{device}{of}")
}

fn entry(key: (&str, String), data: &SnapshotData, device: Device, root: &str) -> BaselineEntry {
    let peak = data.device(device).map_or(0, |device| device.peak.bytes);
    entry_of(key, peak, peak_lines(data, device), root)
}

/// Paths are stored relative to `root`, because other machines have the workspace elsewhere.
fn entry_of((name, row): (&str, String), peak: u64, lines: Vec<(u64, String)>, root: &str) -> BaselineEntry {
    let relative = |label: String| visible::line(label.strip_prefix(root).unwrap_or(&label)).into_owned();
    let mut lines: Vec<_> = lines.into_iter().map(|(bytes, label)| (bytes, relative(label))).collect();
    if lines.len() > LINES {
        let rest = lines.split_off(LINES - 1);
        let bytes = rest.iter().map(|(bytes, _)| bytes).sum();
        lines.push((bytes, format!("({} more lines)", rest.len())));
    }
    BaselineEntry { name: name.to_owned(), device: row, peak, lines }
}

fn peak_lines(data: &SnapshotData, device: Device) -> Vec<(u64, String)> {
    let Some(device) = device_or_main(data, Some(device)) else { return Vec::new() };
    DeviceView::of(data, device).by(Key::Line).rows.clone().into_iter().map(|row| (row.bytes, row.label)).collect()
}

/// The failure for a peak over its baseline, with the changes by line.
fn grown(
    held: &PeakCheck<'_>,
    peak: u64,
    device: Device,
    known: &BaselineEntry,
    tolerance: Percent,
    root: &str,
) -> Failure {
    let share = (peak - known.peak) as f64 / known.peak.max(1) as f64 * 100.0;
    let (now, bytes, was) = (Bytes(peak), grouped(peak), Bytes(known.peak));
    let over = Bytes(peak - known.peak);
    let head = format!(
        "peak of {now} ({bytes} bytes) on {device} is over its baseline `{}` of {was} by {over}, {share:.1} %; \
         {tolerance} is allowed\n(if this is intended: `cargo memtrace baselines review`, or run with \
         MEMTRACE_UPDATE_BASELINES=1)",
        known.name
    );
    Failure::without_setup(&head, held.measured, held.needed(), |data| {
        let now = entry((&known.name, known.device.clone()), data, device, root).lines;
        let changes = table_of_changes(&changes(&known.lines, &now));
        format!("Against the baseline, by line\n{changes}\n{}", memtrace_core::export::at_peak(data, device, LINES))
    })
}

fn table_of_changes(changes: &[LineChange]) -> String {
    let mut table = table::TextTable::new(&["Change", "Now", "Baseline", "Location"], table::Cut::Start);
    for LineChange { now, was, line } in changes.iter().filter(|change| change.now != change.was) {
        let change = signed(*now as i64 - *was as i64);
        table.row(vec![change, Bytes(*now).to_string(), Bytes(*was).to_string(), line.clone()]);
    }
    table.lines(100).join("\n") + "\n"
}

fn updates() -> bool {
    is_on("MEMTRACE_UPDATE_BASELINES")
}

/// GitHub, GitLab and most other services set `CI`.
fn in_ci() -> bool {
    is_on("CI")
}

fn is_on(name: &str) -> bool {
    variable::value(name).is_some_and(|value| !["0", "false", "off"].iter().any(|off| value == *off))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_what_is_before_the_source_in_the_path_of_its_baselines() {
        assert_eq!(root_of(Path::new("/home/u/net/tests/a.peaks.txt"), "tests/a.rs"), "/home/u/net/");
        assert_eq!(root_of(Path::new("/home/u/net/tests/a.peaks.txt"), "tests/b.rs"), "", "of another source");
    }

    #[test]
    fn percentages_are_read_and_anything_else_is_an_error() {
        assert_eq!(Percent::parse("5%").unwrap().of(1000), 50);
        assert_eq!(Percent::parse("0.5 %").unwrap().of(1000), 5);
        assert_eq!(Percent::parse("0%").unwrap().of(u64::MAX), 0);
        for wrong in ["5", "", "%", "-1%", "x%", "inf%", "nan%"] {
            assert!(Percent::parse(wrong).unwrap_err().to_string().contains("5%"), "{wrong}");
        }
    }
}
