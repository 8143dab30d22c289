//! Lookup of object files and separate debug information, verified by build-id.

use std::fs;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::{Object, ReadCache};

use crate::snapshot::LoadedObject;

/// Folder in which distributions keep debug information by build-id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

pub(super) fn path_of(object: &LoadedObject) -> &Path {
    Path::new(object.path.as_deref().unwrap_or_default())
}

/// Opens the file of an object, or its separate debug information.
pub(super) fn open(object: &LoadedObject) -> Result<Loader, String> {
    if object.build_id.is_empty() {
        return Err("it has no build-id to verify its file with".to_owned());
    }
    let path = path_of(object);
    let candidates = [path.to_owned(), debug_file(&object.build_id)];
    let same = candidates.iter().find(|path| build_id(path).is_some_and(|id| id == object.build_id));
    let Some(path) = same else {
        let why = if path.exists() { "the file has changed" } else { "the file is gone" };
        return Err(format!("{why} (build-id {})", hex(&object.build_id)));
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
    // A hostile capture may name a pipe, and opening it would wait for a writer.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let cache = ReadCache::new(fs::File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    file.build_id().ok()?.map(<[u8]>::to_vec)
}
