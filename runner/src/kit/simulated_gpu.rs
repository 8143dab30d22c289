//! What programs for a simulated GPU need. To run, they need the simulated driver with the libraries above it. To be
//! built, they need a stand-in for a CUDA toolkit, which contains nothing of NVIDIA's.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::part::{Kit, KitPart, entries};

/// Environment variables for a program.
pub type Variables = Vec<(&'static str, OsString)>;

/// Arguments of `cargo build`. The libraries are stripped as NVIDIA's are, so that no line of a stand-in appears in a
/// report.
const CARGO: &[&str] = &[
    "--package=memtrace-cusim",
    "--package=memtrace-cusim-libraries",
    "--lib",
    "--examples",
    "--config=profile.release.strip='symbols'",
    "--config=profile.release.debug=false",
];

/// The simulated libcuda and the libraries above it.
pub const SIMULATED_DRIVER: KitPart = KitPart {
    name: "simulated GPU",
    sources: &["Cargo.toml", "Cargo.lock", "cusim"],
    cargo: CARGO,
    files: &[
        ("libmemtrace_cusim.so", "libcuda.so.1"),
        ("examples/libmemtrace_cusim_cublas.so", "libcublas.so.13"),
        ("examples/libmemtrace_cusim_cublaslt.so", "libcublasLt.so.13"),
        ("examples/libmemtrace_cusim_cudart.so", "libcudart.so.13"),
        ("examples/libmemtrace_cusim_curand.so", "libcurand.so.10"),
        ("examples/libmemtrace_cusim_nccl.so", "libnccl.so.2"),
        ("examples/libmemtrace_cusim_nvml.so", "libnvidia-ml.so.1"),
        ("examples/libmemtrace_cusim_nvrtc.so", "libnvrtc.so.13"),
    ],
    finish: |_, folder| {
        SIMULATED_DRIVER.files.iter().try_for_each(|(_, name)| symlink(name, folder.join(unversioned(name))))
    },
};

/// A toolkit that the build scripts of cudarc and candle accept as CUDA 13.0. Only some of the simulated GPU's sources
/// are listed here, because cargo builds candle again when the toolkit's folder changes.
const TOOLKIT: KitPart = KitPart {
    name: "stand-in toolkit",
    sources: &[
        "cusim/symbols",
        "cusim/libraries/symbols",
        "cusim/libraries/signatures.rs",
        "cusim/libraries/examples/nvcc.rs",
    ],
    cargo: CARGO,
    files: &[("examples/memtrace_cusim_nvcc", "bin/nvcc")],
    finish: |kit, folder| {
        fs::create_dir_all(folder.join("lib/stubs"))?;
        symlink("lib", folder.join("lib64"))?;
        // bindgen_cuda (candle up to 0.9) recognizes a toolkit by this file.
        fs::create_dir(folder.join("include"))?;
        fs::write(folder.join("include/cuda.h"), "")?;
        SIMULATED_DRIVER.files.iter().try_for_each(|(_, name)| stub(kit, name, folder))
    },
};

/// The libraries of a simulated GPU, without their versions.
pub(crate) fn simulated_libraries() -> impl Iterator<Item = &'static str> {
    SIMULATED_DRIVER.files.iter().map(|(_, name)| unversioned(name))
}

/// The name without the version: `libcuda.so` for `libcuda.so.1`.
fn unversioned(library: &str) -> &str {
    library.rsplit_once('.').map_or(library, |(name, _)| name)
}

/// Lets the toolkit make a library that exports the same names as the simulated one, only to link against.
fn stub(kit: &Kit, library: &str, toolkit: &Path) -> io::Result<()> {
    let file = unversioned(library);
    let name = file.trim_start_matches("lib").trim_end_matches(".so").to_lowercase();
    let list = if name == "cuda" { "symbols/driver.txt".to_owned() } else { format!("libraries/symbols/{name}.txt") };
    let mut command = Command::new(toolkit.join("bin/nvcc"));
    command.args(["--stub", library, "-o"]).arg(toolkit.join("lib/stubs").join(file));
    command.envs(kit.other.map(|(_, compiler)| ("CC", compiler)));
    match command.stdin(File::open(kit.root.join("cusim").join(list))?).status()?.success() {
        true => Ok(()),
        false => Err(io::Error::other("the C compiler failed; its messages are above")),
    }
}

/// A simulated GPU that has been built.
#[derive(Clone, Debug)]
pub struct SimulatedGpu {
    /// With these variables cargo builds candle's feature `cuda`, into a target folder of its own.
    pub to_build: Variables,
    /// With these variables programs find the simulated GPU.
    pub to_run: Variables,
}

impl SimulatedGpu {
    /// Builds the parts that are not built yet.
    ///
    /// The target folder is only for programs for a simulated GPU. A program with empty kernels must never be mistaken
    /// for a program for a real GPU.
    ///
    /// # Errors
    /// A part cannot be built, or a folder's name cannot be in a list of folders.
    pub fn of(kit: &Kit, target: &Path) -> Result<Self, String> {
        let named = |error| format!("no folder to build in: {}: {error}", target.display());
        let target = std::path::absolute(target).map_err(named)?;
        let (driver, toolkit) = (kit.folder(&SIMULATED_DRIVER)?, kit.folder(&TOOLKIT)?);
        forget_kernels(&target, &toolkit).map_err(named)?;
        let cap = env::var_os("CUDA_COMPUTE_CAP").filter(|cap| !cap.is_empty()).unwrap_or_else(|| "90".into());
        let to_build = vec![
            ("CUDA_HOME", toolkit.clone().into()),
            ("CUDA_PATH", toolkit.clone().into()),
            ("NVCC", toolkit.join("bin/nvcc").into()),
            ("CUDA_COMPUTE_CAP", cap),
            ("PATH", in_front("PATH", &toolkit.join("bin"))?),
            ("CARGO_TARGET_DIR", target.into()),
        ];
        Ok(Self { to_build, to_run: vec![("LD_LIBRARY_PATH", in_front("LD_LIBRARY_PATH", &driver)?)] })
    }

    /// The variables with which a program that was built elsewhere finds the simulated GPU in this folder.
    ///
    /// The stand-ins for NVIDIA's libraries are preloaded, because such a program may look for NVIDIA's in a folder of
    /// its own. PyTorch does: the libraries of its wheel are in the wheels beside it.
    ///
    /// # Errors
    /// The folder's name cannot be in a list of folders or of libraries.
    pub fn to_run_any(folder: &Path) -> Result<Variables, String> {
        if folder.as_os_str().as_encoded_bytes().contains(&b' ') {
            return Err(format!(
                "{} has a space, which separates libraries in LD_PRELOAD; rename it",
                folder.display()
            ));
        }
        let names = SIMULATED_DRIVER.files.iter().map(|(_, name)| folder.join(name)).skip(1);
        let stand_ins = names.map(PathBuf::into_os_string).collect::<Vec<_>>().join(OsStr::new(":"));
        let found = in_front("LD_LIBRARY_PATH", folder)?;
        Ok(vec![("LD_LIBRARY_PATH", found), ("LD_PRELOAD", before("LD_PRELOAD", stand_ins))])
    }

    /// All variables.
    pub fn variables(self) -> Variables {
        [self.to_build, self.to_run].concat()
    }
}

/// Removes kernels that another toolkit compiled, because the build scripts of candle's crates do not run again for a
/// new toolkit.
fn forget_kernels(target: &Path, toolkit: &Path) -> io::Result<()> {
    let (stamp, toolkit) = (target.join(".toolkit"), toolkit.as_os_str().as_encoded_bytes());
    if fs::read(&stamp).is_ok_and(|last| last == toolkit) {
        return Ok(());
    }
    let folders = ["build", ".fingerprint"];
    // With `--target`, cargo puts the profiles' folders below a folder with the target's name.
    let profiles = entries(target).flat_map(|folder| entries(&folder).chain([folder]));
    let built = profiles.flat_map(|profile| folders.map(|folder| profile.join(folder)));
    let kernels = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        ["candle-kernels", "candle-flash-attn"].iter().any(|package| name.starts_with(package))
    };
    built.flat_map(|folder| entries(&folder)).filter(kernels).try_for_each(fs::remove_dir_all)?;
    fs::create_dir_all(target)?;
    fs::write(stamp, toolkit)
}

/// A variable's list of folders with this folder in front.
///
/// # Errors
/// The folder's name has a character that separates folders.
pub fn in_front(variable: &str, folder: &Path) -> Result<OsString, String> {
    let path = folder.as_os_str().to_owned();
    if path.as_encoded_bytes().iter().any(|byte| matches!(byte, b':' | b';')) {
        return Err(format!("{} has a ':' or ';', which separates folders; rename it", folder.display()));
    }
    Ok(before(variable, path))
}

/// This text, and behind it the list that the variable has now.
fn before(variable: &str, mut text: OsString) -> OsString {
    if let Some(rest) = env::var_os(variable).filter(|rest| !rest.is_empty()) {
        text.push(":");
        text.push(rest);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_was_built_elsewhere_gets_all_libraries_but_the_driver_preloaded() {
        let variables = SimulatedGpu::to_run_any(Path::new("/gpu")).unwrap();
        let [("LD_LIBRARY_PATH", found), ("LD_PRELOAD", preloaded)] = &variables[..] else { panic!("{variables:?}") };
        assert!(found.to_string_lossy().starts_with("/gpu"), "{found:?}");
        let preloaded = preloaded.to_string_lossy();
        let ours: Vec<&str> = preloaded.split(':').filter(|path| path.starts_with("/gpu/lib")).collect();
        assert_eq!(ours.len(), SIMULATED_DRIVER.files.len() - 1, "{preloaded}");
        assert!(ours.contains(&"/gpu/libcudart.so.13") && !preloaded.contains("libcuda.so"), "{preloaded}");
        assert!(SimulatedGpu::to_run_any(Path::new("/my gpu")).unwrap_err().contains("space"));
    }
}
