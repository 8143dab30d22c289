//! Finds object files and separate debug information, and verifies them by build-id.

use std::path::{Path, PathBuf};

use addr2line::Loader;

use super::object_file::{DEBUG_ROOT, ObjectFile, debug_file, hex};
use crate::snapshot::LoadedObject;

/// Where the reader of a capture looks for the files of the program and its libraries, in addition to their own paths
/// and `/usr/lib/debug`. Only files with a matching build-id are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SymbolSources {
    /// Program files, libraries and files with debug information, at their present paths.
    pub binaries: Vec<PathBuf>,
    /// Folders to search for files with the names of the objects (`NAME` or `NAME.debug`), or for debug information
    /// at the paths that it has below `/usr/lib/debug`: `.build-id/AB/CDEF….debug`, or where a `.gnu_debuglink`
    /// leads.
    pub debug_dirs: Vec<PathBuf>,
}

impl SymbolSources {
    /// The files that may have an object's symbols, in the order in which they are tried.
    fn candidates(&self, object: &LoadedObject) -> Vec<PathBuf> {
        let path = path_of(object);
        let mut candidates = self.binaries.clone();
        candidates.push(path.to_owned());
        let (by_id, name) = (debug_file(&object.build_id), path.file_name().unwrap_or_default().to_string_lossy());
        for folder in &self.debug_dirs {
            candidates.extend([folder.join(&by_id), folder.join(by_id.strip_prefix(".build-id").unwrap_or(&by_id))]);
            candidates.extend([folder.join(format!("{name}.debug")), folder.join(&*name)]);
        }
        candidates.push(Path::new(DEBUG_ROOT).join(by_id));
        candidates
    }

    fn roots(&self) -> Vec<PathBuf> {
        self.debug_dirs.iter().cloned().chain([PathBuf::from(DEBUG_ROOT)]).collect()
    }
}

pub(super) fn path_of(object: &LoadedObject) -> &Path {
    Path::new(object.path.as_deref().unwrap_or_default())
}

/// Opens the files of an object of another process. The file with debug information comes first. It may be the only
/// file.
pub(super) fn open(object: &LoadedObject, sources: &SymbolSources) -> Result<Vec<Loader>, String> {
    if object.build_id.is_empty() {
        return Err("it has no build-id to verify its file with".to_owned());
    }
    let candidates = sources.candidates(object);
    open_first(object, verified(object, &candidates), &sources.roots())
}

/// Opens the files of an object that is loaded in this process. The program's file may have been replaced or deleted,
/// but the kernel still has it. If a loaded library has a build-id, its file must have the same. An object without a
/// file (the vDSO) has no symbols.
pub(super) fn open_loaded(object: &LoadedObject, is_program: bool) -> Result<Vec<Loader>, String> {
    let sources = SymbolSources::default();
    let running =
        if cfg!(target_os = "linux") && is_program { ObjectFile::of(Path::new("/proc/self/exe")) } else { None };
    let candidates = match object.build_id.is_empty() {
        true => vec![path_of(object).to_owned()],
        false => sources.candidates(object),
    };
    open_first(object, running.into_iter().chain(verified(object, &candidates)), &sources.roots())
}

/// The candidates that have the object's build-id.
fn verified(object: &LoadedObject, candidates: &[PathBuf]) -> impl Iterator<Item = ObjectFile> {
    candidates.iter().filter_map(|path| ObjectFile::of(path)).filter(|file| file.build_id == object.build_id)
}

/// Opens files up to the first one with source lines. If files without lines come before it, it also opens the first
/// of these, whose symbol table may have other functions.
fn open_first(
    object: &LoadedObject,
    mut files: impl Iterator<Item = ObjectFile>,
    roots: &[PathBuf],
) -> Result<Vec<Loader>, String> {
    let mut plain = Vec::new();
    let with_lines = files.find_map(|file| {
        let lines = if file.has_lines { file.load(roots).ok() } else { None };
        if lines.is_none() {
            plain.push(file);
        }
        lines
    });
    let linked = || plain.iter().find_map(|file| file.linked(roots)?.load(roots).ok());
    let lines = with_lines.or_else(linked);
    match (lines, plain.first().map(|file| file.load(roots))) {
        (None, None) => Err(why_none(object)),
        (None, Some(own)) => Ok(vec![own?]),
        (Some(lines), own) => Ok([lines].into_iter().chain(own.and_then(Result::ok)).collect()),
    }
}

fn why_none(object: &LoadedObject) -> String {
    let why = if path_of(object).exists() { "the file has changed" } else { "the file is gone" };
    let id = if object.build_id.is_empty() { "none".to_owned() } else { hex(&object.build_id) };
    format!("{why} (build-id {id})")
}

#[cfg(all(test, target_os = "linux"))]
pub(crate) fn build_id(path: &Path) -> Option<Vec<u8>> {
    ObjectFile::of(path).map(|file| file.build_id).filter(|id| !id.is_empty())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;

    use super::*;

    /// This program under another name, as if it had been moved.
    #[test]
    fn a_moved_program_is_found_by_its_build_id_where_the_sources_say() {
        let program = std::env::current_exe().unwrap();
        let Some(id) = build_id(&program) else { return };
        let folder = tempfile::tempdir().unwrap();
        let by_id = folder.path().join(debug_file(&id));
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
