//! Peaks of earlier runs, kept in files beside the tests.

use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::baseline_file::{Change, Entries, Entry, LINES, changes, clean};
use super::failure::Failure;
use super::held::Held;
use crate::analysis::{by_line, device_or_main};
use crate::error::Error;
use crate::export::{file, table};
use crate::record::Leaves;
use crate::record::guard::Own;
use crate::session::say;
use crate::snapshot::{Device, SnapshotData};
use crate::units::{Bytes, grouped, signed};
use crate::variable;
use crate::write_errors;

/// A share in hundredths of a percent.
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
    /// The source file, as the compiler calls it.
    source: &'static str,
}

impl Baseline {
    pub(super) fn named(name: &str, source: &'static str) -> Self {
        Self { name: Own::make(|| clean(name)), source }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Holds a device's peak against the baseline, and if all are meant each other one's that has one under this name. Gives the
    /// baseline as it was, if there was one.
    pub(super) fn check(
        &self,
        all: bool,
        device: Device,
        held: &Held<'_>,
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

    /// Or makes it the baseline.
    fn check_device(
        &self,
        (path, known): (&Path, Option<&Entry>),
        device: Device,
        held: &Held<'_>,
        tolerance: Percent,
    ) -> Result<(), Failure> {
        let peak = held.measured.device(device).peak;
        match known {
            _ if updates() => Ok(self.write(path, device, held, known)?),
            None if in_ci() => Err(Failure::violation(self.is_missing(path, &row_of(device, held)))),
            None => Ok(self.write(path, device, held, None)?),
            Some(known) => {
                if peak < known.peak.saturating_sub(tolerance.of(known.peak)) {
                    say(&format!("{}: the peak is below its baseline by {}", *self.name, Bytes(known.peak - peak)));
                }
                let limit = known.peak.saturating_add(tolerance.of(known.peak));
                let over = |peak| grown(held, peak, device, known, tolerance, &root_of(path, self.source));
                held.at_most(limit, device, over, || format!("the peak is that of the baseline `{}`", *self.name))
            }
        }
    }

    fn is_missing(&self, path: &Path, device: &str) -> String {
        format!(
            "there is no baseline `{}` for {device} in {}; run the tests once with MEMTRACE_UPDATE_BASELINES=1, look \
             at that file and commit it",
            *self.name,
            path.display()
        )
    }

    /// Makes what was measured the baseline, if it is another than before.
    fn write(&self, path: &Path, device: Device, held: &Held<'_>, was: Option<&Entry>) -> Result<(), Error> {
        let data = &held.needed().data;
        let entry = entry((&self.name, row_of(device, held)), data, device, &root_of(path, self.source));
        if was == Some(&entry) {
            return Ok(());
        }
        let what = match was {
            Some(was) => format!("{} → {}", Bytes(was.peak), Bytes(entry.peak)),
            None => format!("new, {}", Bytes(entry.peak)),
        };
        put(path, entry)?;
        say(&format!("baseline `{}` in {}: {what}", *self.name, path.display()));
        Ok(())
    }

    /// The file, and what stands in it.
    fn read(&self) -> Result<(PathBuf, Entries), Error> {
        let path = beside(self.source)?;
        let entries = entries_of(&path)?;
        Ok((path, entries))
    }
}

fn entries_of(path: &Path) -> Result<Entries, Error> {
    let wrong = |reason| {
        let path = path.display();
        Error::wrong(format!("cannot read the baselines of {path}: {reason}; mend it, or remove it and make it anew"))
    };
    Entries::parse(&text_of(path)?).map_err(wrong)
}

/// A file's text; nothing if there is none.
pub(super) fn text_of(path: &Path) -> Result<String, Error> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(|error| Error::input(path, error)),
    }
}

/// Other tests, of this process and of others, put theirs at the same time.
fn put(path: &Path, entry: Entry) -> Result<(), Error> {
    let _lock = lock(path)?;
    let mut entries = entries_of(path)?;
    entries.put(entry);
    let _limit = write_errors::errors_only();
    Ok(file::replace(path, entries.to_string().as_bytes())?)
}

/// Held against other processes until it is dropped: a lock on the file's folder, so that there is no file for it.
pub(super) fn lock(file: &Path) -> Result<Option<File>, Error> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if cfg!(not(unix)) {
        return Ok(None);
    }
    let locked = File::open(folder).and_then(|folder| folder.lock().map(|()| folder));
    locked.map(Some).map_err(|error| Error::output(file, error))
}

/// `tests/model.peaks.txt` for `tests/model.rs`. The compiler names sources from the workspace's root, and tests
/// run in their package's folder.
fn beside(source: &str) -> Result<PathBuf, Error> {
    let package = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).or_else(|| env::current_dir().ok());
    let package = package.unwrap_or_default();
    let found = package.ancestors().map(|folder| folder.join(source)).find(|path| path.is_file());
    found.map(|path| path.with_extension("peaks.txt")).ok_or_else(|| {
        Error::wrong(format!(
            "cannot find {source} from {}, beside which the baselines stand; run the tests with cargo, where the \
             sources are",
            package.display()
        ))
    })
}

/// The workspace's folder with a slash behind it.
fn root_of(baselines: &Path, source: &str) -> String {
    let source = Path::new(source).with_extension("peaks.txt");
    let path = baselines.to_string_lossy();
    path.strip_suffix(&*source.to_string_lossy()).unwrap_or_default().to_owned()
}

/// What stands beside a baseline's name.
fn row_of(device: Device, held: &Held<'_>) -> String {
    let of = if held.counted.whole_process { " (whole process)" } else { "" };
    format!("{device}{of}")
}

/// Lines below `root` are named from there: other machines have the workspace elsewhere.
fn entry((name, row): (&str, String), data: &SnapshotData, device: Device, root: &str) -> Entry {
    let mut lines = peak_lines(data, device, root);
    if lines.len() > LINES {
        let rest = lines.split_off(LINES - 1);
        let bytes = rest.iter().map(|(bytes, _)| bytes).sum();
        lines.push((bytes, format!("({} more lines)", rest.len())));
    }
    let peak = data.device(device).map_or(0, |device| device.peak.bytes);
    Entry { name: name.to_owned(), device: row, peak, lines }
}

fn peak_lines(data: &SnapshotData, device: Device, root: &str) -> Vec<(u64, String)> {
    let Some(device) = device_or_main(data, Some(device)) else { return Vec::new() };
    let relative = |label: String| label.strip_prefix(root).map_or_else(|| label.clone(), str::to_owned);
    by_line(data, device).rows.into_iter().map(|row| (row.bytes, relative(row.label))).collect()
}

/// The peak is over its baseline: by line.
fn grown(held: &Held<'_>, peak: u64, device: Device, known: &Entry, tolerance: Percent, root: &str) -> Failure {
    let share = (peak - known.peak) as f64 / known.peak.max(1) as f64 * 100.0;
    let (now, bytes, was) = (Bytes(peak), grouped(peak), Bytes(known.peak));
    let over = Bytes(peak - known.peak);
    let head = format!(
        "peak of {now} ({bytes} bytes) on {device} is over its baseline `{}` of {was} by {over}: {share:.1} %, \
         where {tolerance} are allowed\n(if that is meant: MEMTRACE_UPDATE_BASELINES=1)",
        known.name
    );
    Failure::without_setup(&head, held.measured, held.needed(), |data| {
        let now = entry((&known.name, known.device.clone()), data, device, root).lines;
        let changes = table_of_changes(&changes(&known.lines, &now));
        format!("Against the baseline, by line\n{changes}\n{}", crate::export::at_peak(data, device, LINES))
    })
}

fn table_of_changes(changes: &[Change]) -> String {
    let mut table = table::TextTable::new(&["Change", "Now", "Baseline", "Location"], table::Cut::Start);
    for Change { now, was, line } in changes.iter().filter(|change| change.now != change.was) {
        let change = signed(*now as i64 - *was as i64);
        table.row(vec![change, Bytes(*now).to_string(), Bytes(*was).to_string(), line.clone()]);
    }
    table.lines(100).join("\n") + "\n"
}

fn updates() -> bool {
    is_on("MEMTRACE_UPDATE_BASELINES")
}

/// GitHub's, GitLab's and most other services set it.
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
    fn percentages_are_read_and_anything_else_is_an_error() {
        assert_eq!(Percent::parse("5%").unwrap().of(1000), 50);
        assert_eq!(Percent::parse("0.5 %").unwrap().of(1000), 5);
        assert_eq!(Percent::parse("0%").unwrap().of(u64::MAX), 0);
        for wrong in ["5", "", "%", "-1%", "x%", "inf%", "nan%"] {
            assert!(Percent::parse(wrong).unwrap_err().to_string().contains("5%"), "{wrong}");
        }
    }
}
