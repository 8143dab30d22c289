//! Programs on simulated GPUs. What they are recorded to do is held against the simulator's own account of them.

mod account;
mod builds;
mod frameworks;
mod gpu;
mod oom;
mod peaks;
mod post_mortem;
mod preloaded;
mod programs;
mod published;
mod recording;
mod report;
mod runner;
mod snapshot;
mod text;
mod unchanged;
mod versions;

pub(crate) use self::peaks::run as peaks;
pub(crate) use self::programs::run;
pub(crate) use self::runner::run as runner;
pub(crate) use self::unchanged::run as unchanged;
