//! Where the simulated driver comes from.

use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::answer::{Answer, Gpus};
use crate::ask;

pub(crate) enum Found {
    Folder(PathBuf, Gpus),
    /// Why there is none, and what to do.
    Nothing(String),
}

/// An error is a folder that was named, or installed, and does not have the driver.
pub(crate) fn find() -> Result<Found, String> {
    if let Some(folder) = named() {
        return checked(absolute(folder)?, "MEMTRACE_SIMULATED_GPU names");
    }
    if let Some(folder) = beside().filter(|folder| folder.is_dir()) {
        return checked(folder, "beside the runner lies");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("scripts").join("simulated-driver");
    match build(&script) {
        Ok(folder) => checked(folder, "scripts/simulated-driver made"),
        Err(why) => Ok(Found::Nothing(why)),
    }
}

/// The folder that the variable names.
pub(crate) fn named() -> Option<PathBuf> {
    env::var_os("MEMTRACE_SIMULATED_GPU").filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

/// The loader would look for a relative folder where each process is.
fn absolute(folder: PathBuf) -> Result<PathBuf, String> {
    std::path::absolute(&folder).map_err(|error| format!("MEMTRACE_SIMULATED_GPU={}: {error}", folder.display()))
}

fn beside() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.with_file_name("simulated-gpu"))
}

fn checked(folder: PathBuf, origin: &str) -> Result<Found, String> {
    let place = folder.display();
    if !folder.join("libcuda.so.1").exists() {
        return Err(format!(
            "{origin} {place}, which has no libcuda.so.1; copy there what scripts/simulated-driver prints"
        ));
    }
    match ask::folder(&folder)? {
        Answer::Simulated(gpus) => Ok(Found::Folder(folder, gpus)),
        Answer::Real(_) => Err(format!("{origin} {place}, whose driver is not memtrace's simulated one")),
        Answer::None(why) => Err(format!("{origin} {place}, whose driver is not memtrace's simulated one ({why})")),
    }
}

/// Has the script of the sources that this runner was built from build the driver, if they are still there.
fn build(script: &Path) -> Result<PathBuf, String> {
    if !script.exists() {
        return Err(
            "no simulated driver is installed: set MEMTRACE_SIMULATED_GPU, see memtrace-runner --help".to_owned()
        );
    }
    let mut command = Command::new(script);
    // Cargo starts each package's tests in a folder of its own: a relative target folder would be many.
    if env::var_os("CARGO_TARGET_DIR").is_some_and(|folder| !Path::new(&folder).is_absolute()) {
        command.env_remove("CARGO_TARGET_DIR");
    }
    if let Some(root) = script.parent().and_then(Path::parent) {
        command.current_dir(root);
    }
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{} cannot be run: {error}", script.display()))?;
    folder_of(output).ok_or_else(|| format!("the simulated driver could not be built: run {}", script.display()))
}

/// The folder that the script printed.
fn folder_of(output: Output) -> Option<PathBuf> {
    let folder = OsString::from_vec(output.stdout.trim_ascii_end().to_vec());
    (output.status.success() && !folder.is_empty()).then(|| folder.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_sources_nothing_is_built_and_the_next_step_is_named() {
        let why = build(Path::new("/nowhere/scripts/simulated-driver")).unwrap_err();
        assert!(why.contains("MEMTRACE_SIMULATED_GPU"), "{why}");
    }
}
