//! Who holds the memory of a tensor program, and when it holds most: by source line, function and
//! scope, to the byte.
//!
//! ```no_run
//! #[global_allocator]
//! static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
//!
//! # fn forward() {}
//! fn main() -> Result<(), memtrace::Error> {
//!     let session = memtrace::start()?;
//!     memtrace::scope("forward", || forward());
//!     let snapshot = session.snapshot();
//!     println!("{}", snapshot.report());
//!     snapshot.write("snapshot.pickle")?; // opens in pytorch.org/memory_viz
//!     snapshot.write("peak.svg")?;
//!     Ok(())
//! }
//! ```
//!
//! # What is recorded
//! Every allocation, reallocation and free that goes through Rust's global allocator, on every
//! thread, once a [`Session`] is under way: with its stack, its [`scope`]s, its thread and its time.
//! Blocks smaller than [`min_size`](Builder::min_size) (1 KiB) are counted, not recorded.
//!
//! On Linux with glibc on x86_64 also every allocation and free of the CUDA driver, whoever asks for it:
//! candle, cudarc, cuBLAS. Nothing has to be installed for that; each GPU is a [`Device`] of its own, and so are
//! pinned and managed memory. [`snapshot::CudaHooks`] says what was in sight.
//!
//! # What is exact
//! The peak, what was live at it, the counters and every table's sum, to the byte, whatever the log
//! has overwritten. The log itself holds the newest [`max_entries`](Builder::max_entries) records.
//! The bytes below the threshold are exact for each thread and read one thread after another.
//! With [`sample_interval`](Builder::sample_interval) what is live is counted, and the peak is the most that was counted when a
//! block was recorded; the heap's other figures are estimates, marked as such, and sums still hold to the byte.
//!
//! # What cannot be seen from here
//! Memory that C libraries take with `malloc`, mapped files, thread stacks; of CUDA's memory what
//! [`snapshot::CudaHooks::unseen_calls`] counts, and what the driver takes for itself. A reallocation counts as a
//! free followed by an allocation.
//!
//! # From outside
//! Variables of the environment come before what the code says. [`init`] records programs that start no
//! session of their own, if `MEMTRACE` or `MEMTRACE_OUT` asks for it. A name that begins like these and is none is said. None counts in a program that has more rights than whoever runs it
//! (set-user-id, set-group-id, capabilities of its file).
//!
//! | variable | takes | |
//! |---|---|---|
//! | `MEMTRACE` | `off`, `state`, `all` (or `0`, `1`) | how much is recorded; with `off` the CUDA driver is left alone, too |
//! | `MEMTRACE_OUT` | a path with `%e %h %p %r %t` for program, host, pid, rank, seconds since 1970 | written at the end and on a panic; the format by its end, see [`Snapshot::write`]; `.memtrace` is streamed while the program runs |
//! | `MEMTRACE_STACKS` | `rust`, `all` | whose frames are kept |
//! | `MEMTRACE_CONTEXT` | `none`, `state`, `alloc`, `all` | whose stacks are kept |
//! | `MEMTRACE_MAX_ENTRIES` | a number | records that the log holds |
//! | `MEMTRACE_MIN_SIZE` | a size such as `64 KiB` | smaller blocks are counted only |
//! | `MEMTRACE_SAMPLE_INTERVAL` | a size such as `512 KiB`, or `0` | of smaller blocks a sample is recorded, see [`Builder::sample_interval`] |
//! | `MEMTRACE_SAMPLE_SEED` | a number | another sample: the same program under a few of them shows how far its estimates vary |
//! | `MEMTRACE_DUMP_ON_OOM` | `1`, `0` | a snapshot when an allocation fails; `0`: nothing is said of it either |
//! | `MEMTRACE_RULES` | a file | lines added to [`Rules`], which say what is a framework and what its blocks are for |
//! | `MEMTRACE_CHECK_STACKS` | `1`, `0` | every stack is taken by libgcc's unwinder, too; [`snapshot::Health`] says how often they differed |
//! | `MEMTRACE_SIGNAL` | `USR1`, `USR2`, a number | a snapshot at each such signal (feature `signals`) |
//!
//! # When the program dies
//! [`Builder::stream`] appends to a capture that survives `kill -9`; [`Builder::dump_on_panic`],
//! [`dump_on_signal`](Builder::dump_on_signal), [`dump_at_end`](Builder::dump_at_end) and
//! [`dump_on_oom`](Builder::dump_on_oom) write snapshots. [`read_capture`] reads captures, elsewhere and
//! later too.
//!
//! # Names
//! [`name`](fn@name) says what a block is; reports, traces and captures show it. The feature `candle` has
//! `memtrace::candle` with candle's devices and `tag` for tensors, `cudarc` has `memtrace::cudarc` with
//! named allocations; `cuda` is `candle` with candle's own feature `cuda`. The library needs neither.
//!
//! # In tests
//! [`measure`](fn@measure) says what code allocates, [`assert_peak!`], [`assert_no_leak!`], [`assert_no_growth!`] and
//! [`assert_scaling!`] what it may; they need the allocator and no session, and are right when tests run side by side.
//! [`measure_async`](fn@measure_async) is for futures, `measure_in_pool` (feature `rayon`, which `candle` brings along)
//! for work on rayon's workers. `docs/testing.md` has recipes.
//!
//! | variable | |
//! |---|---|
//! | `MEMTRACE_UPDATE_BASELINES=1` | what is measured becomes the baseline |
//! | `CI` | a baseline that is missing is a failure; elsewhere it is written |
//! | `MEMTRACE_PEAKS` | a JSON file with every `assert_peak!` of a run |
//! | `MEMTRACE_SUMMARY` | the same as a table in a Markdown file, such as `$GITHUB_STEP_SUMMARY` |
//!
//! # Line numbers
//! A release build has function names only, unless `Cargo.toml` says:
//! ```toml
//! [profile.release]
//! debug = "line-tables-only"
//! ```
#![cfg_attr(
    not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")),
    allow(dead_code, reason = "nothing records the memory of devices here")
)]

mod assertion;
#[cfg(feature = "candle")]
pub mod candle;
#[cfg(any(feature = "cudarc", feature = "cuda"))]
pub mod cudarc;
mod device;
mod elf;
mod errno;
mod error;
#[cfg(feature = "tracing")]
mod future;
mod hook;
#[cfg(feature = "tracing")]
mod layer;
mod macros;
mod name;
#[cfg(test)]
#[path = "../tests/support/random.rs"]
mod random;
mod record;
mod scope;
mod session;
mod symbol;
mod variable;
mod write_errors;

#[doc(hidden)]
pub use assertion::shell;
pub use assertion::{
    Failure, MeasureFuture, Measured, MeasuredDevice, Measurement, NoGrowth, NoLeak, PeakLimit, Scales, Scaling,
    Unattributed, check_peak, measure, measure_async, try_measure, try_measure_async,
};
#[cfg(feature = "rayon")]
pub use assertion::{measure_in_pool, try_measure_in_pool};
pub use device::IntoDevice;
pub use error::Error;
#[cfg(feature = "tracing")]
pub use future::{FutureExt, Traced};
pub use hook::Alloc;
#[cfg(feature = "tracing")]
pub use layer::{SpanLayer, layer};
pub use memtrace_core::{analysis, attribute, export, report, snapshot};
use memtrace_core::{capture, units};
pub use name::{Address, name, name_as, name_on};
/// For the benchmarks of this package.
#[doc(hidden)]
pub use record::unwind::take_stack;
pub use scope::{Context, ScopeGuard, module, scope, scope_guard};
pub use session::{
    Builder, IntoBytes, Operators, Report, Session, Snapshot, builder, init, is_recording, on_cuda_start, output_dir,
    parse_capture, read_capture, read_operators, reset_peak, start, stats, trace_handler,
};
pub use snapshot::{
    Action, Category, Device, Enabled, MemoryStats, Rules, Settings, SnapshotData, StackContext, StackKind, Stat,
};
pub use units::{Bytes, parse_bytes};
