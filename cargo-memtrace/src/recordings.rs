//! Names of recordings, each reserved for one `run`, and the lists in which programs announce the files that they
//! write.
//!
//! `run` makes the list `.NAME.run` beside the recording NAME and holds its lock. While it holds the lock, the name
//! belongs to it. The recorded processes add `PID PATH\0` for each file that they create. So `run` never mistakes
//! another program's file for its own program's.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::failure::CommandFailure;
use crate::input::target_dir;

/// How a list begins. No `run` takes over a file that begins differently.
const HEAD: &[u8] = b"memtrace run\0";

/// Recordings with larger numbers are not memtrace's.
const LARGEST: u64 = 1 << 40;

/// Does not follow links and does not wait for pipes, because a link or a pipe may have the file's name.
const NO_LINK_NO_WAIT: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;

/// A recording's name, reserved until this is dropped.
pub(crate) struct ReservedName {
    pub(crate) path: PathBuf,
    list: PathBuf,
    file: File,
}

/// A file that a process of the program has announced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Announced {
    pub(crate) pid: u32,
    pub(crate) path: PathBuf,
}

impl ReservedName {
    /// Reserves the name that the user gave.
    pub(crate) fn named(path: &Path) -> Result<Self, CommandFailure> {
        let taken = || {
            let path = path.display();
            CommandFailure::usage(format!(
                "{path} exists, or another run records to it; give another name, or remove it"
            ))
        };
        // The path is a pattern: each process fills it in for itself, and creates its own file. So only the list is
        // reserved.
        if path.to_string_lossy().contains('%') {
            let list = list_of(path).with_added_extension(std::process::id().to_string());
            return reserve_list(path, &list)?.ok_or_else(taken);
        }
        reserve(path)?.ok_or_else(taken)
    }

    /// Reserves the name with the next number of a program. At most `keep - 1` of its older recordings stay.
    pub(crate) fn next(program: &str, keep: usize) -> Result<Self, CommandFailure> {
        let folder = std::path::absolute(target_dir()).unwrap_or_else(|_| target_dir()).join("memtrace");
        let mut numbers = numbers(&folder, program);
        numbers.sort_unstable();
        let mut next = numbers.last().map_or(1, |last| last + 1);
        let reserved = loop {
            match reserve(&path(&folder, program, next))? {
                Some(reserved) => break reserved,
                None => next += 1,
            }
        };
        let surplus = (numbers.len() + 1).saturating_sub(keep.max(1));
        for number in numbers.iter().take(surplus) {
            remove_finished(&path(&folder, program, *number));
        }
        Ok(reserved)
    }

    /// The list in which the program announces its files.
    pub(crate) fn list(&self) -> &Path {
        &self.list
    }

    /// What the program's processes have announced so far. If nothing could be announced, as on a full disk, this is
    /// the file with the reserved name. `pid` is the process to which that file is attributed.
    pub(crate) fn announced(&self, pid: u32) -> Vec<Announced> {
        let said = self.said();
        let path = std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone());
        let unsaid = said.is_empty() && path.is_file();
        said.into_iter().chain(unsaid.then_some(Announced { pid, path })).collect()
    }

    /// The list's complete entries. The last entry may be incomplete.
    fn said(&self) -> Vec<Announced> {
        let text = fs::read(&self.list).unwrap_or_default();
        let whole = text.iter().rposition(|byte| *byte == 0).map_or(0, |end| end + 1);
        let entry = |entry: &[u8]| {
            let space = entry.iter().position(|byte| *byte == b' ')?;
            let pid = std::str::from_utf8(entry.get(..space)?).ok()?.parse().ok()?;
            let path = std::ffi::OsStr::from_bytes(entry.get(space + 1..)?).into();
            Some(Announced { pid, path })
        };
        text[..whole].strip_prefix(HEAD).unwrap_or_default().split(|byte| *byte == 0).filter_map(entry).collect()
    }
}

impl Drop for ReservedName {
    fn drop(&mut self) {
        if is_at(&self.file, &self.list) {
            let _ = fs::remove_file(&self.list);
        }
    }
}

/// Whether no process writes a recording any more: the recording has its end mark, or no process holds its lock.
pub(crate) fn has_ended(path: &Path) -> bool {
    memtrace_core::has_ended(path) || !is_in_use(path)
}

/// The newest part of a recording, and the length of this part. One of the two changes whenever something is written.
pub(crate) fn length_of(path: &Path) -> (PathBuf, u64) {
    let newest = memtrace_core::parts_of(path).pop().unwrap_or_else(|| path.to_owned());
    let length = newest.metadata().map_or(0, |data| data.len());
    (newest, length)
}

/// Removes a recording, and all of its parts.
fn remove(path: &Path) {
    let parts = memtrace_core::parts_of(path);
    parts.iter().map(PathBuf::as_path).chain([path]).for_each(|file| _ = fs::remove_file(file));
}

/// Whether a process is writing this file. The process holds the file's lock, and so do its children until they execute
/// something else. If the file system has no locks, every file counts as one that is being written.
fn is_in_use(path: &Path) -> bool {
    let opened = File::options().read(true).custom_flags(NO_LINK_NO_WAIT).open(path);
    opened.is_ok_and(|file| file.try_lock().is_err())
}

/// Reserves a name; `None` if the file exists, or another `run` has reserved it.
fn reserve(path: &Path) -> Result<Option<ReservedName>, CommandFailure> {
    let reserved = reserve_list(path, &list_of(path))?;
    // Checked after the reservation, because an earlier run may just have finished with the name.
    Ok(reserved.filter(|_| path.symlink_metadata().is_err()))
}

/// Makes the list for a name; `None` if another `run` has this list.
fn reserve_list(path: &Path, list: &Path) -> Result<Option<ReservedName>, CommandFailure> {
    let list = std::path::absolute(list).unwrap_or_else(|_| list.to_owned());
    let folder = list.parent().unwrap_or(Path::new("/"));
    let failed = |error: io::Error| CommandFailure::usage(format!("cannot write {}: {error}", path.display()));
    fs::create_dir_all(folder).map_err(failed)?;
    let Some(file) = lock(&list).map_err(failed)? else { return Ok(None) };
    Ok(Some(ReservedName { path: path.to_owned(), list, file }))
}

/// Makes a list and locks it, or takes over the list of a `run` that was killed.
fn lock(list: &Path) -> io::Result<Option<File>> {
    loop {
        match File::options().read(true).append(true).create_new(true).open(list) {
            Ok(mut file) => {
                // Some file systems have no locks. On these, nobody takes over the list if this `run` is killed.
                let _ = file.lock();
                let written = file.write_all(HEAD);
                // No `run` could take over a list without its head.
                return written.map(|()| Some(file)).inspect_err(|_| _ = fs::remove_file(list));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        match left_behind(list) {
            Ok(Some(file)) if is_at(&file, list) => return Ok(Some(file)),
            // The owner of the list removed it meanwhile.
            Ok(Some(_)) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(None) | Err(_) => return Ok(None),
        }
    }
}

/// Opens an existing list, locks it and empties it. `None` if another `run` holds its lock, or if the file is no list.
fn left_behind(list: &Path) -> io::Result<Option<File>> {
    let file = File::options().read(true).append(true).custom_flags(NO_LINK_NO_WAIT).open(list)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(None),
        locked => locked?,
    }
    let mut head = Vec::new();
    (&file).take(HEAD.len() as u64).read_to_end(&mut head)?;
    if head != HEAD {
        return Ok(None);
    }
    file.set_len(HEAD.len() as u64)?;
    Ok(Some(file))
}

/// Whether the path still names the open file.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |data: fs::Metadata| (data.dev(), data.ino());
    let (open, named) = (file.metadata().map(identity), path.symlink_metadata().map(identity));
    matches!((open, named), (Ok(open), Ok(named)) if open == named)
}

/// Whether this is a recording that nobody writes any more.
fn is_unused(path: &Path) -> bool {
    let is_plain = path.symlink_metadata().is_ok_and(|data| data.is_file());
    is_plain && !is_in_use(path) && memtrace_core::is_capture(path)
}

/// Removes a recording of this `run`'s own program.
pub(crate) fn remove_own(path: &Path) {
    if is_unused(path) {
        remove(path);
    }
}

/// Removes a recording of memtrace's that nobody writes or reads any more. If it cannot be removed, it stays.
fn remove_finished(path: &Path) {
    if !is_unused(path) {
        return;
    }
    let list = list_of(path);
    if list.symlink_metadata().is_ok() {
        // The list belongs to a `run` that is still active, or to one that was killed. Only the list of a killed `run`
        // can be taken over.
        let Ok(Some(_locked)) = left_behind(&list) else { return };
        let _ = fs::remove_file(&list);
    }
    remove(path);
}

fn list_of(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".run");
    path.with_file_name(name)
}

fn path(folder: &Path, program: &str, number: u64) -> PathBuf {
    folder.join(format!("{program}-{number}.memtrace"))
}

/// The numbers of a program's recordings.
fn numbers(folder: &Path, program: &str) -> Vec<u64> {
    let Ok(files) = fs::read_dir(folder) else { return Vec::new() };
    let names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
    let number = |name: String| name.strip_prefix(program)?.strip_prefix('-')?.strip_suffix(".memtrace")?.parse().ok();
    names.filter_map(number).filter(|number| *number < LARGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_programs_own_recordings_count() {
        let folder = tempfile::tempdir().unwrap();
        for name in [
            "train-1.memtrace",
            "train-12.memtrace",
            "train-x.memtrace",
            "train-2.svg",
            "other-7.memtrace",
            "train-18446744073709551615.memtrace",
        ] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let mut found = numbers(folder.path(), "train");
        found.sort_unstable();
        assert_eq!(found, [1, 12]);
    }

    #[test]
    fn a_name_is_reserved_for_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.memtrace");
        let first = reserve(&path).unwrap().unwrap();
        assert!(reserve(&path).unwrap().is_none());
        drop(first);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing stays");
        let again = reserve(&path).unwrap().unwrap();
        fs::write(&path, "recorded").unwrap();
        drop(again);
        assert!(reserve(&path).unwrap().is_none(), "the file exists");
    }

    #[test]
    fn of_many_at_once_each_gets_a_name_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<PathBuf> = (1..=40).map(|number| path(folder.path(), "p", number)).collect();
        let taken: Vec<Vec<PathBuf>> = std::thread::scope(|scope| {
            let take = || {
                let one = || names.iter().find_map(|name| reserve(name).unwrap());
                let reserved: Vec<ReservedName> = (0..5).filter_map(|_| one()).collect();
                // Each recording was made and its name given back; the name stays taken.
                reserved.iter().for_each(|one| fs::write(&one.path, "").unwrap());
                reserved.iter().map(|one| one.path.clone()).collect()
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let mut all = taken.concat();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 40);
    }

    #[test]
    fn the_list_of_a_killed_run_is_taken_over_and_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.memtrace");
        fs::write(list_of(&path), [HEAD, b"7 /x\0"].concat()).unwrap();
        assert_eq!(reserve(&path).unwrap().unwrap().announced(7), []);
        for other in ["", "somebody's notes"] {
            fs::write(list_of(&path), other).unwrap();
            assert!(reserve(&path).unwrap().is_none());
            assert_eq!(fs::read_to_string(list_of(&path)).unwrap(), other);
        }
        fs::remove_file(list_of(&path)).unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, HEAD).unwrap();
        std::os::unix::fs::symlink(&victim, list_of(&path)).unwrap();
        assert!(reserve(&path).unwrap().is_none());
        assert_eq!(fs::read(victim).unwrap(), HEAD);
    }

    #[test]
    fn what_processes_announce_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let reserved = reserve(&folder.path().join("a.memtrace")).unwrap().unwrap();
        let mut list = File::options().append(true).open(reserved.list()).unwrap();
        list.write_all(b"12 /x/a b.memtrace\0nonsense\x0013 /x/new\nline\x0014 /x/to").unwrap();
        let announced = |pid, path: &str| Announced { pid, path: path.into() };
        assert_eq!(reserved.announced(7), [announced(12, "/x/a b.memtrace"), announced(13, "/x/new\nline")]);
    }

    #[test]
    fn a_recording_that_no_process_could_announce_is_the_programs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.memtrace");
        let reserved = reserve(&path).unwrap().unwrap();
        File::options().append(true).open(reserved.list()).unwrap().write_all(b"12 /x/torn").unwrap();
        assert_eq!(reserved.announced(7), []);
        fs::write(&path, "a recording").unwrap();
        assert_eq!(reserved.announced(7), [Announced { pid: 7, path }]);
    }

    #[test]
    fn only_finished_recordings_of_ours_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let (old, notes) = (file("p-1.memtrace", b"memtrace\x01\0\0\0"), file("p-2.memtrace", b"my notes"));
        let (written, read) =
            (file("p-3.memtrace", b"memtrace\x01\0\0\0"), file("p-4.memtrace", b"memtrace\x01\0\0\0"));
        let writer = File::open(&written).unwrap();
        writer.try_lock().unwrap();
        let reader = lock(&list_of(&read)).unwrap().unwrap();
        let link = folder.path().join("p-5.memtrace");
        std::os::unix::fs::symlink(&notes, &link).unwrap();
        [&old, &notes, &written, &read, &link].into_iter().for_each(|path| remove_finished(path));
        assert!(!old.exists());
        assert!(notes.exists() && written.exists() && read.exists() && link.symlink_metadata().is_ok());
        drop(writer);
        remove_finished(&written);
        assert!(!written.exists());
        // From here on, the `run` that read this recording is gone, as if it was killed.
        drop(reader);
        remove_finished(&read);
        assert!(!read.exists() && !list_of(&read).exists());
    }
}
