//! Finding and reading recordings: the named file, the only one of a folder, or the newest one under cargo's target
//! folder.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memtrace_core::analysis::{Moment, device_or_main, log_start_ns, main_device, window, window_notes};
use memtrace_core::report::{Report, ReportOptions};
use memtrace_core::snapshot::SnapshotData;
use memtrace_core::symbol::SymbolSources;
use memtrace_core::{DeviceView, ReadOptions, Recording};

use crate::arguments::{SelectionArgs, SourceArgs};
use crate::failure::CommandFailure;
use crate::output;
use crate::progress::Progress;

/// A recording with the file that it was read from.
pub(crate) struct RecordingFile {
    pub(crate) path: PathBuf,
    pub(crate) data: SnapshotData,
    /// What a time window left out, for the notes of a report.
    pub(crate) notes: Vec<String>,
}

/// Reads a recording to answer a question about it: all of it, or the time window that `--from` and `--to` select. An
/// empty recording is an error, because it has no answer. [`read`] reads a recording to write it to a file.
pub(crate) fn read_selected(file: Option<&Path>, selection: &SelectionArgs) -> Result<RecordingFile, CommandFailure> {
    let recording = read_with(file, sources(&selection.sources)?)?;
    if main_device(&recording.data).is_none() {
        output::tell(Report::of(&recording.data, &ReportOptions::default())?.answer);
        return Err(CommandFailure::usage(format!("nothing was recorded in {}", recording.path.display())));
    }
    windowed(recording, selection)
}

/// Like [`read_selected`], for one of several recordings. Among these, an empty one is not an error.
pub(crate) fn read_one_of_several(
    file: &Path,
    selection: Option<&SelectionArgs>,
) -> Result<RecordingFile, CommandFailure> {
    let Some(selection) = selection else { return read(Some(file)) };
    let recording = read_with(Some(file), sources(&selection.sources)?)?;
    if main_device(&recording.data).is_none() { Ok(recording) } else { windowed(recording, selection) }
}

/// Where names of functions are, by the user's arguments. The files and folders that they name must exist.
pub(crate) fn sources(args: &SourceArgs) -> Result<SymbolSources, CommandFailure> {
    let sources = SymbolSources { binaries: args.binary.clone(), debug_dirs: args.debug_dir.clone() };
    for path in sources.binaries.iter().chain(&sources.debug_dirs) {
        if let Err(error) = path.metadata() {
            return Err(CommandFailure::usage(format!("cannot read {}: {error}", path.display())));
        }
    }
    Ok(sources)
}

/// The device in the user's arguments, which must be in the recording.
pub(crate) fn device_of<'v, 'd>(
    views: &'v Recording<'d>,
    selection: &SelectionArgs,
) -> Result<&'v DeviceView<'d>, CommandFailure> {
    views.device_or_main(selection.device).ok_or_else(nothing_on_it)
}

fn nothing_on_it() -> CommandFailure {
    CommandFailure::usage("the device of --device recorded nothing")
}

fn windowed(recording: RecordingFile, selection: &SelectionArgs) -> Result<RecordingFile, CommandFailure> {
    if selection.from.is_none() && selection.to.is_none() {
        return Ok(recording);
    }
    let RecordingFile { path, data, .. } = recording;
    let _progress = Progress::of("replaying the log");
    let device = device_or_main(&data, selection.device).ok_or_else(nothing_on_it)?;
    let span = |moment: &Option<Moment>| moment.as_ref().map(|moment| moment.span(&data, device)).transpose();
    let from = span(&selection.from)?.map_or_else(|| log_start_ns(device), |(from, _)| from);
    let to = span(&selection.to)?.map_or(data.process.duration_ns, |(_, to)| to);
    Ok(RecordingFile { path, notes: window_notes(&data, from, to), data: window(&data, from, to)? })
}

/// Reads a recording. If it takes a while, a terminal shows the progress.
pub(crate) fn read(file: Option<&Path>) -> Result<RecordingFile, CommandFailure> {
    read_with(file, SymbolSources::default())
}

fn read_with(file: Option<&Path>, sources: SymbolSources) -> Result<RecordingFile, CommandFailure> {
    let path = match file {
        Some(path) if path.is_dir() => the_one_in(path)?,
        Some(path) => path.to_owned(),
        None => newest()?,
    };
    let progress = Progress::of(format!("reading {}", path.display()));
    let found = |done: u64, all: u64| {
        if done.is_multiple_of(64) {
            progress.now(format!("finding names of functions: {} %", 100 * done / all.max(1)));
        }
    };
    let data = ReadOptions::default().sources(sources).progress(found).open(&path);
    drop(progress);
    Ok(RecordingFile { data: data?, path, notes: Vec::new() })
}

/// The newest recording under cargo's target folder.
pub(crate) fn newest() -> Result<PathBuf, CommandFailure> {
    let folder = target_dir().join("memtrace");
    let found = newest_in(&folder).ok_or_else(|| {
        CommandFailure::usage(format!(
            "there is no recording in {}; make one with `{} run`, or name a file",
            folder.display(),
            crate::called::name()
        ))
    })?;
    output::say(format!("reading {}", found.display()));
    Ok(found)
}

fn none_in(folder: &Path) -> CommandFailure {
    CommandFailure::usage(format!("there is no recording (.memtrace) in {}", folder.display()))
}

/// The only recording of a folder. Several may be ranks of a job, so none of them is chosen.
fn the_one_in(folder: &Path) -> Result<PathBuf, CommandFailure> {
    match &recordings_in(folder)?[..] {
        [one] => Ok(one.clone()),
        all => Err(CommandFailure::usage(format!(
            "{0} has {1} recordings, and this command reads one: name it; `cargo memtrace report {0}` shows them as ranks",
            folder.display(),
            all.len()
        ))),
    }
}

/// The recordings of a folder, sorted by name.
pub(crate) fn recordings_in(folder: &Path) -> Result<Vec<PathBuf>, CommandFailure> {
    let unreadable = |error| CommandFailure::usage(format!("cannot read {}: {error}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(unreadable)?;
    let mut all: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    // The parts of a stream are one recording.
    all.retain(|path| is_recording(path) && !memtrace_core::is_one_of_several(path));
    all.sort();
    if all.is_empty() { Err(none_in(folder)) } else { Ok(all) }
}

/// The named files, and the recordings of the named folders.
pub(crate) fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>, CommandFailure> {
    let mut files = Vec::new();
    for path in named {
        if path.is_dir() { files.extend(recordings_in(path)?) } else { files.push(path.clone()) }
    }
    Ok(files)
}

/// The files' names without their folders, if all these names differ.
pub(crate) fn names_of(files: &[PathBuf]) -> Vec<String> {
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names: Vec<String> = files.iter().map(name).collect();
    if names.iter().collect::<HashSet<_>>().len() == names.len() {
        return names;
    }
    files.iter().map(|path| path.display().to_string()).collect()
}

fn newest_in(folder: &Path) -> Option<PathBuf> {
    let written = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let modified =
        |path: &PathBuf| memtrace_core::parts_of(path).iter().map(written).fold(written(path), SystemTime::max);
    let files = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    files.filter(|path| is_capture(path) && !memtrace_core::is_one_of_several(path)).max_by_key(modified)
}

fn is_capture(path: &Path) -> bool {
    is_named(path, ".memtrace")
}

fn is_recording(path: &Path) -> bool {
    is_capture(path) || is_named(path, ".pickle")
}

fn is_named(path: &Path, extension: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_suffix(".gz").unwrap_or(&name).ends_with(extension)
}

/// Cargo's target folder here, as cargo reports it; `target` outside of packages.
pub(crate) fn target_dir() -> PathBuf {
    let metadata = cargo_metadata::MetadataCommand::new().no_deps().exec();
    metadata.map_or_else(|_| PathBuf::from("target"), |metadata| metadata.target_directory.into())
}
