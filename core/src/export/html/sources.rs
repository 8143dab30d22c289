//! Source text around the program's own lines, read from this machine's files. Embedded only on request.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::extras::place;
use super::keys::UsedStacks;
use crate::attribute::Origin;
use crate::input::bytes_of;
use crate::snapshot::SnapshotData;

/// Lines shown on each side of a line.
const AROUND: usize = 3;
/// Characters of a line.
const WIDTH: usize = 200;
/// Bytes of a source file.
const FILE: u64 = 4 << 20;
/// Bytes of all texts.
const ALL: usize = 1 << 20;
/// A capture may name any file: only these are read.
const EXTENSIONS: [&str; 9] = ["rs", "py", "cu", "cuh", "c", "cc", "cpp", "h", "hpp"];

/// Source texts of a device's stacks.
#[derive(Debug, Default)]
pub(super) struct SourceTexts {
    /// By file and line as frames have them: the number of the first line, and the lines.
    pub(super) by_place: serde_json::Map<String, Value>,
    /// Files that are missing, or newer than the recording.
    pub(super) left_out: usize,
}

impl SourceTexts {
    pub(super) fn of(data: &SnapshotData, stacks: &UsedStacks) -> Self {
        let mut lines: BTreeMap<&str, BTreeSet<(usize, String)>> = BTreeMap::new();
        for frame in stacks.ids().flat_map(|stack| data.stacks.frames(stack)) {
            let is_own = || Origin::of(&data.settings.rules, frame) == Origin::Workspace;
            if let (Some(file), Some(line)) = (frame.known_file(), frame.line)
                && is_own()
            {
                let at = (line.get() as usize, place(frame, &data.process.working_dir));
                lines.entry(file).or_default().insert(at);
            }
        }
        let mut found = Self::default();
        let mut bytes = 0;
        for (file, lines) in lines {
            let Some(text) = source(data, file) else {
                found.left_out += 1;
                continue;
            };
            let all: Vec<&str> = text.lines().collect();
            for (line, place) in lines {
                let first = line.saturating_sub(AROUND).max(1);
                let shown = all.iter().skip(first - 1).take(line + AROUND + 1 - first);
                let shown: Vec<String> = shown.map(|text| text.chars().take(WIDTH).collect()).collect();
                bytes += shown.iter().map(String::len).sum::<usize>();
                if bytes > ALL {
                    return found;
                }
                found.by_place.insert(place, json!([first, shown]));
            }
        }
        found
    }
}

/// The text of a source file as it was when the recording began.
pub(super) fn source(data: &SnapshotData, file: &str) -> Option<String> {
    let path: PathBuf = Path::new(&data.process.working_dir).join(file);
    let extension = path.extension()?.to_str()?;
    let about = path.metadata().ok()?;
    let began = UNIX_EPOCH + Duration::from_micros(data.process.started_unix_us);
    let is_as_recorded = data.process.started_unix_us == 0 || about.modified().ok()? <= began;
    let is_read = EXTENSIONS.contains(&extension) && about.is_file() && about.len() <= FILE && is_as_recorded;
    is_read.then(|| bytes_of(&path, FILE).ok()).flatten().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
