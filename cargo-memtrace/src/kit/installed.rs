//! A kit that was installed with this program, as in archives and Python's wheel. It needs no compiler. It lies in
//! `../lib/memtrace` beside the program's folder and has a folder for each part, named as in the cache.

use std::path::{Path, PathBuf};

use memtrace_runner::kit::KitPart;

use crate::failure::CommandFailure;

/// The file that names the kit's version of memtrace.
const VERSION_FILE: &str = "VERSION";

/// The part's folder, if it was installed. A kit of another version is an error, because its recordings may not be
/// readable.
pub(super) fn part(part: &KitPart) -> Result<Option<PathBuf>, CommandFailure> {
    // Symbolic links are followed, so that a link in another folder finds the kit, too.
    let program = std::env::current_exe().and_then(|program| program.canonicalize());
    program.map_or(Ok(None), |program| part_beside(&program, part))
}

fn part_beside(program: &Path, part: &KitPart) -> Result<Option<PathBuf>, CommandFailure> {
    let kit = program.parent().and_then(Path::parent).map(|folder| folder.join("lib/memtrace"));
    let Some(kit) = kit.filter(|kit| kit.is_dir()) else { return Ok(None) };
    let version = std::fs::read_to_string(kit.join(VERSION_FILE)).unwrap_or_default();
    if version.trim() != env!("CARGO_PKG_VERSION") {
        let found = if version.trim().is_empty() { "of an unknown version" } else { version.trim() };
        return Err(CommandFailure::usage(format!(
            "the kit in {} is {found}, this program is {}; install both again",
            kit.display(),
            env!("CARGO_PKG_VERSION")
        )));
    }
    Ok(Some(kit.join(part.folder_name())).filter(|folder| folder.is_dir()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use memtrace_runner::kit::{PRELOAD_LIBRARY, SIMULATED_DRIVER};

    use super::*;

    #[test]
    fn a_part_is_found_beside_the_programs_folder_and_only_in_the_programs_version() {
        let root = tempfile::tempdir().unwrap();
        let (program, kit) = (root.path().join("bin/memtrace"), root.path().join("lib/memtrace"));
        let found = |part| part_beside(&program, part).map_err(|error| error.to_string());
        assert_eq!(found(&PRELOAD_LIBRARY), Ok(None), "nothing is installed");
        fs::create_dir_all(kit.join("preload-library")).unwrap();
        assert!(found(&PRELOAD_LIBRARY).unwrap_err().contains("of an unknown version"));
        fs::write(kit.join(VERSION_FILE), "0.0.9\n").unwrap();
        assert!(found(&PRELOAD_LIBRARY).unwrap_err().contains("is 0.0.9, this program is"));
        fs::write(kit.join(VERSION_FILE), concat!(env!("CARGO_PKG_VERSION"), "\n")).unwrap();
        assert_eq!(found(&PRELOAD_LIBRARY), Ok(Some(kit.join("preload-library"))));
        assert_eq!(found(&SIMULATED_DRIVER), Ok(None), "this part was not installed");
    }
}
