//! What programs need that do not contain memtrace, or have no GPU: the parts of the kit, built once into the cache.
//!
//! Their sources are the packages that were published with this one. Cargo fetches them like any dependency; a copy of
//! them, laid out like memtrace's repository, is built in the cache. A `cargo-memtrace` that was built in the repository
//! uses the repository.

mod sources;

use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use memtrace_runner::kit::{
    GPU_CHECK, Kit, KitPart, PRELOAD_LIBRARY, SIMULATED_DRIVER, SimulatedGpu, TEST_RUNNER, Variables,
};

use crate::failure::CommandFailure;
use crate::progress::Progress;
use crate::{input, output};

/// The file of a part, built on first use.
pub(crate) fn file(part: &KitPart) -> Result<PathBuf, CommandFailure> {
    kit()?.file(part).map_err(CommandFailure::Use)
}

/// The preload library: built when it is needed, or from before that, while cargo builds the program.
#[derive(Default)]
pub(crate) struct PreloadLibrary(Option<JoinHandle<Result<PathBuf, CommandFailure>>>);

impl PreloadLibrary {
    /// If the program's build fails, cargo goes on with the library, and the next command finds it.
    pub(crate) fn begin() -> Self {
        let build = || {
            Kit::of(&sources::root()?).and_then(|kit| kit.quiet().file(&PRELOAD_LIBRARY)).map_err(CommandFailure::Use)
        };
        Self(Some(thread::spawn(build)))
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

/// What is built on first use, and whether it was.
pub(crate) fn parts() -> impl Iterator<Item = (&'static str, bool)> {
    let kit = sources::root_at_hand().and_then(|root| Kit::of(&root).ok());
    let is_built = move |part| kit.as_ref().is_some_and(|kit| kit.has(part));
    [&PRELOAD_LIBRARY, &TEST_RUNNER, &GPU_CHECK, &SIMULATED_DRIVER]
        .into_iter()
        .map(move |part| (part.name, is_built(part)))
}

/// The variables with which programs are built for a simulated GPU and find it. One size a GPU.
pub(crate) fn simulated_gpu(memory: &str) -> Result<Variables, CommandFailure> {
    let sizes: Vec<&str> = memory.split(',').collect();
    for size in &sizes {
        memtrace_core::parse_bytes(size)?;
    }
    if sizes.iter().any(|size| size != &sizes[0]) {
        return Err(CommandFailure::usage(format!(
            "{memory}: all simulated GPUs have one size; give it once for each"
        )));
    }
    let gpu = SimulatedGpu::of(&kit()?, &input::target_dir().join("simulated-gpu"));
    let mut variables = gpu.map_err(CommandFailure::Use)?.variables();
    variables.push(("MEMTRACE_CUSIM_MEMORY", sizes[0].into()));
    variables.push(("MEMTRACE_CUSIM_DEVICES", sizes.len().to_string().into()));
    Ok(variables)
}

fn kit() -> Result<Kit, CommandFailure> {
    Kit::of(&sources::root()?).map_err(CommandFailure::Use)
}
