//! Finds the simulated CUDA driver: in the folder that a variable names, beside this executable, or built from sources.

use std::env;
use std::path::{Path, PathBuf};

use crate::driver::{DetectedGpus, DriverAnswer};
use crate::kit::{Kit, SIMULATED_DRIVER};
use crate::query;

pub(crate) enum SimulatedDriver {
    Folder(PathBuf, DetectedGpus),
    /// The reason why there is no simulated driver, and what the user can do.
    Missing(String),
}

/// It is an error if the folder that the variable names, or the one beside this executable, has no simulated driver.
pub(crate) fn find() -> Result<SimulatedDriver, String> {
    if let Some(folder) = named_folder() {
        // The loader would resolve a relative folder in each process's current folder.
        let folder = std::path::absolute(&folder)
            .map_err(|error| format!("MEMTRACE_SIMULATED_GPU={}: {error}", folder.display()))?;
        return checked(folder, "MEMTRACE_SIMULATED_GPU names");
    }
    let beside = env::current_exe().map(|program| program.with_file_name("simulated-gpu"));
    if let Some(folder) = beside.ok().filter(|folder| folder.is_dir()) {
        return checked(folder, "beside the runner lies");
    }
    let missing = "no simulated driver is installed: set MEMTRACE_SIMULATED_GPU, see memtrace-runner --help";
    match sources().ok_or_else(|| missing.to_owned()).and_then(|root| Kit::of(&root)?.folder(&SIMULATED_DRIVER)) {
        Ok(folder) => checked(folder, "the build made"),
        Err(why) => Ok(SimulatedDriver::Missing(why)),
    }
}

/// The folder in `MEMTRACE_SIMULATED_GPU`.
pub(crate) fn named_folder() -> Option<PathBuf> {
    env::var_os("MEMTRACE_SIMULATED_GPU").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

fn checked(folder: PathBuf, origin: &str) -> Result<SimulatedDriver, String> {
    let shown = folder.display();
    if !folder.join("libcuda.so.1").exists() {
        return Err(format!(
            "{origin} {shown}, which has no libcuda.so.1; \
             without it, `MEMTRACE_GPU=simulated memtrace-runner --which` builds the driver and names its folder"
        ));
    }
    let why = match query::driver_in(&folder)? {
        DriverAnswer::Simulated(gpus) => return Ok(SimulatedDriver::Folder(folder, gpus)),
        DriverAnswer::Real(_) => String::new(),
        DriverAnswer::None(why) => format!(" ({why})"),
    };
    Err(format!("{origin} {shown}, whose driver is not memtrace's simulated one{why}"))
}

/// The sources of this runner, if they still exist.
pub(crate) fn sources() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?;
    root.join("cusim/Cargo.toml").exists().then(|| root.to_owned())
}
