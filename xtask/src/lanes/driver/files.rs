//! NVIDIA's files: driver libraries from Debian's packages, CUDA libraries from PyPI's wheels. They are kept only in
//! the cache.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use xshell::{Cmd, cmd};

use crate::cached::{cached, debian};
use crate::lane::{Run, output};

/// A version of the driver library.
pub(super) struct Driver {
    pub(super) version: &'static str,
    package: &'static str,
    sha256: &'static str,
    /// Debian's name for the kind of machine, as in its folders.
    machine: &'static str,
}

pub(super) const DRIVERS: [Driver; 3] = [
    Driver {
        version: "535.261.03",
        package: "libcuda1_535.261.03-1_amd64.deb",
        sha256: "de1e9ca34164a5983b3f752e6699cf1ad924790f1a843b7d582bab6f99206e1e",
        machine: "x86_64-linux-gnu",
    },
    Driver {
        version: "550.163.01",
        package: "libcuda1_550.163.01-2_amd64.deb",
        sha256: "8feff97aac61d6f27ded96a3c25b9e68025a680476e6072ff7eaf10623509135",
        machine: "x86_64-linux-gnu",
    },
    Driver {
        version: "555.58.02",
        package: "libcuda1_555.58.02-4_amd64.deb",
        sha256: "3f2c5cb91c88b5f6ce05c81de553ce3ff72e0772dcd07c7e0a85b8cd408b4457",
        machine: "x86_64-linux-gnu",
    },
];

/// A driver for aarch64.
pub(super) const AARCH64: Driver = Driver {
    version: "550.163.01 for aarch64",
    package: "libcuda1_550.163.01-2_arm64.deb",
    sha256: "2517c7fae4a43eab9606aa4eb4ee219a2178c6547c0d02e862dfa0dcfcf8e7d0",
    machine: "aarch64-linux-gnu",
};

/// Folders of CUDA's libraries, and their major versions. `xtask/driver` has the lists of wheels.
pub(super) const CUDAS: [(&str, &str); 2] = [("cuda12", "12"), ("cuda13", "13")];

const MIRROR: &str = "non-free/n/nvidia-graphics-drivers";

impl Driver {
    /// The folder with `libcuda.so.1`; `None` if it is neither in the cache nor available.
    pub(super) fn folder(&self, run: &Run) -> Result<Option<PathBuf>> {
        let place = Path::new("driver").join(self.version);
        let folder = cached(run, &place, |new| debian(run, &format!("{MIRROR}/{}", self.package), self.sha256, new))?;
        Ok(folder.map(|folder| folder.join(format!("usr/lib/{}/nvidia/current", self.machine))))
    }
}

/// PyTorch with the libraries that it loads, by the name of its list of wheels: a folder for `PYTHONPATH` (5 GB, for Python
/// 3.11). `None` as for [`cuda`].
pub(crate) fn torch(run: &Run, name: &str) -> Result<Option<PathBuf>> {
    let target = |new: &Path| cmd!(run.shell, "python3 -m pip install --target {new}");
    cached(run, &Path::new("driver").join(name), |new| wheels(run, name, target(new)))
}

/// Gets the wheels of a list; false if they are not available.
fn wheels(run: &Run, name: &str, pip: Cmd<'_>) -> Result<bool> {
    let list = run.root.join(format!("xtask/driver/{name}.txt"));
    let options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "-r"];
    let fetched = output(pip.args(options).arg(list))?;
    let said = String::from_utf8_lossy(&fetched.stderr);
    ensure!(!said.contains("DO NOT MATCH"), "the wheels are others than they were: {said}");
    Ok(fetched.status.success())
}

/// A folder with the files of a list of wheels; `None` if it is neither in the cache nor available.
pub(super) fn cuda(run: &Run, name: &str) -> Result<Option<PathBuf>> {
    cached(run, &Path::new("driver").join(name), |new| {
        let shell = &run.shell;
        let pip = cmd!(
            shell,
            "python3 -m pip download --python-version 3.11 --platform manylinux_2_27_x86_64 --platform manylinux2014_x86_64 --platform manylinux1_x86_64 --dest {new}"
        );
        if !wheels(run, name, pip)? {
            return Ok(false);
        }
        for wheel in shell.read_dir(new)? {
            // A wheel may lack some of these. `unzip` then returns 11, because a pattern matched nothing.
            let unpacked =
                output(cmd!(shell, "unzip -q -o -j {wheel} */lib/*.so.* */include/cuda.h */bin/cuobjdump -d {new}"))?;
            ensure!(matches!(unpacked.status.code(), Some(0 | 11)), "{} cannot be unpacked", wheel.display());
            shell.remove_path(wheel)?;
        }
        Ok(true)
    })
}
