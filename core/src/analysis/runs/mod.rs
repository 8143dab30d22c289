//! Memory that repeated runs of some code leave behind. The library's assertions and `cargo memtrace check` judge it.
//!
//! | file | holds |
//! |---|---|
//! | `slope` | the trend of a series |
//! | `samples` | the live memory after each run |
//! | `leaks` | which part of it is a leak |
//! | `scopes` | the runs of a recording: what its scopes leave behind |

mod leaks;
mod samples;
mod scopes;
mod slope;

pub use leaks::{is_the_harnesses, leaks, leaks_of_its_own};
pub use samples::{BlockOrigin, LiveByOrigin, LiveTotals, Samples};
pub use scopes::{LeakVerdict, ScopeLeak, left_by_scopes};
pub use slope::{Trend, ends_higher, keeps_step, settles_after, trend};

/// The most runs if the verdict is not clear after the requested runs. Only a series that doubles may need more.
pub const MOST: usize = 256;
/// With fewer runs than this, memory that still grows may be a cache that fills up.
pub const FEW: usize = 12;
