//! Memory assertions for tests. They compare a measurement with a limit, or run code repeatedly and compare the runs.
//!
//! [`measure`](fn@crate::measure) takes one measurement. [`PeakLimit`] compares its peak with a limit or a baseline;
//! [`NoLeak`], [`NoGrowth`] and [`Scales`] run code repeatedly. Each of these assertions returns a `Result` with a
//! [`Failure`]. For each, there is also a macro that panics instead.
//!
//! **What counts.** A measurement belongs to *work*, not to a thread. The measurement travels with
//! [`Context`](crate::Context), and threads that the work starts inherit it, so assertions give the same result when
//! other tests run in parallel. `tracing` spans do not carry measurements, because a model's span may be created in one
//! test and entered in another. Each device is compared with the limit by itself, because code on one GPU can use only
//! that GPU's memory. A sum over devices would count copies twice.
//!
//! **Undecided.** A thread that existed before the measurement may have worked for the measured code (*handed-over
//! work*, `record::measure`). The evidence is words on that thread's stack, which may be stale, or only the fact that
//! the code could have asked the thread. So such work never enters a measurement's numbers. If the verdict depends on
//! such work, the assertion fails as undecided. If it passed instead, it could hide the memory of a pool; if it counted
//! the work, its numbers could be wrong. Only a leak on such threads that keeps step with the runs is certain.
//!
//! | file | holds |
//! |---|---|
//! | `measure`, `future`, `pool` | taking a measurement |
//! | `peak`, `peak_check`, `baseline`, `pending`, `run_log` | a limit for the peak, its file, changes to review, the list of peaks |
//! | `runs`, `leak`, `growth` | repeated runs; the statistics on what stays live are the core's, `analysis::runs` |
//! | `scaling` | peaks for growing inputs |
//! | `waste` | GPU memory at the peak that nothing uses |
//! | `fits` | a GPU that the code must fit on |
//! | `recorded` | recordings of the whole process, one at a time, for `waste` and `fits` |
//! | `setup`, `undecided` | memory that does not count: one-time initialization, other threads' work |
//! | `failure`, `rows`, `origins` | the failure's text and its tables |
//! | `shell` | what the macros expand to |

mod baseline;
mod baseline_file;
mod failure;
mod fits;
mod future;
mod growth;
mod leak;
mod measure;
mod origins;
mod peak;
mod peak_check;
mod pending;
#[cfg(feature = "rayon")]
mod pool;
mod recorded;
mod rows;
mod run_log;
mod runs;
mod scaling;
mod setup;
pub mod shell;
mod undecided;
mod waste;

/// Data with these stacks, numbered from 1, each with the names of its functions, innermost first.
#[cfg(test)]
fn with_stacks(stacks: &[&[&str]]) -> memtrace_core::snapshot::SnapshotData {
    use memtrace_core::snapshot::{CodeAddress, Frame, SnapshotData, Stacks};
    let functions = stacks.concat();
    let frame = |function: &&str| Frame { function: Some((*function).to_owned()), ..Frame::default() };
    let address = |at: u32| CodeAddress { address: at.into(), object: None, offset: 0, frames: at..at + 1 };
    let addresses = (0..functions.len() as u32).map(address).collect();
    let mut numbers = 0..;
    let stacks: Vec<Vec<u32>> = stacks.iter().map(|stack| numbers.by_ref().take(stack.len()).collect()).collect();
    let mut data = SnapshotData::default();
    data.stacks = Stacks::of(addresses, functions.iter().map(frame).collect(), stacks);
    data
}

pub use failure::Failure;
pub use fits::Fits;
pub use future::{MeasureFuture, measure_async, try_measure_async};
pub use growth::NoGrowth;
pub use leak::NoLeak;
pub use measure::{Measured, MeasuredDevice, Measurement, Unattributed, measure, try_measure};
pub use peak::{PeakLimit, check_peak};
#[cfg(feature = "rayon")]
pub use pool::{measure_in_pool, try_measure_in_pool};
pub use scaling::{Scales, Scaling};
pub use waste::NoWaste;
