//! Programs and libraries of the tests, and what they are run with.

mod bare;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file that cargo has built beside the test.
pub(crate) fn built(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(name)
}

/// Runs a compiler in a folder.
pub(crate) fn compile(folder: &Path, compiler: &str, arguments: &str) {
    let compiler = std::env::var_os(compiler.to_uppercase()).unwrap_or_else(|| compiler.into());
    let output = Command::new(compiler).args(arguments.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A command in this folder with these libraries preloaded.
pub(crate) fn preloaded(folder: &Path, libraries: &[&Path], program: impl AsRef<Path>) -> Command {
    let mut command = bare::bare(program.as_ref());
    let libraries: Vec<_> = libraries.iter().map(|library| library.to_str().unwrap()).collect();
    command.current_dir(folder).env("LD_PRELOAD", libraries.join(":"));
    command
}

/// Runs a program as `cargo memtrace run` does. Blocks of 16 KiB or more are recorded.
pub(crate) fn recorded(mut command: Command) -> Output {
    command.env("MEMTRACE_RUN", std::process::id().to_string()).env("MEMTRACE_OUT", "heap.memtrace");
    command.env("MEMTRACE_MIN_SIZE", "16KiB").output().unwrap()
}
