//! Files that the program passes by name to a function that memtrace watches.

use std::ffi::{CStr, OsStr};
use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::{current, on};
use crate::hook::files::{FileMark, FileReader};
use crate::record::pages::{PageVec, Pages};

/// The largest file that is read, in bytes. A module of GPU code is far smaller.
const MOST: u64 = 64 << 20;

pub(in crate::session) const READER: FileReader = FileReader { mark, read };

/// Opens nothing, so a pipe is neither waited for nor emptied.
fn mark(path: &CStr) -> Option<FileMark> {
    mark_of(&std::fs::metadata(path_of(path)).ok()?)
}

fn path_of(path: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(path.to_bytes()))
}

fn mark_of(file: &Metadata) -> Option<FileMark> {
    let changed = (file.ctime(), file.ctime_nsec());
    let mark = FileMark { device: file.dev(), number: file.ino(), size: file.size(), changed };
    (file.is_file() && (1..=MOST).contains(&mark.size)).then_some(mark)
}

fn read(path: &CStr, mark: FileMark) -> Option<PageVec<u8>> {
    let mut bytes = PageVec::new_in(Pages);
    let size = usize::try_from(mark.size).ok()?;
    bytes.try_reserve_exact(size).ok()?;
    bytes.resize(size, 0);
    let path = path.to_owned();
    // The path goes back with the bytes, so that nothing is freed on the thread for files.
    let fill = move || (fill(&path, mark, &mut bytes).is_some(), path, bytes);
    let (is_filled, _, bytes) = on(current().as_deref(), fill)?;
    is_filled.then_some(bytes)
}

fn fill(path: &CStr, mark: FileMark, bytes: &mut [u8]) -> Option<()> {
    // If the file has become a pipe, this does not wait for a writer.
    let mut file =
        OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path_of(path)).ok()?;
    has(&file, mark)?;
    file.read_exact(bytes).ok()?;
    has(&file, mark)
}

fn has(file: &File, mark: FileMark) -> Option<()> {
    (mark_of(&file.metadata().ok()?)? == mark).then_some(())
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    fn named(folder: &Path, name: &str) -> CString {
        CString::new(folder.join(name).to_str().unwrap()).unwrap()
    }

    #[test]
    fn a_file_is_read_while_it_is_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = named(folder.path(), "module");
        assert_eq!(mark(&path), None, "there is none");
        std::fs::write(folder.path().join("module"), b"kernels").unwrap();
        let before = mark(&path).unwrap();
        assert_eq!(read(&path, before).unwrap().as_slice(), b"kernels");
        std::fs::write(folder.path().join("other"), b"KERNELS").unwrap();
        std::fs::rename(folder.path().join("other"), folder.path().join("module")).unwrap();
        assert!(read(&path, before).is_none(), "it was replaced");
        let again = mark(&path).unwrap();
        std::fs::write(folder.path().join("module"), b"more kernels").unwrap();
        assert!(read(&path, again).is_none(), "it was rewritten");
        std::fs::remove_file(folder.path().join("module")).unwrap();
        assert!(read(&path, again).is_none(), "it is gone");
    }

    #[test]
    fn what_is_no_file_or_too_large_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(mark(&named(folder.path(), ".")), None, "a folder");
        assert_eq!(mark(c"/dev/zero"), None, "a device");
        let sparse = |size| std::fs::File::create(folder.path().join("large")).unwrap().set_len(size).unwrap();
        let large = named(folder.path(), "large");
        sparse(MOST + 1);
        assert_eq!(mark(&large), None);
        sparse(MOST);
        assert!(mark(&large).is_some());
        sparse(0);
        assert_eq!(mark(&large), None, "nothing is in it");
    }
}
