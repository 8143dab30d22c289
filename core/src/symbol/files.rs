//! The files of a process that is gone: taken only if they are still the same.

use std::fs;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::{Object, ReadCache};

use crate::snapshot::LoadedObject;

/// Where distributions keep debug information, by build-id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// Opens the file that a module was loaded from, or its separate debug information.
pub(super) fn open(module: &LoadedObject) -> Result<Loader, String> {
    if module.build_id.is_empty() {
        return Err("it has no build-id, so nothing says whether its file is still the same".to_owned());
    }
    let path = Path::new(module.path.as_deref().unwrap_or_default());
    let candidates = [path.to_owned(), debug_file(&module.build_id)];
    let same = candidates.iter().find(|path| build_id(path).is_some_and(|id| id == module.build_id));
    let Some(path) = same else {
        let (there, id) = (path.exists(), hex(&module.build_id));
        let why = if there { "the file there now is another one" } else { "the file is gone" };
        return Err(format!("{why} (build-id {id})"));
    };
    Loader::new(path).map_err(|error| error.to_string())
}

fn debug_file(build_id: &[u8]) -> PathBuf {
    let id = hex(build_id);
    let (folder, file) = id.split_at_checked(2).unwrap_or((&id, ""));
    Path::new(DEBUG_FILES).join(folder).join(format!("{file}.debug"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn build_id(path: &Path) -> Option<Vec<u8>> {
    // A capture may name anything as a program; to open a pipe would wait for its writer.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let cache = ReadCache::new(fs::File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    file.build_id().ok()?.map(<[u8]>::to_vec)
}
