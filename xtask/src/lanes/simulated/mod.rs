//! Programs on simulated GPUs, whose recordings must equal the simulator's log.

mod builds;
mod changes;
mod command;
mod failing;
mod fit;
mod fits;
mod frameworks;
mod log;
mod oom;
mod peaks;
mod pickle;
mod post_mortem;
mod preloaded;
mod programs;
mod published;
mod ranks;
mod recording;
mod runner;
mod text;
mod unchanged;
mod uses;
mod versions;

pub(crate) use self::builds::{LINKED, PROFILE, linked};
pub(crate) use self::failing::run as failing;
pub(crate) use self::fits::run as fits;
pub(crate) use self::peaks::{llama, model_with_uses, run as peaks};
pub(crate) use self::programs::run;
pub(crate) use self::published::published;
pub(crate) use self::ranks::run as ranks;
pub(crate) use self::runner::run as runner;
pub(crate) use self::unchanged::run as unchanged;
pub(crate) use self::uses::run as uses;
