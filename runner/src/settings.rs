//! Environment variables that select the GPU.

use std::env;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GpuPreference {
    /// A real GPU if there is one, else a simulated one.
    Any,
    Real,
    Simulated,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RunnerSettings {
    pub(crate) gpu: GpuPreference,
    /// Whether it is an error if there is no GPU.
    pub(crate) required: bool,
}

impl RunnerSettings {
    pub(crate) fn from_env() -> Result<Self, String> {
        let gpu = match variable("MEMTRACE_GPU").as_str() {
            "" | "auto" => GpuPreference::Any,
            "real" => GpuPreference::Real,
            "simulated" => GpuPreference::Simulated,
            text => return Err(format!("MEMTRACE_GPU is \"{text}\"; set it to auto (the default), real or simulated")),
        };
        let required = match variable("MEMTRACE_REQUIRE_GPU").as_str() {
            "" | "0" => false,
            "1" => true,
            text => return Err(format!("MEMTRACE_REQUIRE_GPU is \"{text}\"; set it to 1, or 0 (the default)")),
        };
        Ok(Self { gpu, required })
    }
}

/// The value; empty if the variable is not set.
fn variable(name: &str) -> String {
    env::var_os(name).unwrap_or_default().to_string_lossy().into_owned()
}
