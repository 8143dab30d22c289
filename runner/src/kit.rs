//! What is built once, and kept in the cache: the simulated GPU, the toolkit that programs for it are built with, the preload
//! library, the test runner and the check of a real GPU.

mod part;
mod simulated_gpu;

pub use self::part::{Kit, KitPart, cache, cargo, host};
pub use self::simulated_gpu::{SIMULATED_DRIVER, SimulatedGpu, Variables, in_front};

/// The library for `LD_PRELOAD`.
pub const PRELOAD_LIBRARY: KitPart = KitPart {
    name: "preload library",
    sources: &["Cargo.toml", "Cargo.lock", "core", "src", "preload"],
    cargo: &["--package=memtrace-preload"],
    files: &[("libmemtrace_preload.so", "libmemtrace_preload.so")],
    finish: |_, _| Ok(()),
};

/// The runner that chooses a GPU for each test program.
pub const TEST_RUNNER: KitPart = KitPart {
    name: "test runner",
    sources: &["Cargo.toml", "Cargo.lock", "runner"],
    cargo: &["--package=memtrace-runner"],
    files: &[("memtrace-runner", "memtrace-runner")],
    finish: |_, _| Ok(()),
};

/// The check of a real GPU.
pub const GPU_CHECK: KitPart = KitPart {
    name: "check of the GPU",
    sources: &["Cargo.toml", "Cargo.lock", "core", "src", "tests/gpu"],
    cargo: &["--package=memtrace-gpu-check"],
    files: &[("gpu-check", "gpu-check")],
    finish: |_, _| Ok(()),
};

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_part_is_another_one_when_its_own_sources_change() {
        let root = tempfile::tempdir().unwrap();
        let kit = Kit::of(root.path()).unwrap();
        let parts = [&SIMULATED_DRIVER, &PRELOAD_LIBRARY, &TEST_RUNNER, &GPU_CHECK];
        let mut last = parts.map(|part| kit.place(part));
        for (source, changed) in [
            ("cusim/src/lib.rs", [true, false, false, false]),
            ("cusim/libraries/lib.rs", [true, false, false, false]),
            ("preload/src/lib.rs", [false, true, false, false]),
            ("runner/src/lib.rs", [false, false, true, false]),
            ("tests/gpu/src/lib.rs", [false, false, false, true]),
            ("core/src/lib.rs", [false, true, false, true]),
            ("src/lib.rs", [false, true, false, true]),
            ("Cargo.lock", [true; 4]),
        ] {
            let file = root.path().join(source);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "new").unwrap();
            let now = parts.map(|part| kit.place(part));
            assert_eq!([0, 1, 2, 3].map(|part| now[part] != last[part]), changed, "{source}");
            last = now;
        }
    }
}
