//! Chooses the GPU.

use std::fmt;
use std::path::PathBuf;

use crate::answer::{Answer, Gpus};
use crate::ask;
use crate::simulated::{self, Found};
use crate::wish::Gpu;

#[derive(Debug)]
pub(crate) enum Choice {
    Real(Gpus),
    /// The driver's folder; none if the loader finds it as it is. And why it is not a real one.
    Simulated(Option<PathBuf>, Gpus, String),
    /// Why.
    None(String),
}

/// For a program that is linked against these libraries of CUDA.
pub(crate) fn choose(wish: Gpu, needs: &[String]) -> Result<Choice, String> {
    match (wish, ask::here(wish != Gpu::Simulated)?) {
        (Gpu::Any | Gpu::Real, Answer::Real(gpus)) => Ok(Choice::Real(gpus)),
        (Gpu::Real, Answer::None(why)) => Ok(Choice::None(why)),
        (Gpu::Real, Answer::Simulated(_)) => Ok(Choice::None(
            "the driver on LD_LIBRARY_PATH is the simulated one; run it without scripts/with-simulated-gpu".to_owned(),
        )),
        (Gpu::Any, Answer::None(why)) => simulate(why, needs),
        (Gpu::Any, Answer::Simulated(gpus)) => installed("it is on LD_LIBRARY_PATH", gpus, needs),
        (Gpu::Simulated, Answer::Simulated(gpus)) => installed("MEMTRACE_GPU=simulated", gpus, needs),
        (Gpu::Simulated, _) => simulate("MEMTRACE_GPU=simulated".to_owned(), needs),
    }
}

/// The one that the loader finds, unless another is named.
fn installed(why: &str, gpus: Gpus, needs: &[String]) -> Result<Choice, String> {
    if simulated::named().is_some() {
        return simulate("MEMTRACE_SIMULATED_GPU is set".to_owned(), needs);
    }
    Ok(Choice::Simulated(None, gpus, why.to_owned()))
}

fn simulate(why: String, needs: &[String]) -> Result<Choice, String> {
    match simulated::find()? {
        Found::Nothing(neither) => Ok(Choice::None(format!("{why}; {neither}"))),
        Found::Folder(folder, gpus) => match needs.iter().find(|library| !folder.join(library).exists()) {
            Some(library) => Ok(Choice::None(format!(
                "{why}; the simulated GPU has no {library}: build with scripts/with-simulated-gpu or scripts/stand-in-toolkit"
            ))),
            None => Ok(Choice::Simulated(Some(folder), gpus, why)),
        },
    }
}

impl Choice {
    /// For `MEMTRACE_GPU_USED`.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Real(_) => "real",
            Self::Simulated(..) => "simulated",
            Self::None(_) => "none",
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Real(gpus) if gpus.count == 1 => write!(f, "real GPU: {}, {}", gpus.name, Size(gpus.memory)),
            Self::Real(gpus) => {
                write!(f, "{} real GPUs; the first: {}, {}", gpus.count, gpus.name, Size(gpus.memory))
            }
            Self::Simulated(_, gpus, why) => match gpus.count {
                0 => write!(f, "simulated driver without a GPU ({why})"),
                1 => write!(f, "simulated GPU of {} ({why})", Size(gpus.memory)),
                count => write!(f, "{count} simulated GPUs of {} each ({why})", Size(gpus.memory)),
            },
            Self::None(why) => write!(f, "no GPU ({why})"),
        }
    }
}

/// Bytes, as a person says them.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = if self.0 < 1 << 30 { (1_u32 << 20, "MiB") } else { (1 << 30, "GiB") };
        #[expect(clippy::cast_precision_loss, reason = "one place after the point")]
        let amount = self.0 as f64 / f64::from(unit);
        if self.0.is_multiple_of(unit.into()) { write!(f, "{amount} {name}") } else { write!(f, "{amount:.1} {name}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_short() {
        let text = [80 << 30, 512 << 20, 150_754_820_096, 1 << 19].map(|bytes| Size(bytes).to_string());
        assert_eq!(text, ["80 GiB", "512 MiB", "140.4 GiB", "0.5 MiB"]);
    }
}
