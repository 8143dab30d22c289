//! Sources of the simulated driver when no variable names one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

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
fn the_driver_is_built_once_and_again_when_it_is_gone() {
    let sandbox = Sandbox::new();
    let cargo = Cargo::at(&sandbox, "simulated");
    let which = || {
        let said = CommandOutput::of(cargo.runner().arg("--which"));
        assert_eq!(said.code(), Some(0), "{said:?}");
        PathBuf::from(said.out.lines().last().unwrap().strip_prefix("its driver: ").unwrap())
    };
    let folder = which();
    assert_eq!(folder.parent().unwrap(), sandbox.path.join("cache/memtrace/kit"));
    let files = ["libcuda.so.1", "libcuda.so", "libcublas.so.13", "libcurand.so.10", "libnvrtc.so.13"];
    assert!(files.iter().all(|file| folder.join(file).exists()), "{}", folder.display());
    assert_eq!((which(), cargo.calls()), (folder.clone(), 1));
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!((which(), cargo.calls(), folder.exists()), (folder.clone(), 2, true));
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
    assert_eq!(cargo.calls(), 1);
}

#[test]
fn the_driver_is_built_without_the_programs_flags() {
    let sandbox = Sandbox::new();
    let cargo = Cargo::at(&sandbox, "simulated");
    let mut runner = cargo.runner();
    runner.env("RUSTFLAGS", "-Cpanic=abort").env("CARGO_BUILD_TARGET", "other").env("CARGO_TARGET_DIR", "relative");
    assert_eq!(CommandOutput::of(runner.arg("--which")).code(), Some(0));
    let seen = fs::read_to_string(sandbox.path.join("calls")).unwrap();
    let folder = sandbox.path.join("cache/memtrace/kit-target");
    assert!(seen.starts_with("flags= target=") && !seen.contains("target=other"), "{seen}");
    assert!(seen.contains(&format!(" folder={}/", folder.display())), "{seen}");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    assert!(seen.ends_with(&format!(" in={}\n", root.display())), "{seen}");
}

#[test]
fn a_command_has_the_simulated_gpu_and_a_toolkit_to_build_for_it() {
    let sandbox = Sandbox::new();
    let cargo = Cargo::at(&sandbox, "simulated");
    let target = sandbox.path.join("target");
    let kernels = [
        "debug/build/candle-kernels-1",
        "debug/.fingerprint/candle-flash-attn-1",
        "aarch64-unknown-linux-gnu/debug/build/candle-kernels-1",
        "debug/build/candle-core-1",
    ];
    let kernels = kernels.map(|folder| target.join("simulated").join(folder));
    kernels.iter().for_each(|folder| fs::create_dir_all(folder).unwrap());
    let shown = "echo used=$CARGO_TARGET_DIR driver=${LD_LIBRARY_PATH%%:*} $CUDA_COMPUTE_CAP; command -v nvcc; \
                 ls \"$CUDA_HOME/include\" \"$CUDA_PATH/lib64/stubs\"; exit 7";
    let run = || {
        let mut runner = cargo.runner();
        CommandOutput::of(runner.env("CARGO_TARGET_DIR", &target).args(["--simulate", "sh", "-c", shown]))
    };
    let said = run();
    assert_eq!(said.code(), Some(7), "{said:?}");
    let kit = sandbox.path.join("cache/memtrace/kit");
    let used = format!("used={}/simulated driver={}/simulated-GPU-", target.display(), kit.display());
    assert!(said.out.starts_with(&used) && said.out.contains(" 90\n"), "{said:?}");
    assert!(said.out.contains(&format!("\n{}/stand-in-toolkit-", kit.display())), "{said:?}");
    for file in ["/bin/nvcc\n", "cuda.h\n", "libcuda.so\n", "libcublasLt.so\n", "libcurand.so\n"] {
        assert!(said.out.contains(file), "{file} in {said:?}");
    }
    let left = kernels.each_ref().map(|folder| folder.exists());
    assert_eq!(left, [false, false, false, true], "kernels of another toolkit are built again");
    fs::create_dir_all(&kernels[0]).unwrap();
    assert_eq!((run().out, cargo.calls(), kernels[0].exists()), (said.out, 2, true));
}

#[test]
fn without_any_driver_tests_are_skipped_or_fail_as_required() {
    let sandbox = Sandbox::new();
    let cargo = Cargo::at(&sandbox, "nowhere");
    let said = CommandOutput::of(cargo.runner().arg(sandbox.linked()));
    assert!(said.out.contains(" 1 ignored;"), "{said:?}");
    let why = "CUDA_ERROR_NO_DEVICE; the simulated GPU could not be built in ";
    assert!(said.errors.contains(why) && said.errors.contains(": cargo failed; its messages are above"), "{said:?}");
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
            "#!/bin/sh -e\nto=$CARGO_TARGET_DIR/$CARGO_BUILD_TARGET/release\n\
             echo \"flags=$RUSTFLAGS target=$CARGO_BUILD_TARGET folder=$CARGO_TARGET_DIR in=$PWD\" >>'{calls}'\n\
             mkdir -p \"$to/examples\"\n\
             for name in '' _cublas _cublaslt _curand _cudart _nccl _nvml _nvrtc; do\n\
             [ -z \"$name\" ] && file=$to/libmemtrace_cusim.so || file=$to/examples/libmemtrace_cusim$name.so\n\
             cp '{driver}' \"$file.$$\"; mv \"$file.$$\" \"$file\"\ndone\n\
             printf '#!/bin/sh\\n: >\"$4\"\\n' >\"$to/examples/memtrace_cusim_nvcc\"; chmod +x \"$to/examples/memtrace_cusim_nvcc\"\n",
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
