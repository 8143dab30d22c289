//! A simulated NVIDIA driver for tests of programs that use CUDA memory, on machines without a GPU.
//!
//! The package's dynamic library stands in for `libcuda.so.1`: installed under that name (see
//! `scripts/with-simulated-gpu` in memtrace's repository), it lets programs on candle or cudarc run to
//! their end without being changed. Memory behaves like a GPU's; kernels do nothing.
//!
//! # What is simulated
//! Device memory (stream-ordered pools, classic, managed, virtual, arrays), pinned host memory, copies and fills, contexts,
//! streams, events, modules, libraries, kernel launches that do nothing, graphs and captures, in which allocations and
//! frees are the nodes that do something, memory of other processes and libraries (IPC handles, files,
//! pointers of pools), `cuGetProcAddress`. Every other function of
//! the driver exists, says so once on stderr when it is called, and answers 801 (not supported).
//!
//! # How memory behaves
//! * It takes no memory of the host until it is touched, and none after it was freed: an 80 GiB GPU can be
//!   simulated on any machine. The capacity is enforced.
//! * New memory reads as zero, unless `MEMTRACE_CUSIM_FILL` says otherwise.
//! * A pool grows in steps of 32 MiB (of 2 MiB where there is no room for more, which is assumed), and
//!   gives what it does not use back at a synchronise, down to its release threshold. Blocks are multiples
//!   of 512 bytes (assumed). `cuMemAlloc` takes 2 MiB at a time.
//! * An allocation node of a graph has an address of its own. A launch runs the nodes in the order in which
//!   they were added and takes memory then (assumed), 2 MiB at a time, from what the device keeps for graphs.
//!   That is given back by `cuDeviceGraphMemTrim`, or where the device has no other memory left.
//! * Virtual memory (`cuMemCreate`) comes in multiples of 2 MiB. Each mapping of it has bytes of its own, which
//!   are zero when it is mapped.
//! * Arrays take what their elements take, tightly packed (a GPU takes more). They hold nothing.
//! * Memory of others has the size that its handle tells, takes nothing of the device and reads as zero.
//! * All work is done when the call that asks for it returns. So a block that was freed on a stream
//!   can be used at once on any other.
//! * What kernels, cuBLAS and cuRAND would have written is not there: results are zeros.
//!
//! # Variables
//! | `MEMTRACE_CUSIM_…` | default | says |
//! |---|---|---|
//! | `DEVICES` | `1` | how many GPUs, 0 to 16 |
//! | `NAME` | `memtrace simulated GPU` | their name |
//! | `CAPABILITY` | `9.0` | compute capability, also as `90` |
//! | `MEMORY` | `80GiB` | memory of each |
//! | `OTHERS` | `0` | memory of each that other processes have; or a list, one for each: `1GiB,0` |
//! | `CONTEXT` | `0` | memory that each live context takes; one that does not fit is refused |
//! | `MODULE` | `0` | memory that each module or library takes until it is unloaded or its context ends |
//! | `POOLS` | `1` | `0`: no stream-ordered memory |
//! | `FILL` | `zeros` | what new memory holds: `zeros`, `ones` (0xFF), `random` (the same in each run) |
//! | `FAULTS` | | what goes wrong, see [`faults`] |
//! | `LOG` | | a file that gets one line for each allocation and free, see [`history`] |
//! | `CUBLAS_WORKSPACE` | `0` | bytes that each cuBLAS handle allocates, as the real one does |
//!
//! A value that makes no sense ends the program with a message.
//!
//! # In code
//! [`Machine`] is the simulator as a value, for tests that need no driver.
//!
//! ```
//! use memtrace_cusim::{Config, Machine, Request, history::Kind};
//!
//! let mut machine = Machine::new(Config { memory: 64 << 20, ..Config::default() }).unwrap();
//! let request = Request { kind: Kind::Pool, size: 1000, ..Request::default() };
//! let address = machine.allocate(request).unwrap();
//! assert_eq!(machine.counters(0, Kind::Pool).used, 1024);
//! assert_eq!(machine.counters(0, Kind::Pool).reserved, 32 << 20);
//! machine.free(address, 0, 0).unwrap();
//! machine.synchronise(0);
//! assert_eq!(machine.counters(0, Kind::Pool).reserved, 0);
//! ```

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "a driver is called through C and hands out memory")]
#![allow(clippy::cast_possible_truncation, reason = "64-bit targets only: an address, a size and usize are the same")]

pub mod code;
mod config;
mod driver;
pub mod faults;
pub mod history;
mod machine;
mod memory;
mod own;
#[cfg(test)]
#[path = "../../tests/support/random.rs"]
mod random;
mod say;
mod units;

pub use config::{Config, Fill, MAX_DEVICES};
pub use machine::{Machine, Request};
pub use memory::Counters;
pub use units::bytes;
