//! Source text around the program's own lines, read from this machine's files, and links to those lines. A page has
//! them only if the user asks for them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::keys::UsedStacks;
use crate::analysis::place;
use crate::attribute::Origin;
use crate::export::LinkForm;
use crate::input::bytes_of;
use crate::snapshot::SnapshotData;

/// Lines shown on each side of a line.
const AROUND: usize = 3;
/// The most characters of a line.
const WIDTH: usize = 200;
/// The most bytes of a source file.
const FILE: u64 = 4 << 20;
/// The most bytes of all texts.
const ALL: usize = 1 << 20;
/// Only files with these extensions are read, because a capture may name any file.
const EXTENSIONS: [&str; 9] = ["rs", "py", "cu", "cuh", "c", "cc", "cpp", "h", "hpp"];

/// What a page gets from this machine's files.
#[derive(Clone, Copy, Debug)]
pub(super) struct FromFiles<'a> {
    /// Whether the page gets source texts.
    pub(super) sources: bool,
    /// The form of the page's links, if it gets any.
    pub(super) links: Option<&'a LinkForm>,
}

/// Source texts of a device's stacks.
#[derive(Debug, Default)]
pub(super) struct SourceTexts {
    /// By place, which is a file and line written as in the frames: the number of the first shown line, and the shown
    /// lines.
    pub(super) by_place: serde_json::Map<String, Value>,
    /// Files that are missing, or newer than the recording.
    pub(super) left_out: usize,
}

impl SourceTexts {
    pub(super) fn of(data: &SnapshotData, stacks: &UsedStacks) -> Self {
        let mut found = Self::default();
        let mut bytes = 0;
        for (file, lines) in own_places(data, stacks) {
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

/// The program's own lines in a device's stacks, by file. Each line has its number, and its place, written as in the
/// frames.
fn own_places<'a>(data: &'a SnapshotData, stacks: &UsedStacks) -> BTreeMap<&'a str, BTreeSet<(usize, String)>> {
    let mut places: BTreeMap<&str, BTreeSet<(usize, String)>> = BTreeMap::new();
    for frame in stacks.ids().flat_map(|stack| data.stacks.frames(stack)) {
        let is_own = || Origin::of(&data.settings.rules, frame) == Origin::Workspace;
        if let (Some(file), Some(line)) = (frame.known_file(), frame.line)
            && is_own()
        {
            let at = (line.get() as usize, place(frame, &data.process.working_dir));
            places.entry(file).or_default().insert(at);
        }
    }
    places
}

/// The addresses of links to the program's own lines, by place. A line whose file does not exist has none.
pub(super) fn links(data: &SnapshotData, stacks: &UsedStacks, form: &LinkForm) -> serde_json::Map<String, Value> {
    let mut links = serde_json::Map::new();
    for (file, lines) in own_places(data, stacks) {
        if let Some(path) = path_of(data, file).filter(|path| path.is_file()) {
            let address = |line: usize| form.address("", &path, &line.to_string());
            links.extend(lines.into_iter().map(|(line, place)| (place, address(line).into())));
        }
    }
    links
}

/// The path of a source file, which may not exist any more. `None` if its extension is not one of [`EXTENSIONS`].
fn path_of(data: &SnapshotData, file: &str) -> Option<PathBuf> {
    let path = Path::new(&data.process.working_dir).join(file);
    let is_source = EXTENSIONS.contains(&path.extension()?.to_str()?);
    is_source.then_some(path)
}

/// The text of a source file, unless the file was changed after the recording began.
pub(super) fn source(data: &SnapshotData, file: &str) -> Option<String> {
    let path = path_of(data, file)?;
    let about = path.metadata().ok()?;
    let began = UNIX_EPOCH + Duration::from_micros(data.process.started_unix_us);
    let is_as_recorded = data.process.started_unix_us == 0 || about.modified().ok()? <= began;
    let is_read = about.is_file() && about.len() <= FILE && is_as_recorded;
    is_read.then(|| bytes_of(&path, FILE).ok()).flatten().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
