//! What a piece of code allocates, and what it may: for tests.
//!
//! A measurement ([`measure`](fn@crate::measure)) is held against a limit ([`PeakLimit`]), or some code runs again
//! and again and what it leaves is compared ([`NoLeak`], [`NoGrowth`], [`Scales`]). Each of them gives a `Result`;
//! the macros are shells around that. [`Failure`] is the report.

mod baseline;
mod baseline_file;
mod failure;
mod future;
mod growth;
mod held;
mod leak;
mod measure;
mod origins;
mod peak;
#[cfg(feature = "rayon")]
mod pool;
mod rows;
mod run_log;
mod runs;
mod scaling;
mod setup;
pub mod shell;
mod slope;
mod undecided;

pub use failure::Failure;
pub use future::{MeasureFuture, measure_async, try_measure_async};
pub use growth::NoGrowth;
pub use leak::NoLeak;
pub use measure::{Measured, MeasuredDevice, Measurement, Unattributed, measure, try_measure};
pub use peak::{PeakLimit, check_peak};
#[cfg(feature = "rayon")]
pub use pool::{measure_in_pool, try_measure_in_pool};
pub use scaling::{Scales, Scaling};
