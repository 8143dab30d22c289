//! Programs without the variables that this test was started with.

use std::process::Command;

/// A program without variables of memtrace and NVTX, except the one that has every stack checked.
pub(crate) fn bare(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MEMTRACE") || name.starts_with("NVTX")) {
        if name != "MEMTRACE_CHECK_STACKS" {
            command.env_remove(name);
        }
    }
    command
}
