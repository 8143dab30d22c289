//! The program's file.

use std::path::PathBuf;
use std::{env, fs};

/// `/proc/self` is about the main thread, and has no such file after its end.
pub(crate) fn executable() -> Option<PathBuf> {
    env::current_exe().or_else(|_| fs::read_link("/proc/thread-self/exe")).ok()
}
