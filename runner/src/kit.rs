//! The kit: parts that are built once and kept in the cache. They are the simulated GPU, the toolkit for building
//! programs for it, the preload library, the test runner and the check of a real GPU.

mod part;
mod simulated_gpu;

pub use self::part::{Kit, KitPart, cache, cargo, host};
pub(crate) use self::simulated_gpu::simulated_libraries;
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
    use std::fs::{self, File};
    use std::path::Path;

    use super::*;

    const PARTS: [&KitPart; 4] = [&SIMULATED_DRIVER, &PRELOAD_LIBRARY, &TEST_RUNNER, &GPU_CHECK];

    fn write(root: &Path, file: &str, text: &str) {
        fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        fs::write(root.join(file), text).unwrap();
    }

    #[test]
    fn a_part_is_another_one_when_its_own_sources_change() {
        let root = tempfile::tempdir().unwrap();
        let kit = Kit::of(root.path()).unwrap();
        let mut last = PARTS.map(|part| kit.place(part));
        for (source, changed) in [
            ("cusim/src/lib.rs", [true, false, false, false]),
            ("cusim/libraries/lib.rs", [true, false, false, false]),
            ("preload/src/lib.rs", [false, true, false, false]),
            ("runner/src/lib.rs", [false, false, true, false]),
            ("tests/gpu/src/lib.rs", [false, false, false, true]),
            ("core/src/lib.rs", [false, true, false, true]),
            ("src/lib.rs", [false, true, false, true]),
            ("src/target/lib.rs", [false; 4]),
            ("Cargo.lock", [true; 4]),
        ] {
            write(root.path(), source, "new");
            let now = PARTS.map(|part| kit.place(part));
            assert_eq!([0, 1, 2, 3].map(|part| now[part] != last[part]), changed, "{source}");
            last = now;
        }
    }

    #[test]
    fn a_part_is_told_by_the_content_of_its_sources_wherever_they_are_and_whenever_they_were_written() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        folders.iter().for_each(|folder| write(folder.path(), "src/lib.rs", "1"));
        let place = |folder: &Path| Kit::of(folder).unwrap().place(&PRELOAD_LIBRARY);
        let [a, b] = folders.each_ref().map(|folder| place(folder.path()));
        assert_eq!(a, b);
        let path = folders[0].path();
        let modified = path.join("src/lib.rs").metadata().unwrap().modified().unwrap();
        write(path, "src/lib.rs", "2");
        File::options().append(true).open(path.join("src/lib.rs")).unwrap().set_modified(modified).unwrap();
        assert_ne!(place(path), a, "of the same time and length");
    }
}
