//! What the variables ask for.

use std::env;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gpu {
    /// A real one, else a simulated one.
    Any,
    Real,
    Simulated,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) gpu: Gpu,
    /// Whether it is an error that there is none.
    pub(crate) required: bool,
}

impl Wish {
    pub(crate) fn from_env() -> Result<Self, String> {
        Ok(Self { gpu: gpu(&text("MEMTRACE_GPU"))?, required: required(&text("MEMTRACE_REQUIRE_GPU"))? })
    }
}

/// Empty if it is not set.
fn text(name: &str) -> String {
    env::var_os(name).unwrap_or_default().to_string_lossy().into_owned()
}

fn gpu(text: &str) -> Result<Gpu, String> {
    match text {
        "" | "auto" => Ok(Gpu::Any),
        "real" => Ok(Gpu::Real),
        "simulated" => Ok(Gpu::Simulated),
        _ => Err(format!("MEMTRACE_GPU is \"{text}\"; it takes auto (the default), real or simulated")),
    }
}

fn required(text: &str) -> Result<bool, String> {
    match text {
        "" | "0" => Ok(false),
        "1" => Ok(true),
        _ => Err(format!("MEMTRACE_REQUIRE_GPU is \"{text}\"; it takes 1, or 0 (the default)")),
    }
}
