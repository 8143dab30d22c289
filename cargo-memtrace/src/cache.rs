//! The folder for what is built or fetched once.

use std::path::PathBuf;

use crate::failure::CommandFailure;

/// `$XDG_CACHE_HOME/memtrace`, or `.cache/memtrace` in the user's home.
pub(crate) fn cache() -> Result<PathBuf, CommandFailure> {
    let set = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = set.or_else(|| Some(std::env::home_dir().filter(|home| home.is_absolute())?.join(".cache")));
    let none = || CommandFailure::usage("no folder for what is built once: set HOME or XDG_CACHE_HOME");
    cache.map(|cache| cache.join("memtrace")).ok_or_else(none)
}
