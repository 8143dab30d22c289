//! Text format of baseline files. Tests write one file next to each source file, and `cargo memtrace baselines` reviews
//! them.
//!
//! ```text
//! [forward] cuda:0
//! peak 537,001,984
//!      536,870,912  tests/model.rs:12 (forward)
//!          131,072  (2 more lines)
//! ```

use std::fmt;

use crate::units::grouped;

const HEAD: &str = "\
# Peaks that the tests of this folder may reach, in bytes, with the lines that held them.
# Written by `MEMTRACE_UPDATE_BASELINES=1 cargo test`, to be reviewed and committed.
";

/// How many lines of a peak are stored.
pub const LINES: usize = 12;

/// One peak, and the bytes that each line held then, the largest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaselineEntry {
    /// The assertion's name.
    pub name: String,
    /// The device, and whether the whole process was measured.
    pub device: String,
    /// Bytes.
    pub peak: u64,
    /// Bytes by line.
    pub lines: Vec<(u64, String)>,
}

/// All entries of a file, sorted by name and device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baselines(Vec<BaselineEntry>);

impl Baselines {
    /// Parses a file's text. An error names the line.
    ///
    /// # Errors
    /// If a line does not have the format.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut entries: Vec<BaselineEntry> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            read_line(&mut entries, line).ok_or_else(|| {
                format!("line {} is neither `[NAME] DEVICE`, nor `peak BYTES`, nor `BYTES  LINE` below one", number + 1)
            })?;
        }
        Ok(Self(entries))
    }

    /// The entry with this name and device.
    pub fn get(&self, name: &str, device: &str) -> Option<&BaselineEntry> {
        self.0.iter().find(|entry| entry.name == name && entry.device == device)
    }

    /// The entries, sorted by name and device.
    pub fn entries(&self) -> &[BaselineEntry] {
        &self.0
    }

    /// Removes the entry with this name and device, if there is one.
    pub fn remove(&mut self, name: &str, device: &str) -> Option<BaselineEntry> {
        let at = self.0.iter().position(|entry| entry.name == name && entry.device == device)?;
        Some(self.0.remove(at))
    }

    /// Inserts or replaces an entry.
    pub fn put(&mut self, entry: BaselineEntry) {
        self.0.retain(|old| (&old.name, &old.device) != (&entry.name, &entry.device));
        self.0.push(entry);
        self.0.sort_by(|a, b| (&a.name, &a.device).cmp(&(&b.name, &b.device)));
    }
}

impl fmt::Display for Baselines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        for BaselineEntry { name, device, peak, lines } in &self.0 {
            write!(f, "\n[{name}] {device}\npeak {}\n", grouped(*peak))?;
            for (bytes, line) in lines {
                writeln!(f, "{:>17}  {line}", grouped(*bytes))?;
            }
        }
        Ok(())
    }
}

fn read_line(entries: &mut Vec<BaselineEntry>, line: &str) -> Option<()> {
    if let Some(rest) = line.strip_prefix('[') {
        let (name, device) = rest.rsplit_once("] ")?;
        let (name, device) = (name.to_owned(), device.to_owned());
        entries.push(BaselineEntry { name, device, peak: 0, lines: Vec::new() });
        return Some(());
    }
    let entry = entries.last_mut()?;
    if let Some(peak) = line.strip_prefix("peak ") {
        entry.peak = number(peak)?;
        return Some(());
    }
    let (bytes, label) = line.split_once("  ")?;
    entry.lines.push((number(bytes)?, label.trim().to_owned()));
    Some(())
}

fn number(text: &str) -> Option<u64> {
    text.replace(',', "").parse().ok()
}

/// A line's bytes now and in the baseline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineChange {
    /// Bytes now.
    pub now: u64,
    /// Bytes in the baseline.
    pub was: u64,
    /// The line.
    pub line: String,
}

/// Compares the lines of two peaks; the largest change comes first. A line that moved within its function is matched if
/// as many of the function's lines are new as are gone.
pub fn changes(was: &[(u64, String)], now: &[(u64, String)]) -> Vec<LineChange> {
    let mut old: Vec<(u64, &str)> = was.iter().map(|(bytes, line)| (*bytes, line.as_str())).collect();
    let mut rows: Vec<LineChange> = Vec::new();
    let mut moved: Vec<(u64, &str)> = Vec::new();
    for (bytes, line) in now {
        match old.iter().position(|(_, known)| known == line) {
            Some(at) => rows.push(LineChange { now: *bytes, was: old.remove(at).0, line: line.clone() }),
            None => moved.push((*bytes, line)),
        }
    }
    moved.sort_by_key(|(_, line)| line_number(line));
    let has_same_count = |line: &str| {
        let count = |list: &[(u64, &str)]| list.iter().filter(|(_, other)| function(other) == function(line)).count();
        count(&old) == count(&moved)
    };
    let found: Vec<bool> = moved.iter().map(|(_, line)| has_same_count(line)).collect();
    for ((bytes, line), found) in moved.iter().zip(found) {
        let at = found.then(|| first_of(&old, line)).flatten();
        let was = at.map_or(0, |at| old.remove(at).0);
        rows.push(LineChange { now: *bytes, was, line: (*line).to_owned() });
    }
    rows.extend(old.into_iter().map(|(was, line)| LineChange { now: 0, was, line: line.to_owned() }));
    rows.sort_by_key(|row| std::cmp::Reverse(row.now.abs_diff(row.was)));
    rows
}

/// The index in `old` of the line with the smallest number in the same function as `line`.
fn first_of(old: &[(u64, &str)], line: &str) -> Option<usize> {
    let candidates = old.iter().enumerate().filter(|(_, (_, other))| function(other) == function(line));
    candidates.min_by_key(|(_, (_, other))| line_number(other)).map(|(at, _)| at)
}

/// The file and the function of a line: `tests/model.rs` and `forward)` for `tests/model.rs:12 (forward)`.
fn function(line: &str) -> Option<(&str, &str)> {
    let (place, function) = line.rsplit_once(" (")?;
    Some((place.rsplit_once(':')?.0, function))
}

fn line_number(line: &str) -> Option<u64> {
    line.rsplit_once(" (")?.0.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rows: &[(u64, &str)]) -> Vec<(u64, String)> {
        rows.iter().map(|(bytes, line)| (*bytes, (*line).to_owned())).collect()
    }

    fn entry(name: &str, peak: u64) -> BaselineEntry {
        let lines = lines(&[(peak, "tests/model.rs:12 (forward)")]);
        BaselineEntry { name: name.to_owned(), device: "cpu".to_owned(), peak, lines }
    }

    #[test]
    fn what_was_written_is_read_again() {
        let mut entries = Baselines::default();
        [("b", 5), ("a [odd] name", 1_234_567), ("b", 7)]
            .into_iter()
            .for_each(|(name, peak)| entries.put(entry(name, peak)));
        let text = entries.to_string();
        assert_eq!(Baselines::parse(&text).unwrap(), entries);
        assert_eq!(entries.get("b", "cpu").map(|entry| entry.peak), Some(7));
        assert!(text.contains("[a [odd] name] cpu\npeak 1,234,567\n        1,234,567  tests/model.rs:12 (forward)\n"));
    }

    #[test]
    fn what_is_no_entry_is_an_error_with_its_line() {
        for text in ["peak 5", "\n12  x", "[a cpu", "[a] cpu\npeak x", "[a] cpu\nnonsense"] {
            let error = Baselines::parse(text).unwrap_err();
            let line = text.lines().count();
            assert!(error.starts_with(&format!("line {line} ")), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_line_that_moved_is_compared_with_itself() {
        let was = lines(&[(10, "m.rs:3 (f)"), (20, "m.rs:5 (f)"), (30, "m.rs:9 (g)"), (1, "m.rs:20 (gone)")]);
        let now = lines(&[(15, "m.rs:4 (f)"), (20, "m.rs:6 (f)"), (30, "m.rs:9 (g)"), (2, "m.rs:30 (new)")]);
        let row = |now, was, line: &str| LineChange { now, was, line: line.to_owned() };
        let expected = [row(15, 10, "m.rs:4 (f)"), row(2, 0, "m.rs:30 (new)"), row(0, 1, "m.rs:20 (gone)")];
        assert_eq!(changes(&was, &now)[..3], expected);
    }
}
