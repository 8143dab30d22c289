//! Lookup of object files and separate debug information, verified by build-id.

use std::fs;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::{Object, ReadCache};

use crate::snapshot::LoadedObject;

/// Folder in which distributions keep debug information by build-id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// Where the reader of a capture looks for the files of the program and its libraries, besides their own paths and
/// `/usr/lib/debug/.build-id`. A file counts only if its build-id matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolSources {
    /// Program files, libraries and files of debug information, wherever they are now.
    pub binaries: Vec<PathBuf>,
    /// Folders with files of these names, and with debug information as `.build-id/AB/CDEF….debug`.
    pub debug_dirs: Vec<PathBuf>,
}

impl SymbolSources {
    /// The files to try, in this order.
    fn candidates(&self, object: &LoadedObject) -> Vec<PathBuf> {
        let (path, debug) = (path_of(object), debug_file(&object.build_id));
        let mut candidates = self.binaries.clone();
        for folder in &self.debug_dirs {
            candidates.extend([folder.join(".build-id").join(&debug), folder.join(&debug)]);
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            candidates.extend([folder.join(format!("{name}.debug")), folder.join(&*name)]);
        }
        candidates.extend([path.to_owned(), Path::new(DEBUG_FILES).join(debug)]);
        candidates
    }
}

pub(super) fn path_of(object: &LoadedObject) -> &Path {
    Path::new(object.path.as_deref().unwrap_or_default())
}

/// Opens the file of an object, or its separate debug information.
pub(super) fn open(object: &LoadedObject, sources: &SymbolSources) -> Result<Loader, String> {
    if object.build_id.is_empty() {
        return Err("it has no build-id to verify its file with".to_owned());
    }
    let path = path_of(object);
    let candidates = sources.candidates(object);
    let same = candidates.iter().find(|path| build_id(path).is_some_and(|id| id == object.build_id));
    let Some(path) = same else {
        let why = if path.exists() { "the file has changed" } else { "the file is gone" };
        return Err(format!("{why} (build-id {})", hex(&object.build_id)));
    };
    Loader::new(path).map_err(|error| error.to_string())
}

/// `AB/CDEF….debug`.
fn debug_file(build_id: &[u8]) -> PathBuf {
    let id = hex(build_id);
    let (folder, file) = id.split_at_checked(2).unwrap_or((&id, ""));
    Path::new(folder).join(format!("{file}.debug"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn build_id(path: &Path) -> Option<Vec<u8>> {
    // A hostile capture may name a pipe, and opening it would wait for a writer.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let cache = ReadCache::new(fs::File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    file.build_id().ok()?.map(<[u8]>::to_vec)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    /// This program under another name, as a moved one.
    #[test]
    fn a_moved_program_is_found_by_its_build_id_where_the_sources_say() {
        let program = std::env::current_exe().unwrap();
        let Some(id) = build_id(&program) else { return };
        let folder = tempfile::tempdir().unwrap();
        let by_id = folder.path().join(".build-id").join(debug_file(&id));
        let by_name = folder.path().join("names/gone");
        let object = LoadedObject { path: Some("/gone".into()), build_id: id, base: 0, range: 0..1 };
        let of = |binary: Option<&Path>, debug_dir: Option<&Path>| SymbolSources {
            binaries: binary.map(Path::to_owned).into_iter().collect(),
            debug_dirs: debug_dir.map(Path::to_owned).into_iter().collect(),
        };
        assert!(open(&object, &SymbolSources::default()).is_err_and(|error| error.starts_with("the file is gone")));
        assert!(open(&object, &of(Some(&program), None)).is_ok());
        for (file, debug_dir) in [(by_id, folder.path().to_owned()), (by_name, folder.path().join("names"))] {
            assert!(open(&object, &of(None, Some(&debug_dir))).is_err());
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(&program, &file).unwrap();
            assert!(open(&object, &of(None, Some(&debug_dir))).is_ok(), "{}", file.display());
            fs::remove_file(file).unwrap();
        }
        let other = LoadedObject { build_id: vec![1, 2, 3], ..object };
        assert!(open(&other, &of(Some(&program), None)).is_err(), "another build is no match");
    }
}
