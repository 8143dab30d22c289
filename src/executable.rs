//! The program's executable file.

use std::path::PathBuf;
use std::{env, fs};

/// `current_exe` reads `/proc/self/exe`, gone once the main thread has ended.
pub(crate) fn executable() -> Option<PathBuf> {
    env::current_exe().or_else(|_| fs::read_link("/proc/thread-self/exe")).ok()
}
