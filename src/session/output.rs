//! Which format a file name asks for, and names that are still free.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::export::file::Place;

/// A format, by the end of a file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Pytorch,
    Chrome,
    Layout,
    Json,
    #[cfg(feature = "flamegraph")]
    Flamegraph,
    Folded,
    Text,
    Capture,
    Operators,
    OperatorsCsv,
    #[cfg(feature = "figures")]
    OperatorsFigure,
    Categories(Timeline),
}

/// What the category timeline is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timeline {
    Json,
    Raw,
    #[cfg(feature = "figures")]
    Figure,
    #[cfg(feature = "figures")]
    Html,
}

/// Longer ends first: `.trace.json` is no report.
const ENDS: &[(&str, Format)] = &[
    (".pickle", Format::Pytorch),
    (".trace.json", Format::Chrome),
    (".layout.json", Format::Layout),
    (".operators.json", Format::Operators),
    (".operators.csv", Format::OperatorsCsv),
    #[cfg(feature = "figures")]
    (".operators.svg", Format::OperatorsFigure),
    (".categories.json", Format::Categories(Timeline::Json)),
    (".categories.raw.json", Format::Categories(Timeline::Raw)),
    #[cfg(feature = "figures")]
    (".categories.svg", Format::Categories(Timeline::Figure)),
    #[cfg(feature = "figures")]
    (".categories.html", Format::Categories(Timeline::Html)),
    (".json", Format::Json),
    #[cfg(feature = "flamegraph")]
    (".svg", Format::Flamegraph),
    (".folded", Format::Folded),
    (".txt", Format::Text),
    (".memtrace", Format::Capture),
];

impl Format {
    /// The format that a path asks for; `.gz` behind it is about compression only.
    pub(super) fn of(path: &Path) -> Result<Self, Error> {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let plain = name.strip_suffix(".gz").unwrap_or(&name);
        let found = ENDS.iter().find(|(end, _)| plain.ends_with(end));
        found.map(|(_, format)| *format).ok_or_else(|| Error::format(path, &known()))
    }
}

fn known() -> String {
    ENDS.iter().map(|(end, _)| *end).collect::<Vec<_>>().join(", ")
}

/// So many files of one name are kept where nobody named them.
const KEPT: usize = 10;

/// Writes a snapshot to a new file in that folder, whose name is `path`'s or has a number besides. Of the older ones with
/// that name a few are kept.
pub(crate) fn write_new(snapshot: &super::Snapshot, name: &str) -> Result<PathBuf, Error> {
    let path = base_dir(Path::new("")).join(name);
    let written = beside(&path, |path| snapshot.write_to(Place::New(path)))?;
    let (stem, end) = name.rsplit_once('.').unwrap_or((name, ""));
    prune(&path, |other| {
        let number = other.strip_prefix(stem).and_then(|rest| rest.strip_suffix(end)?.strip_suffix('.'));
        number.is_some_and(|number| number.is_empty() || number.strip_prefix('-').is_some_and(is_number))
    });
    Ok(written)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Removes the oldest of the files beside this one that are meant, but for a few.
pub(super) fn prune(path: &Path, is_meant: impl Fn(&str) -> bool) {
    let Some(Ok(folder)) = path.parent().map(std::fs::read_dir) else { return };
    let meant = folder.filter_map(Result::ok).filter(|file| is_meant(&file.file_name().to_string_lossy()));
    let age = |file: std::fs::DirEntry| Some((file.metadata().ok()?.modified().ok()?, file.path()));
    let mut files: Vec<_> = meant.filter_map(age).collect();
    files.sort_unstable_by(|a, b| b.cmp(a));
    // What cannot be removed stays.
    files.iter().skip(KEPT).for_each(|(_, path)| _ = std::fs::remove_file(path));
}

/// The folder for outputs that have no other: `memtrace` in cargo's target folder, or in the one that is given.
pub(super) fn base_dir(folder: &Path) -> PathBuf {
    let Some(target) = target_of_cargo() else { return "memtrace".into() };
    let here = if folder.as_os_str().is_empty() { std::env::current_dir().unwrap_or_default() } else { folder.into() };
    target.strip_prefix(here).unwrap_or(&target).join("memtrace")
}

/// Where cargo put this program: the folder has a mark.
fn target_of_cargo() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let is_cargos =
        |folder: &&Path| std::fs::read_to_string(folder.join("CACHEDIR.TAG")).is_ok_and(|tag| tag.contains("cargo"));
    program.ancestors().find(is_cargos).map(Path::to_owned)
}

/// Writes to `path`, or to `NAME-2.EXTENSION`, `NAME-3.EXTENSION`, … if it is taken; gives the path.
pub(super) fn beside(path: &Path, mut write: impl FnMut(&Path) -> Result<(), Error>) -> Result<PathBuf, Error> {
    let mut number = 1u64;
    loop {
        let path = numbered(path, number);
        match write(&path) {
            Err(error) if error.is_already_exists() => number += 1,
            outcome => return outcome.map(|()| path),
        }
    }
}

fn numbered(path: &Path, number: u64) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if number == 1 {
        return path.to_owned();
    }
    let plain = name.strip_suffix(".gz").unwrap_or(&name);
    let stem = ENDS.iter().find_map(|(end, _)| plain.strip_suffix(end)).unwrap_or(plain);
    path.with_file_name(format!("{stem}-{number}{}", &name[stem.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_says_the_format() {
        let cases = [
            ("a/b.pickle", Format::Pytorch),
            ("b.pickle.gz", Format::Pytorch),
            ("b.trace.json.gz", Format::Chrome),
            ("b.layout.json", Format::Layout),
            ("b.json", Format::Json),
            ("b.operators.json.gz", Format::Operators),
            ("b.operators.csv", Format::OperatorsCsv),
            ("b.categories.json.gz", Format::Categories(Timeline::Json)),
            ("b.categories.raw.json.gz", Format::Categories(Timeline::Raw)),
            ("b.memtrace", Format::Capture),
        ];
        cases.iter().for_each(|(path, format)| assert_eq!(Format::of(Path::new(path)).unwrap(), *format));
        let error = Format::of(Path::new("x.bin")).unwrap_err().to_string();
        assert!(error.contains(".pickle") && error.contains("x.bin"), "{error}");
    }

    #[test]
    fn a_taken_name_gets_a_number() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.trace.json.gz");
        let write = |path: &Path| match path.exists() {
            true => Err(Error::exists(path)),
            false => Ok(std::fs::write(path, "")?),
        };
        let names: Vec<PathBuf> = (0..3).map(|_| beside(&path, write).unwrap()).collect();
        let expected = ["a.trace.json.gz", "a-2.trace.json.gz", "a-3.trace.json.gz"];
        assert_eq!(names, expected.map(|name| dir.path().join(name)));
    }
}
