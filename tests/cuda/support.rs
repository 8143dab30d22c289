//! Runs tests on a simulated GPU, each in a process of its own.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::child;

/// Runs `body` in a child process with these variables that finds the simulated driver as `libcuda.so.1`, and returns
/// the child's stderr. In the child this does not return.
#[track_caller]
pub(crate) fn on_gpu(variables: &[(&str, &str)], body: impl FnOnce()) -> String {
    child::if_child(body);
    let mut command = child::command(&[]);
    command.env("LD_LIBRARY_PATH", driver_folder()).envs(variables.iter().copied());
    child::ended(&mut command).well().errors
}

/// Builds a library from C source, in a folder.
pub(crate) fn build_c(folder: &Path, name: &str, source: &str, flags: &[&str]) -> PathBuf {
    let (text, built) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    std::fs::write(&text, source).unwrap();
    let mut compile = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compile.args(["-w", "-shared", "-fPIC", "-o"]).arg(&built).arg(&text).args(flags).arg("-ldl");
    assert!(compile.status().unwrap().success(), "a C compiler builds {name}");
    built
}

/// Loads a library.
pub(crate) fn open(path: impl AsRef<Path>) -> *mut c_void {
    let name = CString::new(path.as_ref().to_str().unwrap()).unwrap();
    // SAFETY: the tests' libraries run no code when they are loaded.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_GLOBAL) };
    assert!(!library.is_null(), "{name:?} can be loaded");
    library
}

/// A function of a library, with the type that the caller names.
pub(crate) fn function<F: Copy>(library: *mut c_void, name: &str) -> F {
    assert_eq!(size_of::<F>(), size_of::<usize>());
    let name = CString::new(name).unwrap();
    // SAFETY: the handle is open and the name ends with a zero byte.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!address.is_null(), "{name:?} is there");
    // SAFETY: the caller names the function's type.
    unsafe { std::mem::transmute_copy(&address) }
}

/// A folder with the simulated driver under the real driver's names.
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
