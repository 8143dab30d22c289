//! Which recordings are watched. Each look searches for them again, because a rank may begin later than another one.

use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use crate::failure::CommandFailure;
use crate::{called, input, recordings};

/// The most processes that are searched for recordings. A launcher has a child for each rank.
const MOST_PROCESSES: usize = 10_000;

/// Where recordings come from.
pub(super) struct Targets(Vec<Target>);

enum Target {
    File(PathBuf),
    Folder(PathBuf),
    Process(u32),
}

impl Targets {
    /// The targets that the user named, or the newest recording.
    pub(super) fn of(named: &[PathBuf]) -> Result<Self, CommandFailure> {
        if named.is_empty() {
            return Ok(Self(vec![Target::File(input::newest()?)]));
        }
        named.iter().map(|path| Target::of(path)).collect::<Result<_, _>>().map(Self)
    }

    /// The recordings that exist now. A folder's recordings that have ended count only at the first look, and only if
    /// all recordings in the folder have ended.
    pub(super) fn recordings(&self, is_first: bool) -> Result<Vec<PathBuf>, CommandFailure> {
        let mut all = Vec::new();
        for target in &self.0 {
            match target.recordings(is_first) {
                Ok(found) => all.extend(found),
                Err(failure) if is_first => return Err(failure),
                // A folder or a process may disappear before its recordings do.
                Err(_) => {}
            }
        }
        Ok(all)
    }
}

impl Target {
    fn of(path: &Path) -> Result<Self, CommandFailure> {
        if path.is_dir() {
            return Ok(Self::Folder(path.to_owned()));
        }
        let number = path.to_str().and_then(|text| text.parse().ok()).filter(|_| !path.exists());
        Ok(number.map_or_else(|| Self::File(path.to_owned()), Self::Process))
    }

    fn recordings(&self, is_first: bool) -> Result<Vec<PathBuf>, CommandFailure> {
        match self {
            Self::File(path) => Ok(vec![path.clone()]),
            Self::Process(pid) => written_by(*pid),
            Self::Folder(folder) => {
                let all = input::recordings_in(folder)?;
                let running: Vec<PathBuf> = all.iter().filter(|path| !recordings::has_ended(path)).cloned().collect();
                Ok(if is_first && running.is_empty() { all } else { running })
            }
        }
    }
}

/// The recordings that a process and its children are writing.
fn written_by(pid: u32) -> Result<Vec<PathBuf>, CommandFailure> {
    let (mut found, mut processes, mut at) = (Vec::new(), vec![pid], 0);
    let mut refused = None;
    while let Some(process) = processes.get(at).copied().filter(|_| at < MOST_PROCESSES) {
        at += 1;
        match of_process(process, &mut found, &mut processes) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => refused = Some(error),
            // The process may end meanwhile.
            Err(error) if process == pid => return Err(no_process(pid, &error)),
            _ => {}
        }
    }
    found.sort();
    found.dedup();
    match (found.is_empty(), refused) {
        (false, _) => Ok(found),
        (true, Some(error)) => Err(CommandFailure::usage(format!(
            "cannot see which files process {pid} writes: {error}; name its recording instead"
        ))),
        (true, None) => Err(CommandFailure::usage(format!(
            "process {pid} writes no recording, and neither does a child of it; start the program with `{} run`, or, if it calls \
             memtrace::init, with the variables MEMTRACE=1 and MEMTRACE_OUT=run.memtrace",
            called::name()
        ))),
    }
}

fn no_process(pid: u32, error: &Error) -> CommandFailure {
    let next = "name a recording, a folder of recordings or a running process of this machine (Linux only)";
    CommandFailure::usage(format!("there is no file {pid}, and process {pid} cannot be read: {error}; {next}"))
}

/// Adds the recordings that a process writes, and the process's children. memtrace's threads have their own descriptor
/// table, which the entry of the process's main thread does not show.
fn of_process(pid: u32, found: &mut Vec<PathBuf>, children: &mut Vec<u32>) -> Result<(), Error> {
    let is_own = |thread: &Path| fs::read(thread.join("comm")).is_ok_and(|name| name.starts_with(b"memtrace"));
    for thread in fs::read_dir(format!("/proc/{pid}/task"))?.flatten().map(|entry| entry.path()) {
        let of_thread = fs::read_to_string(thread.join("children")).unwrap_or_default();
        children.extend(of_thread.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        if thread.ends_with(pid.to_string()) || is_own(&thread) {
            let opened = match fs::read_dir(thread.join("fd")) {
                Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(error),
                // The thread may end meanwhile.
                opened => opened.into_iter().flatten().flatten(),
            };
            found.extend(opened.filter_map(|file| recording(pid, &fs::read_link(file.path()).ok()?)));
        }
    }
    Ok(())
}

/// The path of a process's open file, if the file is a capture. The process may be in a container, which has another
/// root folder.
fn recording(pid: u32, path: &Path) -> Option<PathBuf> {
    let within = Path::new("/proc").join(pid.to_string()).join("root").join(path.strip_prefix("/").ok()?);
    let found = [path.to_owned(), within].into_iter().find(|path| memtrace_core::is_capture(path))?;
    // Of a stream, only the file that names the stream counts. The stream's parts are open, too.
    (!memtrace_core::is_one_of_several(&found)).then_some(found)
}
