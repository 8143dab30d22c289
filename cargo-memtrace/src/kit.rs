//! The parts of the kit, built once into the cache. Programs need them if they do not contain memtrace, or if there is
//! no GPU.
//!
//! The sources of the parts are packages that were published with this one. Cargo fetches them like any dependency. A
//! copy of them, laid out like memtrace's repository, is built in the cache. A `cargo-memtrace` that was built in the
//! repository uses the repository. A part that was installed with this program is used as it is.

mod installed;
mod sources;

use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use memtrace_runner::kit::{
    GPU_CHECK, Kit, KitPart, PRELOAD_LIBRARY, SIMULATED_DRIVER, SimulatedGpu, TEST_RUNNER, Variables,
};

use crate::failure::CommandFailure;
use crate::progress::Progress;
use crate::{input, output};

/// The file of a part, installed or built on first use.
pub(crate) fn file(part: &KitPart) -> Result<PathBuf, CommandFailure> {
    file_of(part, |kit| kit)
}

fn file_of(part: &KitPart, adapted: fn(Kit) -> Kit) -> Result<PathBuf, CommandFailure> {
    Ok(folder(part, adapted)?.join(part.file_name()))
}

fn folder(part: &KitPart, adapted: fn(Kit) -> Kit) -> Result<PathBuf, CommandFailure> {
    match installed::part(part)? {
        Some(folder) => Ok(folder),
        None => adapted(kit()?).folder(part).map_err(CommandFailure::Use),
    }
}

/// The preload library. It is built when it is needed, or earlier in the background, while cargo builds the program.
#[derive(Default)]
pub(crate) struct PreloadLibrary(Option<JoinHandle<Result<PathBuf, CommandFailure>>>);

impl PreloadLibrary {
    /// Begins to build the library. If the program's build fails, cargo continues to build the library, and the next
    /// command finds it.
    pub(crate) fn begin() -> Self {
        Self(Some(thread::spawn(|| file_of(&PRELOAD_LIBRARY, Kit::quiet))))
    }

    pub(crate) fn file(self) -> Result<PathBuf, CommandFailure> {
        let Some(build) = self.0 else { return file(&PRELOAD_LIBRARY) };
        let _progress = (!build.is_finished()).then(|| {
            output::say("the program is built; waiting for the preload library");
            Progress::of("building the preload library")
        });
        build.join().unwrap_or_else(|_| file(&PRELOAD_LIBRARY))
    }
}

/// The parts, with whether each was installed or is built on first use.
pub(crate) fn parts() -> impl Iterator<Item = (&'static str, String)> {
    let kit = sources::root_at_hand().and_then(|root| Kit::of(&root).ok());
    let state = move |part| match installed::part(part) {
        Ok(Some(_)) => "installed".to_owned(),
        Ok(None) if kit.as_ref().is_some_and(|kit| kit.has(part)) => "built".to_owned(),
        Ok(None) => "not built yet; the first use builds it".to_owned(),
        Err(why) => why.to_string(),
    };
    [&PRELOAD_LIBRARY, &TEST_RUNNER, &GPU_CHECK, &SIMULATED_DRIVER]
        .into_iter()
        .map(move |part| (part.name, state(part)))
}

/// The variables with which programs find a simulated GPU. If `is_built`, programs are also built for it. There is one
/// memory size for each GPU.
pub(crate) fn simulated_gpu(memory: &str, is_built: bool) -> Result<Variables, CommandFailure> {
    let sizes: Vec<&str> = memory.split(',').collect();
    for size in &sizes {
        memtrace_core::parse_bytes(size)?;
    }
    if sizes.iter().any(|size| size != &sizes[0]) {
        return Err(CommandFailure::usage(format!(
            "{memory}: all simulated GPUs have one size; give it once for each"
        )));
    }
    let mut variables = if is_built {
        SimulatedGpu::of(&kit()?, &input::target_dir().join("simulated-gpu")).map(SimulatedGpu::variables)
    } else {
        SimulatedGpu::to_run_any(&folder(&SIMULATED_DRIVER, |kit| kit)?)
    }
    .map_err(CommandFailure::Use)?;
    variables.push(("MEMTRACE_CUSIM_MEMORY", sizes[0].into()));
    variables.push(("MEMTRACE_CUSIM_DEVICES", sizes.len().to_string().into()));
    Ok(variables)
}

fn kit() -> Result<Kit, CommandFailure> {
    Kit::of(&sources::root()?).map_err(CommandFailure::Use)
}
