//! Memory profiler for Rust tensor programs. It shows which source lines, functions and scopes held the memory at the
//! peak, on the CPU and on CUDA devices, to the byte.
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
//!     snapshot.write("peak.svg")?; // a flamegraph
//!     Ok(())
//! }
//! ```
//!
//! Release builds need line tables, or reports show functions without lines. Put this in `Cargo.toml`:
//! ```toml
//! [profile.release]
//! debug = "line-tables-only"
//! ```
//!
//! The manual explains [seven ideas](#the-allocator) in the order in which you meet them, then [what memtrace
//! sees](#what-is-seen) and [how exact it is](#what-is-exact), then [tests](#tests) and [programs that
//! die](#when-the-program-dies). The [variables](#environment-variables) and [features](#features) are at the end.
//!
//! # The allocator
//! memtrace sees the heap through the program's global allocator. [`Alloc`] wraps an allocator and passes every request
//! on to it. While nothing is recorded, this costs a few nanoseconds for each request.
//!
//! ```
//! #[global_allocator]
//! static ALLOC: memtrace::Alloc = memtrace::Alloc::system(); // or `Alloc::new(other)` around any other allocator
//! ```
//!
//! CUDA memory needs no allocator. On Linux with glibc on x86-64 or aarch64, memtrace replaces the CUDA driver's
//! functions in the running program, so it sees every allocation of candle, cudarc, cuBLAS and any other library.
//! Nothing has to be installed.
//!
//! # The session
//! A [`Session`] is one recording. [`start`] begins it, or [`builder`] with other [options](Builder); dropping the
//! session ends it. A process has at most one at a time. While it is active, each allocation, reallocation and free is
//! a *record*, with its stack, scopes, thread and time, in a log that keeps the newest
//! [`max_entries`](Builder::max_entries). Blocks smaller than [`min_size`](Builder::min_size) (1 KiB) are only counted.
//!
//! ```
//! # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
//! let session = memtrace::builder().min_size("64 KiB").start()?;
//! let weights = vec![0u8; 1 << 20];
//! assert!(memtrace::stats(memtrace::Device::Cpu).allocated_bytes.current >= 1 << 20);
//! drop(session);
//! assert!(!memtrace::is_recording());
//! # Ok::<(), memtrace::Error>(())
//! ```
//!
//! If many small blocks make recording slow, [`sample_interval`](Builder::sample_interval) records a sample of them.
//!
//! # The scope
//! A stack says where an allocation was made, but not in which phase of the program. A [`scope`] does: it labels what a
//! thread allocates while a closure runs. Scopes nest. A [`module`] is a scope for a part of a model, and reports have
//! a table by module as well. [`scope_guard`] opens a scope until the guard is dropped, and `layer` makes scopes of
//! `tracing` spans, such as those of candle's models.
//!
//! ```
//! let sum: f32 = memtrace::scope("forward", || {
//!     let hidden = memtrace::module("encoder", || vec![1.0; 1000]);
//!     hidden.iter().sum()
//! });
//! # assert_eq!(sum, 1000.0);
//! ```
//!
//! # The context
//! The path of open scopes, here `forward > encoder`, is the thread's [`Context`]. A new thread starts without open
//! scopes, so hand it the context of the thread that it works for:
//!
//! ```
//! let _scope = memtrace::scope_guard("load");
//! let here = memtrace::Context::current();
//! let shard = std::thread::spawn(move || here.scope(|| vec![0u8; 4096])).join().unwrap();
//! ```
//!
//! `task.memtrace("request")`, from `FutureExt`, gives a future a context. The future keeps this context, whichever
//! thread polls it.
//!
//! # The device
//! Each [`Device`] has an account of its own: the heap ([`Device::Cpu`]), each GPU ([`Device::Cuda`]), and pinned,
//! managed and imported memory. Limits, peaks and tables are per device and never added up, because one GPU cannot use
//! another one's memory. With the feature `candle`, `&candle_core::Device` works wherever a device is expected.
//!
//! # The peak
//! The peak is the high-water mark of a device: the most bytes that were live at once. It decides whether the program
//! fits on the device, so reports are about that moment: which blocks were live, who allocated them, and what for.
//! memtrace notes the peak while it records, so the peak stays exact when older records are overwritten.
//!
//! ```
//! # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
//! let session = memtrace::start()?;
//! drop(vec![0u8; 3 << 20]);
//! let kept = vec![0u8; 1 << 20];
//! let snapshot = session.snapshot();
//! let peak = &snapshot.device(memtrace::Device::Cpu).unwrap().peak;
//! assert!(peak.blocks.iter().any(|block| block.size == 3 << 20), "the large block was live then");
//! assert!(peak.blocks.iter().all(|block| block.size != 1 << 20), "the other one was not");
//! # Ok::<(), memtrace::Error>(())
//! ```
//!
//! # The snapshot
//! A [`Snapshot`] is everything recorded so far, as [plain data](SnapshotData). It prints as a
//! [report](Snapshot::report): a summary, findings on what could be better, and tables by line, operator, module,
//! category and scope. [`Snapshot::write`] makes files for other tools, in the format of the file's extension.
//! [`analysis`] has the tables as values.
//!
//! ```no_run
//! # let session = memtrace::start()?;
//! let before = session.snapshot();
//! // … some requests later
//! let now = session.snapshot();
//! println!("{}", now.since(&before)); // what was allocated since and is still live
//! now.write("timeline.trace.json")?; // for ui.perfetto.dev
//! # Ok::<(), memtrace::Error>(())
//! ```
//!
//! [`name`](fn@name) attaches a name to a block, which reports then show. The modules `memtrace::candle` and
//! `memtrace::cudarc` name tensors and slices, with their shapes.
//!
//! # What is seen
//! * Every request to Rust's global allocator, on every thread, if [`Alloc`] is installed. A reallocation counts as a
//!   free and an allocation.
//! * Every allocation and free of the CUDA driver. [`snapshot::CudaHooks`] says how the hooks were installed, and what
//!   they missed.
//!
//! memtrace does **not see**:
//! * memory that C libraries take with `malloc`, mapped files, and thread stacks
//! * the calls that [`snapshot::CudaHooks::unseen_calls`] counts
//! * what the CUDA driver allocates for itself
//!
//! # What is exact
//! The peak, what was live at it, the counters and the sum of every table are exact to the byte, even if the log has
//! overwritten records. Each thread counts the bytes of smaller blocks exactly, but memtrace reads the threads' counts
//! one after another.
//!
//! With [`sample_interval`](Builder::sample_interval), all live bytes are still counted, and the peak is the highest
//! count at which a block was recorded. The heap's other figures are estimates and marked as such; the rows of a table
//! still add up to the byte.
//!
//! # Tests
//! [`measure`](fn@measure) measures what some code allocates. [`assert_peak!`], [`assert_no_leak!`],
//! [`assert_no_growth!`] and [`assert_scaling!`] check such code. They need [`Alloc`] but no session, and give the same
//! results when tests run in parallel. [`assert_no_waste!`] checks how much of a GPU's peak nothing uses. It records
//! the whole process while the code runs, so no other test may use the GPU meanwhile.
//! [`measure_async`](fn@measure_async) is for futures, `measure_in_pool` (feature `rayon`) for work on rayon's threads.
//! `docs/testing.md` in the repository has recipes.
//!
//! ```
//! # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
//! # fn forward(n: usize) -> Vec<f32> { vec![0.0; n] }
//! let logits = memtrace::assert_peak!("1 MiB", forward(1000));
//! memtrace::assert_no_leak!(forward(1000));
//! let m = memtrace::measure(|| forward(1000));
//! assert_eq!((m.peak, m.leaked, m.allocations), (4000, 4000, 1));
//! ```
//!
//! # When the program dies
//! [`Builder::stream`] appends to a capture, memtrace's file format, while the program runs. The capture survives
//! `kill -9`, and [`open`] reads it later, also on other machines. [`Builder::dump_on_panic`],
//! [`dump_on_signal`](Builder::dump_on_signal), [`dump_at_end`](Builder::dump_at_end) and
//! [`dump_on_oom`](Builder::dump_on_oom) write snapshots. Without these options, too, memtrace explains the first
//! refused allocation of a recording on stderr.
//!
//! # Environment variables
//! Variables override the code. [`init`] records programs that start no session of their own, if `MEMTRACE` or
//! `MEMTRACE_OUT` asks for it. Unknown names that start with `MEMTRACE` are reported. Privileged programs (set-user-id,
//! set-group-id, file capabilities) ignore all of them.
//!
//! | variable | value | effect |
//! |---|---|---|
//! | `MEMTRACE` | `off`, `state`, `all` (or `0`, `1`) | how much is recorded; with `off` the CUDA driver is not hooked either |
//! | `MEMTRACE_OUT` | a path; `%e %h %p %r %t` stand for program, host, pid, rank, seconds since 1970 | output at the end and on a panic, in the format of the extension, see [`Snapshot::write`]; a `.memtrace` file is streamed while the program runs |
//! | `MEMTRACE_STREAM_BUDGET` | a size such as `2 GiB` | the most that the files of the stream take together, see [`Builder::stream_budget`] |
//! | `MEMTRACE_STREAM_TIME` | a time such as `90 s`, `30 min`, `1 h`, `2 d` | how long records are kept in the stream, see [`Builder::stream_time`] |
//! | `MEMTRACE_STACKS` | `rust`, `all` | which frames are kept |
//! | `MEMTRACE_CONTEXT` | `none`, `state`, `alloc`, `all` | which records get a stack |
//! | `MEMTRACE_USES` | `1`, `0` | uses of device memory are recorded, see [`Builder::uses`] |
//! | `MEMTRACE_MAX_ENTRIES` | a number | length of the log, in records |
//! | `MEMTRACE_MIN_SIZE` | a size such as `64 KiB` | smaller blocks are only counted |
//! | `MEMTRACE_SAMPLE_INTERVAL` | a size such as `512 KiB`, or `0` | smaller blocks are sampled, see [`Builder::sample_interval`] |
//! | `MEMTRACE_SAMPLE_SEED` | a number | draws another sample; a few seeds show how far the estimates vary |
//! | `MEMTRACE_DUMP_ON_OOM` | `1`, `0` | a snapshot when an allocation fails; `0` turns off the post-mortem as well |
//! | `MEMTRACE_RULES` | a file | adds rules to [`Rules`], by which attribution recognizes frameworks and categories |
//! | `MEMTRACE_CHECK_STACKS` | `1`, `0`, `abort` | takes every stack with libgcc's unwinder as well; [`snapshot::Health`] counts the differences, and `abort` ends the program at the first |
//! | `MEMTRACE_SIGNAL` | `USR1`, `USR2`, a number | a snapshot whenever this signal arrives (feature `signals`) |
//!
//! In tests:
//!
//! | variable | effect |
//! |---|---|
//! | `MEMTRACE_UPDATE_BASELINES=1` | measured peaks become the baselines |
//! | `CI` | a missing baseline is a failure; without `CI` it is written |
//! | `MEMTRACE_PEAKS` | a JSON file with every `assert_peak!` of a run |
//! | `MEMTRACE_SUMMARY` | the same as a table in a Markdown file, such as `$GITHUB_STEP_SUMMARY` |
//!
//! # Features
//! | feature | default | adds |
//! |---|---|---|
//! | `flamegraph` | yes | flamegraph SVGs (the crate inferno is under the CDDL-1.0) |
//! | `gzip` | yes | files that end in `.gz`, written and read |
//! | `tracing` | yes | spans as scopes: `layer`, `FutureExt` |
//! | `candle` | | `memtrace::candle`: candle's devices, names for tensors and parameters; includes `rayon` |
//! | `cuda` | | `candle` with candle's own feature `cuda`, and `memtrace::cudarc`; building it needs a CUDA toolkit |
//! | `cudarc` | | `memtrace::cudarc`: names for cudarc's slices; builds without a toolkit |
//! | `rayon` | | `measure_in_pool` |
//! | `metrics` | | `memtrace::metrics`: gauges of live bytes and peaks for the facade `metrics` |
//! | `signals` | | `Builder::dump_on_signal`, `MEMTRACE_SIGNAL` |
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "names become visible in `session::say`")
)]
#![cfg_attr(
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu")),
    allow(dead_code, unused_imports, reason = "nothing records device memory here")
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
mod executable;
#[cfg(feature = "tracing")]
mod future;
mod hook;
#[cfg(feature = "tracing")]
mod layer;
mod macros;
#[cfg(feature = "metrics")]
pub mod metrics;
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
    Failure, Fits, MeasureFuture, Measured, MeasuredDevice, Measurement, NoGrowth, NoLeak, NoWaste, PeakLimit, Scales,
    Scaling, Unattributed, check_peak, measure, measure_async, try_measure, try_measure_async,
};
#[cfg(feature = "rayon")]
pub use assertion::{measure_in_pool, try_measure_in_pool};
pub use device::IntoDevice;
#[cfg(all(feature = "preload", target_os = "linux"))]
#[doc(hidden)]
pub use errno::keep_errno;
pub use error::Error;
#[cfg(feature = "tracing")]
pub use future::{FutureExt, ScopedFuture};
pub use hook::Alloc;
/// Functions with which the preload library reports the calls of C's allocator that it interposes.
#[cfg(all(feature = "preload", target_os = "linux", target_env = "gnu"))]
#[doc(hidden)]
pub use hook::malloc;
/// Functions with which the preload library reports the calls of `mmap` and the like that it interposes.
#[cfg(all(feature = "preload", target_os = "linux", target_env = "gnu"))]
#[doc(hidden)]
pub use hook::mappings;
#[cfg(feature = "tracing")]
pub use layer::{SpanLayer, layer};
use memtrace_core::units;
#[doc(inline)]
pub use memtrace_core::{DeviceView, Recording, analysis, attribute, export, report, snapshot};
pub use name::{Address, name, name_as, name_on};
#[doc(hidden)]
pub use record::unwind::take_stack;
/// The tables that NVTX and its tools exchange.
#[cfg(any(all(feature = "nvtx", unix), feature = "preload"))]
#[doc(hidden)]
pub use scope::nvtx_tables;
/// Functions with which the preload library reports the ranges that it gets from NVTX.
#[cfg(feature = "preload")]
#[doc(hidden)]
pub use scope::range;
pub use scope::{Context, ScopeGuard, module, scope, scope_guard};
pub use session::{
    Builder, IntoBytes, Operators, RenderedReport, Session, Signal, Snapshot, builder, init, is_recording,
    on_cuda_start, open, output_dir, read_operators, reset_peak, start, stats, trace_handler,
};
#[cfg(feature = "preload")]
#[doc(hidden)]
pub use session::{end_with_threads, tell};
#[doc(inline)]
pub use snapshot::{
    Action, Category, Device, Enabled, MemoryStats, Rules, Settings, SnapshotData, StackContext, StackKind, Stat,
};
#[doc(inline)]
pub use units::{Bytes, parse_bytes};
