//! Chooses a real GPU, a simulated one, or none.

use std::fmt;
use std::path::PathBuf;

use crate::driver::{DetectedGpus, DriverAnswer};
use crate::query;
use crate::settings::GpuPreference;
use crate::simulated::{self, SimulatedDriver};

#[derive(Debug)]
pub(crate) enum GpuChoice {
    Real(DetectedGpus),
    Simulated {
        /// The driver's folder; `None` if the loader finds the driver by itself.
        folder: Option<PathBuf>,
        gpus: DetectedGpus,
        why: String,
    },
    /// No GPU, and the reason.
    None(String),
}

/// Chooses a GPU for a program that is linked against these CUDA libraries.
pub(crate) fn choose(preference: GpuPreference, needs: &[String]) -> Result<GpuChoice, String> {
    use GpuPreference::{Any, Real, Simulated};
    match (preference, query::installed_driver(preference != Simulated)?) {
        (Any | Real, DriverAnswer::Real(gpus)) => Ok(GpuChoice::Real(gpus)),
        (Real, DriverAnswer::None(why)) => Ok(GpuChoice::None(why)),
        (Real, DriverAnswer::Simulated(_)) => Ok(GpuChoice::None(
            "the driver on LD_LIBRARY_PATH is the simulated one; take its folder out of the variable".to_owned(),
        )),
        (Any, DriverAnswer::None(why)) => simulate(why, needs),
        (Any, DriverAnswer::Simulated(gpus)) => use_installed("it is on LD_LIBRARY_PATH", gpus, needs),
        (Simulated, DriverAnswer::Simulated(gpus)) => use_installed("MEMTRACE_GPU=simulated", gpus, needs),
        (Simulated, _) => simulate("MEMTRACE_GPU=simulated".to_owned(), needs),
    }
}

/// Chooses the simulated driver that the loader finds, unless `MEMTRACE_SIMULATED_GPU` names another one.
fn use_installed(why: &str, gpus: DetectedGpus, needs: &[String]) -> Result<GpuChoice, String> {
    if simulated::named_folder().is_some() {
        return simulate("MEMTRACE_SIMULATED_GPU is set".to_owned(), needs);
    }
    Ok(GpuChoice::Simulated { folder: None, gpus, why: why.to_owned() })
}

fn simulate(why: String, needs: &[String]) -> Result<GpuChoice, String> {
    let (folder, gpus) = match simulated::find()? {
        SimulatedDriver::Folder(folder, gpus) => (folder, gpus),
        SimulatedDriver::Missing(why_missing) => return Ok(GpuChoice::None(format!("{why}; {why_missing}"))),
    };
    match needs.iter().find(|library| !folder.join(library).exists()) {
        Some(library) => Ok(GpuChoice::None(format!(
            "{why}; the simulated GPU has no {library}: build and run with `cargo memtrace test --simulate 24GiB`"
        ))),
        None => Ok(GpuChoice::Simulated { folder: Some(folder), gpus, why }),
    }
}

impl GpuChoice {
    /// The value of `MEMTRACE_GPU_USED`.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Real(_) => "real",
            Self::Simulated { .. } => "simulated",
            Self::None(_) => "none",
        }
    }
}

impl fmt::Display for GpuChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Real(gpus) if gpus.count == 1 => write!(f, "real GPU: {}, {}", gpus.name, size(gpus.memory)),
            Self::Real(gpus) => write!(f, "{} real GPUs; the first: {}, {}", gpus.count, gpus.name, size(gpus.memory)),
            Self::Simulated { gpus, why, .. } => match gpus.count {
                0 => write!(f, "simulated driver without a GPU ({why})"),
                1 => write!(f, "simulated GPU of {} ({why})", size(gpus.memory)),
                count => write!(f, "{count} simulated GPUs of {} each ({why})", size(gpus.memory)),
            },
            Self::None(why) => write!(f, "no GPU ({why})"),
        }
    }
}

/// Bytes in GiB or MiB, with at most one decimal.
fn size(bytes: u64) -> String {
    let (unit, name) = if bytes < 1 << 30 { (1_u32 << 20, "MiB") } else { (1 << 30, "GiB") };
    #[expect(clippy::cast_precision_loss, reason = "one decimal")]
    let amount = bytes as f64 / f64::from(unit);
    if bytes.is_multiple_of(unit.into()) { format!("{amount} {name}") } else { format!("{amount:.1} {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_at_most_one_decimal() {
        let text = [80 << 30, 512 << 20, 150_754_820_096, 1 << 19].map(size);
        assert_eq!(text, ["80 GiB", "512 MiB", "140.4 GiB", "0.5 MiB"]);
    }
}
