//! What [memtrace](https://docs.rs/candle-memtrace) knows of a finished recording: its data, captures, attribution, analysis,
//! reports and file formats. `candle-memtrace` is what makes recordings, inside the program; this reads them, anywhere.
//!
//! ```no_run
//! let recording = memtrace_core::read_capture("train.memtrace", |_, _| {})?;
//! println!("{}", memtrace_core::export::Text::default().render(&recording)?);
//! # Ok::<(), memtrace_core::Error>(())
//! ```
//!
//! Everything is pure: `&SnapshotData` in, values or bytes out. Only [`read_capture`] and [`read_operators`] open files, and
//! [`export::file`] writes them. There is no unsafe code, no thread, no hook and no allocator here.
//!
//! | module | holds |
//! |---|---|
//! | [`snapshot`] | the data of a recording |
//! | [`capture`] | the capture format, written and read |
//! | [`symbol`] | code addresses to functions, files and lines |
//! | [`attribute`] | who needed a block, and what for |
//! | [`analysis`] | tables, series, findings |
//! | [`report`] | the report: an answer, findings and tables |
//! | [`export`] | formats for people and their tools |

pub mod analysis;
pub mod attribute;
pub mod capture;
mod error;
pub mod export;
#[cfg(test)]
#[path = "../../tests/support/random.rs"]
mod random;
mod read;
pub mod report;
pub mod snapshot;
mod sources;
pub mod symbol;
#[doc(hidden)]
pub mod units;
mod unpack;

pub use error::Error;
pub use read::{parse_capture, read_capture, read_operators};
pub use snapshot::{
    Action, Category, Device, Enabled, MemoryStats, Rules, Settings, SnapshotData, StackContext, StackKind, Stat,
};
pub use units::{Bytes, parse_bytes};
