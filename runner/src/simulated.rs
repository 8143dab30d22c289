//! Finds the simulated CUDA driver: in the folder that a variable names, beside this executable, or built from sources.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::driver::{DetectedGpus, DriverAnswer};
use crate::query;

pub(crate) enum SimulatedDriver {
    Folder(PathBuf, DetectedGpus),
    /// Why there is none, and the next step.
    Missing(String),
}

/// An error is a named or installed folder without the driver.
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
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("scripts").join("simulated-driver");
    match build(&script) {
        Ok(folder) => checked(folder, "scripts/simulated-driver made"),
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
            "{origin} {shown}, which has no libcuda.so.1; copy the folder that scripts/simulated-driver prints there"
        ));
    }
    let why = match query::driver_in(&folder)? {
        DriverAnswer::Simulated(gpus) => return Ok(SimulatedDriver::Folder(folder, gpus)),
        DriverAnswer::Real(_) => String::new(),
        DriverAnswer::None(why) => format!(" ({why})"),
    };
    Err(format!("{origin} {shown}, whose driver is not memtrace's simulated one{why}"))
}

/// Builds the driver with the script in the sources of this runner, if they still exist.
fn build(script: &Path) -> Result<PathBuf, String> {
    if !script.exists() {
        return Err(
            "no simulated driver is installed: set MEMTRACE_SIMULATED_GPU, see memtrace-runner --help".to_owned()
        );
    }
    let mut command = Command::new(script);
    // Cargo runs each package's tests in another folder, so a relative target folder would be a different one each time.
    if env::var_os("CARGO_TARGET_DIR").is_some_and(|folder| !Path::new(&folder).is_absolute()) {
        command.env_remove("CARGO_TARGET_DIR");
    }
    if let Some(root) = script.parent().and_then(Path::parent) {
        command.current_dir(root);
    }
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {}: {error}", script.display()))?;
    let folder = OsString::from_vec(output.stdout.trim_ascii_end().to_vec());
    if !output.status.success() || folder.is_empty() {
        return Err(format!("the simulated driver could not be built: run {}", script.display()));
    }
    Ok(folder.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_sources_the_error_names_the_next_step() {
        let why = build(Path::new("/nowhere/scripts/simulated-driver")).unwrap_err();
        assert!(why.contains("MEMTRACE_SIMULATED_GPU"), "{why}");
    }
}
