//! The program's executable file.

use std::path::PathBuf;
use std::{env, fs};

/// `/proc/self` describes the main thread, which has no such file after its end.
pub(crate) fn executable() -> Option<PathBuf> {
    env::current_exe().or_else(|_| fs::read_link("/proc/thread-self/exe")).ok()
}
