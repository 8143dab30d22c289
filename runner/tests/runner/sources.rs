//! Where the simulated driver comes from if no variable says so.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::place::{Place, Said};

const RUNNER: &str = env!("CARGO_BIN_EXE_memtrace-runner");

#[test]
fn a_folder_beside_the_runner_is_taken() {
    let place = Place::new();
    let folder = place.path.join("simulated-gpu");
    fs::rename(place.path.join("simulated"), &folder).unwrap();
    let runner = place.path.join("memtrace-runner");
    fs::copy(RUNNER, &runner).unwrap();
    let said = Said::by(place.bare_runner(&runner).arg("--which"));
    assert!(said.out.ends_with(&format!("\nits driver: {}\n", folder.display())), "{said:?}");
    fs::remove_file(folder.join("libcuda.so.1")).unwrap();
    let said = Said::by(place.bare_runner(&runner).arg(place.plain()));
    said.assert_refused(&["beside the runner lies", "a place/simulated-gpu, which has no libcuda.so.1"]);
}

#[test]
fn the_driver_is_built_from_the_sources_when_they_are_newer() {
    let place = Place::new();
    let cargo = Cargo::at(&place, "simulated");
    let which = || {
        let said = Said::by(cargo.runner().arg("--which"));
        assert_eq!(said.code(), Some(0), "{said:?}");
        PathBuf::from(said.out.lines().last().unwrap().strip_prefix("its driver: ").unwrap())
    };
    let folder = which();
    assert_eq!(folder.parent().unwrap(), place.path.join("cache/memtrace/simulated-driver"));
    let files = ["libcuda.so.1", "libcuda.so", "libcublas.so.13", "libcurand.so.10", "libnvrtc.so.13"];
    assert!(files.iter().all(|file| folder.join(file).exists()), "{}", folder.display());
    assert_eq!((which(), cargo.calls()), (folder.clone(), 1));
    let stamps = fs::read_dir(place.path.join("cache/memtrace/target/cusim")).unwrap().flatten();
    for stamp in stamps.filter(|entry| entry.file_name().to_string_lossy().starts_with("folder-")) {
        File::options().write(true).open(stamp.path()).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    }
    assert_eq!((which(), cargo.calls()), (folder.clone(), 2));
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!((which(), cargo.calls(), folder.exists()), (folder.clone(), 3, true));
}

#[test]
fn many_at_once_get_the_same_folder() {
    let place = Place::new();
    let cargo = Cargo::at(&place, "simulated");
    let program = place.linked();
    let paths: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| Said::by(cargo.runner().arg(&program)))).collect();
        let said = threads.into_iter().map(|thread| thread.join().unwrap());
        said.map(|said| said.line("path").to_owned()).collect()
    });
    assert!(paths.iter().all(|path| *path == paths[0]), "{paths:?}");
    let folders = fs::read_dir(place.path.join("cache/memtrace/simulated-driver")).unwrap().flatten();
    assert_eq!(folders.count(), 1);
}

#[test]
fn the_driver_is_not_built_with_the_programs_flags() {
    let place = Place::new();
    let cargo = Cargo::at(&place, "simulated");
    let mut runner = cargo.runner();
    runner.env("RUSTFLAGS", "-Cpanic=abort").env("CARGO_BUILD_TARGET", "other").env("CARGO_TARGET_DIR", "relative");
    assert_eq!(Said::by(runner.arg("--which")).code(), Some(0));
    let seen = fs::read_to_string(place.path.join("calls")).unwrap();
    let folder = place.path.join("cache/memtrace/target/cusim");
    assert_eq!(seen, format!("flags= target= folder={}\n", folder.display()));
}

#[test]
fn with_nothing_to_be_had_tests_are_skipped_or_fail_as_asked() {
    let place = Place::new();
    let cargo = Cargo::at(&place, "nowhere");
    let said = Said::by(cargo.runner().arg(place.linked()));
    assert!(said.out.contains(" 1 ignored;"), "{said:?}");
    let why = "CUDA_ERROR_NO_DEVICE; the simulated driver could not be built: run ";
    assert!(said.errors.contains(why) && said.errors.contains("scripts/simulated-driver"), "{said:?}");
    Said::by(cargo.runner().env("MEMTRACE_REQUIRE_GPU", "1").arg(place.linked())).assert_refused(&[why]);
}

/// Stands for cargo: copies a driver to where cargo would have built it. `cargo xtask runner` has cargo itself.
struct Cargo<'a> {
    place: &'a Place,
    path: PathBuf,
}

impl<'a> Cargo<'a> {
    /// With the driver of this folder.
    fn at(place: &'a Place, folder: &str) -> Self {
        let path = place.path.join("cargo");
        let (driver, calls) = (place.path.join(folder).join("libcuda.so.1"), place.path.join("calls"));
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
        Self { place, path }
    }

    fn runner(&self) -> Command {
        let mut runner = self.place.bare_runner(Path::new(RUNNER));
        for name in ["RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"] {
            runner.env_remove(name);
        }
        runner.env("CARGO", &self.path).env("XDG_CACHE_HOME", self.place.path.join("cache"));
        runner
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.place.path.join("calls")).unwrap().lines().count()
    }
}
