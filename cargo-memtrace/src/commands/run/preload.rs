//! The variables that make a program load the preload library.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::elf::{is_sanitizer, other_allocator};
use crate::output;

/// The variable that names the library that NVTX loads in a program. It has room for one library.
const NVTX: &str = "NVTX_INJECTION64_PATH";

/// Makes a program load the library and pass NVTX's ranges to it.
pub(super) fn preload(command: &mut Command, library: &Path) {
    let given = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD").and_then(|(_, value)| value);
    let others = given.map(OsString::from).or_else(|| std::env::var_os("LD_PRELOAD"));
    command.env("LD_PRELOAD", behind(others, library));
    if let Some(other) = nvtx(command, library, std::env::var_os(NVTX)) {
        output::say(format!("NVTX ranges are not recorded as scopes: {NVTX} is already set, to {}", other.display()));
    }
}

/// Says so if another preloaded library replaces C's allocator. True if that library is a sanitizer's.
pub(super) fn others_have_a_sanitizer() -> bool {
    let others = std::env::var("LD_PRELOAD").unwrap_or_default();
    let Some(library) = other_allocator(others.split([':', ' '])) else { return false };
    let what = if is_sanitizer(library) { "nothing" } else { "nothing of the heap" };
    output::say(format!("{what} is recorded: {library}, which is preloaded, takes the place of C's allocator"));
    is_sanitizer(library)
}

/// Puts the library behind those that are already preloaded.
fn behind(others: Option<OsString>, library: &Path) -> OsString {
    let mut all = others.unwrap_or_default();
    if !all.is_empty() {
        all.push(":");
    }
    all.push(library);
    all
}

/// Names the library to NVTX, unless the variable already names another tool. Returns the other tool.
fn nvtx(command: &mut Command, library: &Path, set: Option<OsString>) -> Option<OsString> {
    let other = set.filter(|set| !set.is_empty() && set != library.as_os_str());
    if other.is_none() {
        command.env(NVTX, library);
    }
    other
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn the_library_is_nvtxs_tool_unless_there_is_another_one() {
        let library = Path::new("/cache/libmemtrace_preload.so");
        let given = |set: Option<&str>| {
            let mut command = Command::new("program");
            let other = nvtx(&mut command, library, set.map(OsString::from));
            let value = command.get_envs().find(|(name, _)| *name == NVTX).and_then(|(_, value)| value);
            (value.map(OsStr::to_owned), other)
        };
        // The last value is set when a `run` runs inside a `run`.
        for set in [None, Some(""), library.to_str()] {
            assert_eq!(given(set), (Some(library.into()), None), "{set:?}");
        }
        assert_eq!(given(Some("/nsight/injection.so")), (None, Some("/nsight/injection.so".into())));
    }

    #[test]
    fn what_is_preloaded_anyway_comes_first() {
        let after = |others: Option<&str>| behind(others.map(OsString::from), Path::new("/ours.so"));
        assert_eq!([after(None), after(Some("")), after(Some("a:b"))], ["/ours.so", "/ours.so", "a:b:/ours.so"]);
    }
}
