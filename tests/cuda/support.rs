//! Programs on a simulated GPU, each in a process of its own.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

const CHILD: &str = "MEMTRACE_TEST_CHILD";
/// What a child says when its test has come to the end.
pub(crate) const AT_THE_END: &str = "the child's test passed";

/// Runs `body` in a child process that finds the simulated driver as `libcuda.so.1`, with these variables
/// besides; gives what the child wrote to stderr. In the child this does not return.
pub(crate) fn on_gpu(variables: &[(&str, &str)], body: impl FnOnce()) -> String {
    if std::env::var_os(CHILD).is_some() {
        body();
        eprintln!("{AT_THE_END}");
        std::process::exit(0);
    }
    let output = child(variables).output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    let ran = output.status.success() && errors.contains(AT_THE_END);
    assert!(ran, "{}\n{}\n{errors}", output.status, String::from_utf8_lossy(&output.stdout));
    errors
}

/// The test that asks, in a process of its own.
pub(crate) fn child(variables: &[(&str, &str)]) -> Command {
    let thread = std::thread::current();
    let test = thread.name().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(CHILD, test);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MEMTRACE") && name != CHILD) {
        command.env_remove(name);
    }
    command.env("LD_LIBRARY_PATH", driver_folder()).envs(variables.iter().copied());
    command
}

/// A folder with the simulated driver under the real one's names.
pub(crate) fn driver_folder() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let built = std::env::current_exe().unwrap().with_file_name("libmemtrace_cusim.so");
        std::fs::copy(built, folder.path().join("libcuda.so.1")).unwrap();
        std::os::unix::fs::symlink("libcuda.so.1", folder.path().join("libcuda.so")).unwrap();
        folder
    });
    folder.path()
}
