//! Memory that repeated runs of some code leave behind: what the library's assertions judge, and `cargo memtrace check`.
//!
//! | file | holds |
//! |---|---|
//! | `slope` | the trend of a series |
//! | `samples` | what is live after each run |
//! | `leaks` | which of it is a leak |
//! | `scopes` | the runs of a recording: what its scopes leave behind |

mod leaks;
mod samples;
mod scopes;
mod slope;

pub use leaks::{is_the_harnesses, leaks, leaks_of_its_own};
pub use samples::{BlockOrigin, LiveByOrigin, LiveTotals, Samples};
pub use scopes::{LeakVerdict, ScopeLeak, left_by_scopes};
pub use slope::{Trend, ends_higher, keeps_step, settles_after, trend};

/// The most runs if the verdict is not clear after the requested ones, unless something doubles.
pub const MOST: usize = 256;
/// With fewer runs, memory that still grows may be a cache that fills up.
pub const FEW: usize = 12;
