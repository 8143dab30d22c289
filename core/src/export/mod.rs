//! Files for people and their tools. Each format has `write(&SnapshotData, &Options, impl Write)`
//! and does nothing but write to it; [`mod@file`] writes files.

mod budget;
pub mod categories;
pub mod chrome;
mod coverage;
mod device_memory;
#[cfg(feature = "figures")]
pub mod figure;
pub mod file;
#[cfg(feature = "flamegraph")]
pub mod flamegraph;
pub mod folded;
mod format;
mod gathered;
#[cfg(test)]
mod golden_tests;
pub mod json;
#[cfg(test)]
mod naive_unpickle;
pub mod operators;
mod pickle;
pub mod post_mortem;
pub mod pytorch;
mod sampled;
pub mod table;
pub mod text;
mod twice;

pub use budget::LeftOut;
pub use format::{Format, operators_of, write_capture};
