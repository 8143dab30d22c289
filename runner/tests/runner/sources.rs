//! Sources of the simulated driver when no variable names one.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::sandbox::{CommandOutput, Sandbox};

const RUNNER: &str = env!("CARGO_BIN_EXE_memtrace-runner");

#[test]
fn a_folder_beside_the_runner_is_used() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path.join("simulated-gpu");
    fs::rename(sandbox.path.join("simulated"), &folder).unwrap();
    let runner = sandbox.path.join("memtrace-runner");
    fs::copy(RUNNER, &runner).unwrap();
    let said = CommandOutput::of(sandbox.bare_runner(&runner).arg("--which"));
    assert!(said.out.ends_with(&format!("\nits driver: {}\n", folder.display())), "{said:?}");
    fs::remove_file(folder.join("libcuda.so.1")).unwrap();
    let said = CommandOutput::of(sandbox.bare_runner(&runner).arg(sandbox.plain()));
    said.assert_refused(&["beside the runner lies", "a folder/simulated-gpu, which has no libcuda.so.1"]);
}

#[test]
fn the_driver_is_rebuilt_when_sources_are_newer() {
    let sandbox = Sandbox::new();
    let cargo = Cargo::at(&sandbox, "simulated");
    let which = || {
        let said = CommandOutput::of(cargo.runner().arg("--which"));
        assert_eq!(said.code(), Some(0), "{said:?}");
        PathBuf::from(said.out.lines().last().unwrap().strip_prefix("its driver: ").unwrap())
    };
    let folder = which();
    assert_eq!(folder.parent().unwrap(), sandbox.path.join("cache/memtrace/simulated-driver"));
    let files = ["libcuda.so.1", "libcuda.so", "libcublas.so.13", "libcurand.so.10", "libnvrtc.so.13"];
    assert!(files.iter().all(|file| folder.join(file).exists()), "{}", folder.display());
    assert_eq!((which(), cargo.calls()), (folder.clone(), 1));
    let stamps = fs::read_dir(sandbox.path.join("cache/memtrace/target/cusim")).unwrap().flatten();
    for stamp in stamps.filter(|entry| entry.file_name().to_string_lossy().starts_with("folder-")) {
        File::options().write(true).open(stamp.path()).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    assert_eq!((which(), cargo.calls()), (folder.clone(), 2));
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!((which(), cargo.calls(), folder.exists()), (folder.clone(), 3, true));
}

#[test]
fn concurrent_runners_get_the_same_folder() {
    let sandbox = Sandbox::new();
    let cargo = Cargo::at(&sandbox, "simulated");
    let program = sandbox.linked();
    let paths: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| CommandOutput::of(cargo.runner().arg(&program)))).collect();
        let said = threads.into_iter().map(|thread| thread.join().unwrap());
        said.map(|said| said.line("path").to_owned()).collect()
    });
    assert!(paths.iter().all(|path| *path == paths[0]), "{paths:?}");
    let folders = fs::read_dir(sandbox.path.join("cache/memtrace/simulated-driver")).unwrap().flatten();
    assert_eq!(folders.count(), 1);
}

#[test]
fn the_driver_is_built_without_the_programs_flags() {
    let sandbox = Sandbox::new();
    let cargo = Cargo::at(&sandbox, "simulated");
    let mut runner = cargo.runner();
    runner.env("RUSTFLAGS", "-Cpanic=abort").env("CARGO_BUILD_TARGET", "other").env("CARGO_TARGET_DIR", "relative");
    assert_eq!(CommandOutput::of(runner.arg("--which")).code(), Some(0));
    let seen = fs::read_to_string(sandbox.path.join("calls")).unwrap();
    let folder = sandbox.path.join("cache/memtrace/target/cusim");
    assert_eq!(seen, format!("flags= target= folder={}\n", folder.display()));
}

#[test]
fn without_any_driver_tests_are_skipped_or_fail_as_required() {
    let sandbox = Sandbox::new();
    let cargo = Cargo::at(&sandbox, "nowhere");
    let said = CommandOutput::of(cargo.runner().arg(sandbox.linked()));
    assert!(said.out.contains(" 1 ignored;"), "{said:?}");
    let why = "CUDA_ERROR_NO_DEVICE; the simulated driver could not be built: run ";
    assert!(said.errors.contains(why) && said.errors.contains("scripts/simulated-driver"), "{said:?}");
    CommandOutput::of(cargo.runner().env("MEMTRACE_REQUIRE_GPU", "1").arg(sandbox.linked())).assert_refused(&[why]);
}

/// A fake cargo: copies a driver to the path where cargo would build it. `cargo xtask runner` uses the real one.
struct Cargo<'a> {
    sandbox: &'a Sandbox,
    path: PathBuf,
}

impl<'a> Cargo<'a> {
    /// Copies the driver of this folder.
    fn at(sandbox: &'a Sandbox, folder: &str) -> Self {
        let path = sandbox.path.join("cargo");
        let (driver, calls) = (sandbox.path.join(folder).join("libcuda.so.1"), sandbox.path.join("calls"));
        let text = format!(
            "#!/bin/sh -e\nto=$CARGO_TARGET_DIR/release\n\
             echo \"flags=$RUSTFLAGS target=$CARGO_BUILD_TARGET folder=$CARGO_TARGET_DIR\" >>'{calls}'\n\
             mkdir -p \"$to/examples\"\n\
             for name in '' _cublas _cublaslt _curand _cudart _nvrtc; do\n\
             [ -z \"$name\" ] && file=$to/libmemtrace_cusim.so || file=$to/examples/libmemtrace_cusim$name.so\n\
             cp '{driver}' \"$file.$$\"; mv \"$file.$$\" \"$file\"\ndone\n",
            calls = calls.display(),
            driver = driver.display(),
        );
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self { sandbox, path }
    }

    fn runner(&self) -> Command {
        let mut runner = self.sandbox.bare_runner(Path::new(RUNNER));
        for name in ["RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"] {
            runner.env_remove(name);
        }
        runner.env("CARGO", &self.path).env("XDG_CACHE_HOME", self.sandbox.path.join("cache"));
        runner
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.sandbox.path.join("calls")).unwrap().lines().count()
    }
}
