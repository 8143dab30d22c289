//! Data that an object file on disk has about itself: its build-id, and where to find the rest of its debug
//! information.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::{Object, ObjectSection, ReadCache};

use crate::input::open_regular;

/// Folder below which distributions keep debug information.
pub(super) const DEBUG_ROOT: &str = "/usr/lib/debug";

/// A program, a library, or a file that has only debug information.
pub(super) struct ObjectFile {
    pub(super) path: PathBuf,
    /// GNU build-id; empty if it has none.
    pub(super) build_id: Vec<u8>,
    /// Whether it has lines and inlined functions (DWARF). A stripped file does not.
    pub(super) has_lines: bool,
    /// The name and checksum of the separate file with this file's debug information (`.gnu_debuglink`).
    link: Option<(PathBuf, u32)>,
    /// The path and build-id of the file with the debug information that several object files share
    /// (`.gnu_debugaltlink`). The tool dwz makes such files.
    shared: Option<(PathBuf, Vec<u8>)>,
}

impl ObjectFile {
    /// Reads the needed parts of a file; `None` if it is not an object file.
    pub(super) fn of(path: &Path) -> Option<Self> {
        // Only regular files, because a hostile capture may name a pipe.
        let cache = ReadCache::new(open_regular(path).ok()?);
        let file = object::File::parse(&cache).ok()?;
        let link = file.gnu_debuglink().ok().flatten();
        let shared = file.gnu_debugaltlink().ok().flatten();
        Some(Self {
            path: path.to_owned(),
            build_id: file.build_id().unwrap_or_else(|_| build_id_alone(&file)).unwrap_or_default().to_vec(),
            has_lines: file.section_by_name(".debug_info").is_some_and(|section| section.size() > 0),
            link: link.and_then(|(name, checksum)| Some((file_name(path_from(name)?)?, checksum))),
            shared: shared.and_then(|(path, id)| Some((path_from(path)?, id.to_vec()))),
        })
    }

    /// Opens the file, with its shared debug information if that exists.
    pub(super) fn load(&self, roots: &[PathBuf]) -> Result<Loader, String> {
        let shared = self.shared(roots).and_then(|shared| Loader::new_with_sup(&self.path, Some(shared)).ok());
        shared.map_or_else(|| Loader::new(&self.path).map_err(|error| error.to_string()), Ok)
    }

    fn shared(&self, roots: &[PathBuf]) -> Option<PathBuf> {
        let (named, id) = self.shared.as_ref().filter(|(_, id)| !id.is_empty())?;
        // A relative path begins at the file itself, which may have been reached through a link.
        let folder = self.path.canonicalize().ok()?.parent()?.to_owned();
        let below = |root: &PathBuf| Some(root.join(named.strip_prefix(DEBUG_ROOT).ok()?));
        let by_id = roots.iter().map(|root| root.join(debug_file(id)));
        let candidates = [folder.join(named)].into_iter().chain(roots.iter().filter_map(below)).chain(by_id);
        candidates.into_iter().find(|path| Self::of(path).is_some_and(|file| file.build_id == *id))
    }

    /// The file that `link` names, if its checksum and build-id show that it is of the same build.
    pub(super) fn linked(&self, roots: &[PathBuf]) -> Option<Self> {
        let (name, checksum) = self.link.as_ref()?;
        let is_same = |file: &Self| {
            file.has_lines
                && file.build_id == self.build_id
                && checksum_of(&file.path).is_ok_and(|sum| sum == *checksum)
        };
        self.link_folders(roots).iter().filter_map(|folder| Self::of(&folder.join(name))).find(is_same)
    }

    /// The folders where gdb looks for a linked file, and the roots themselves.
    fn link_folders(&self, roots: &[PathBuf]) -> Vec<PathBuf> {
        let target = self.path.canonicalize().ok().filter(|target| *target != self.path);
        let mut folders = Vec::new();
        for folder in [Some(&self.path), target.as_ref()].into_iter().flatten().filter_map(|path| path.parent()) {
            let below = folder.strip_prefix("/").unwrap_or(folder);
            folders.extend([folder.to_owned(), folder.join(".debug")]);
            folders.extend(roots.iter().map(|root| root.join(below)));
        }
        folders.extend_from_slice(roots);
        folders
    }
}

/// `.build-id/AB/CDEF….debug`, the path of debug information below a root.
pub(super) fn debug_file(build_id: &[u8]) -> PathBuf {
    let id = hex(build_id);
    let (folder, file) = id.split_at_checked(2).unwrap_or((&id, ""));
    [".build-id", folder, &format!("{file}.debug")].iter().collect()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The build-id, read directly from its section, behind a header of 16 bytes. Damaged notes in other sections then do
/// not matter.
fn build_id_alone<'a>(file: &impl Object<'a>) -> Option<&'a [u8]> {
    file.section_by_name(".note.gnu.build-id")?.data().ok()?.get(16..)
}

fn path_from(bytes: &[u8]) -> Option<PathBuf> {
    str::from_utf8(bytes).ok().map(PathBuf::from)
}

/// The path, if it consists only of a file name.
fn file_name(path: PathBuf) -> Option<PathBuf> {
    (path.file_name() == Some(path.as_os_str())).then_some(path)
}

/// The checksum of a file, in the form that a `.gnu_debuglink` contains.
fn checksum_of(path: &Path) -> io::Result<u32> {
    let (mut file, mut hasher, mut portion) = (open_regular(path)?, crc32fast::Hasher::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut portion)? {
            0 => return Ok(hasher.finalize()),
            read => hasher.update(portion.get(..read).unwrap_or_default()),
        }
    }
}
