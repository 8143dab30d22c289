//! A library that a child preloads. Calls for files in a folder fail as on a full disk. `full_disk.c` has its
//! variables.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which calls fail.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(dead_code, reason = "each test program uses a part of this")]
pub(crate) enum Failing {
    /// One call.
    Once = 0,
    /// One call, which writes half of its bytes, and all later calls.
    FromThenOn = 1,
    /// None. But a signal interrupts each call first, and each write writes half of its bytes.
    Interrupted = 2,
}

/// Compiles the library in this folder.
pub(crate) fn library(folder: &Path) -> PathBuf {
    let sources = [("full_disk.c", include_str!("full_disk.c")), ("renames.c", include_str!("full_disk_renames.c"))];
    sources.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler
        .args(["-w", "-O1", "-shared", "-fPIC", "-o", "libfull_disk.so"])
        .args(sources.map(|(name, _)| name))
        .current_dir(folder);
    assert!(compiler.status().unwrap().success());
    folder.join("libfull_disk.so")
}
