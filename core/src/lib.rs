//! Reads, analyzes and exports recordings of [memtrace](https://docs.rs/candle-memtrace), the memory profiler for Rust
//! tensor programs.
//!
//! `candle-memtrace` makes recordings inside the profiled program. This crate reads them on any machine. It has no
//! allocator, no hooks, no threads and no unsafe code.
//!
//! # What is a recording?
//! [`SnapshotData`] is plain data. It has a [`DeviceSnapshot`](snapshot::DeviceSnapshot) for each device (the CPU's
//! heap, each GPU): a log of allocs and frees, the blocks that are live at the end, and the **peak**, the moment at
//! which most bytes were live, with exactly the blocks that were live then. Every block refers to its **stack** (call
//! frames with functions, files and lines) and to its **context** (the path of scopes that were open). The log keeps
//! only the newest records, but peak, live blocks and counters are complete.
//!
//! # How do I read one?
//! [`open`] reads `.memtrace` files, compressed or not, even if the program was killed. It also reads PyTorch's memory
//! snapshots.
//!
//! ```
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/small.memtrace");
//! let data = memtrace_core::open(path)?;
//! assert_eq!(data.process.program, "net");
//! assert!(!data.health.cut_off); // the recording ended in order
//! for device in &data.devices {
//!     println!("{}: {} records, peak {} bytes", device.device, device.records.len(), device.peak.total());
//! }
//! # Ok::<(), memtrace_core::Error>(())
//! ```
//!
//! # What held the peak?
//! A [`Recording`] has the analyses: a view of each device, with tables by line, function, operator, scope, category
//! and more ([`analysis::Key`]). The rows of a table add up to the total, to the byte.
//!
//! ```
//! use memtrace_core::analysis::Key;
//! use memtrace_core::{Bytes, Recording};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/small.memtrace");
//! # let data = memtrace_core::open(path)?;
//! let recording = Recording::new(&data);
//! let device = recording.device_or_main(None).expect("a device was used");
//! let lines = device.by(Key::Line);
//! assert_eq!(lines.rows[0].label, "src/model.rs:7 (Net::forward)");
//! assert_eq!(Bytes(lines.rows[0].bytes).to_string(), "2.930 KiB");
//! assert_eq!(lines.total, device.peak.total());
//! # Ok::<(), memtrace_core::Error>(())
//! ```
//!
//! [`report`] collects the most important tables, the findings and the notes; [`export::Text`] prints them.
//!
//! # How do I write another format?
//! Each format of [`export`] is a type with its options. [`export::file::create`] writes files atomically.
//!
//! ```
//! use memtrace_core::export::{Export, Folded, Measure};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/small.memtrace");
//! # let data = memtrace_core::open(path)?;
//! let mut stacks = Vec::new();
//! Folded { measure: Measure::Count, ..Folded::default() }.write(&data, &mut stacks)?;
//! assert!(stacks.ends_with(b" 2\n")); // two blocks have the last stack
//! # Ok::<(), memtrace_core::Error>(())
//! ```
//!
//! A format of your own implements [`export::Export`]:
//!
//! ```
//! use std::io::Write;
//!
//! use memtrace_core::export::{Export, LeftOut};
//! use memtrace_core::{Error, SnapshotData};
//!
//! /// One line for each device: its peak in bytes.
//! struct Peaks;
//!
//! impl Export for Peaks {
//!     fn write(&self, data: &SnapshotData, out: &mut dyn Write) -> Result<LeftOut, Error> {
//!         for device in &data.devices {
//!             writeln!(out, "{} {}", device.device, device.peak.total())?;
//!         }
//!         Ok(LeftOut::default())
//!     }
//! }
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/small.memtrace");
//! # let data = memtrace_core::open(path)?;
//! let mut text = Vec::new();
//! Peaks.write(&data, &mut text)?;
//! assert_eq!(text, b"cpu 4652\n");
//! # Ok::<(), memtrace_core::Error>(())
//! ```
//!
//! # Parts
//! All functions are pure: they take `&SnapshotData`, and return values or bytes. Only [`open`], [`store_names`],
//! [`export::read_operators`] and [`export::file`] touch files.
//!
//! | module | content |
//! |---|---|
//! | [`snapshot`] | the data of a recording |
//! | [`capture`] | memtrace's file format |
//! | [`symbol`] | symbolication: code addresses to functions, files and lines |
//! | [`attribute`] | the user line, operator, model part and category of a block |
//! | [`analysis`] | tables, operator series, category timelines |
//! | [`report`] | the report: answer, findings, notes, tables |
//! | [`export`] | file formats |
#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "what prints is `cargo-memtrace` and the program")
)]

pub mod analysis;
pub mod attribute;
#[doc(hidden)]
pub mod baseline;
pub mod capture;
mod error;
pub mod export;
mod figures;
mod hashed;
#[doc(hidden)]
pub mod input;
mod memo;
mod numbered;
mod pytorch_words;
#[cfg(test)]
#[path = "../../tests/support/random.rs"]
mod random;
mod read;
mod recording;
pub mod report;
pub mod snapshot;
mod sources;
pub mod symbol;
#[doc(hidden)]
pub mod units;
#[doc(hidden)]
pub mod visible;

pub use error::Error;
pub use read::{ReadOptions, open, store_names};
#[doc(hidden)]
pub use read::{has_ended, is_capture, is_one_of_several, parts_of, readable};
pub use recording::{DeviceView, Recording};
pub use snapshot::{
    Action, Category, Device, Enabled, MemoryStats, Rules, Settings, SnapshotData, StackContext, StackKind, Stat,
};
pub use units::{Bytes, parse_bytes};
