//! Simulated NVIDIA driver (`libcuda.so.1`) for tests of programs that use CUDA memory, on machines without a GPU.
//!
//! The package's dynamic library replaces `libcuda.so.1`. When it is installed under that name (see
//! `memtrace-runner --simulate`), unchanged programs that use candle, cudarc or PyTorch run to their end. Memory
//! behaves like a GPU's; kernels do nothing.
//!
//! # What is simulated
//! * device memory: stream-ordered pools, classic, managed and virtual memory, arrays
//! * pinned host memory, copies and fills
//! * contexts, streams, events, modules, libraries, and kernel launches without effect
//! * graphs and stream captures, whose allocation and free nodes have an effect
//! * memory of other processes and libraries: IPC handles, files, pointers of pools
//! * `cuGetProcAddress`
//!
//! Every other function of the driver exists, prints a line to stderr at its first call and returns 801 (not
//! supported).
//!
//! # How memory behaves
//! * Memory takes no host memory until it is touched, and none after it is freed, so any machine can simulate an 80 GiB
//!   GPU. The capacity is enforced. *Assumed* rules were not compared with a GPU.
//! * New memory reads as zero, unless `MEMTRACE_CUSIM_FILL` says otherwise.
//! * A pool grows in steps of 32 MiB (of 2 MiB if there is no room for more; assumed). A synchronization releases the
//!   pool's unused memory, down to its release threshold. Blocks are multiples of 512 bytes (assumed). `cuMemAlloc`
//!   takes 2 MiB at a time.
//! * Pools of host and of managed memory behave like a device's, without a limit (assumed). A stream capture refuses them.
//! * An allocation node of a graph has an address of its own. A launch runs the nodes in the order in which they were
//!   added. The launch takes the memory (assumed), 2 MiB at a time, from the memory that the device reserves for
//!   graphs. `cuDeviceGraphMemTrim` releases that memory, and so does a device that runs out of other memory.
//! * Virtual memory (`cuMemCreate`) comes in multiples of 2 MiB. Each mapping has bytes of its own, zero when it is
//!   mapped.
//! * An array takes the sum of its elements' sizes, tightly packed (a GPU takes more). Arrays have no contents. Memory
//!   is mapped to the tiles of sparse arrays, which have 64 KiB (assumed). The end of an array unmaps its tiles
//!   (assumed).
//! * Memory of other processes has the size that its handle states, takes no memory of the device and reads as zero.
//! * All work is complete when the call that submits it returns. A block that was freed on one stream can be reused at
//!   once on any other.
//! * Kernels, cuBLAS and cuRAND write nothing, so results are zeros. `MEMTRACE_CUSIM_RESULTS` gives other results to
//!   programs that read them. The libraries launch the same kernels as the real ones, but empty.
//!
//! # Integrated GPUs
//! A GPU that uses the host's memory reports this in its attribute 18. There, `cuMemGetInfo` counts as free all memory
//! except what programs hold on the device, and except the page cache. The page cache never causes a refused
//! allocation, because Linux gives it back.
//!
//! Both rules are assumed, based on reports about DGX Spark and Jetson. Another assumption is that the page cache is
//! `Buffers` and `Cached` of `/proc/meminfo` without `Shmem`. What programs hold outside the device, and what Linux
//! keeps for itself, are not subtracted.
//!
//! # Variables
//! | `MEMTRACE_CUSIM_…` | default | meaning |
//! |---|---|---|
//! | `DEVICES` | `1` | number of GPUs, 0 to 16 |
//! | `NAME` | `memtrace simulated GPU` | their name |
//! | `CAPABILITY` | `9.0` | compute capability, also as `90` |
//! | `MEMORY` | `80GiB` | memory of each GPU |
//! | `INTEGRATED` | `0` | `1`: the GPUs are integrated and use the host's memory; `MEMORY` is then the host's by default |
//! | `PAGE_CACHE` | the host's | bytes that an integrated GPU counts as used for the page cache |
//! | `OTHERS` | `0` | memory of each GPU that other processes use; or a list with one size for each: `1GiB,0` |
//! | `CONTEXT` | `0` | memory of each active context; a context that does not fit is refused |
//! | `STACKS` | `0` | `1`: each active context also takes the stacks of all threads that the GPU can run at once; a launch makes them larger if its kernel needs more local memory (`.local` in PTX), but not the launch of a graph; only `cuCtxSetLimit` makes them smaller |
//! | `MODULE` | `0` | memory of each module or library, until it is unloaded or its context ends |
//! | `POOLS` | `1` | `0`: no stream-ordered memory |
//! | `FILL` | `zeros` | contents of new memory: `zeros`, `ones` (0xFF), `random` (the same in each run) |
//! | `RESULTS` | `zeros` | what a copy to the host returns if the memory has only zeros: `zeros`, `floats` (from 0.5 to 1), `integers` (11 to 14) |
//! | `FAULTS` | | injected faults, see [`faults`] |
//! | `LOG` | | a file that gets one line for each allocation and free, see [`history`] |
//! | `CUBLAS_WORKSPACE` | `0` | bytes that each cuBLAS handle allocates, as the real one does |
//!
//! A value that is not valid ends the program with a message.
//!
//! # As a value
//! [`SimMachine`] is the simulator without a driver, for tests.
//!
//! ```
//! use memtrace_cusim::{AllocationRequest, Config, SimMachine, history::BlockKind};
//!
//! let mut machine = SimMachine::new(Config { memory: 64 << 20, ..Config::default() }).unwrap();
//! let request = AllocationRequest { kind: BlockKind::Pool, size: 1000, ..AllocationRequest::default() };
//! let address = machine.allocate(request).unwrap();
//! assert_eq!(machine.counters(0, BlockKind::Pool).used, 1024);
//! assert_eq!(machine.counters(0, BlockKind::Pool).reserved, 32 << 20);
//! machine.free(address, 0, 0).unwrap();
//! machine.synchronise(0);
//! assert_eq!(machine.counters(0, BlockKind::Pool).reserved, 0);
//! ```
//!
//! # Structure
//! `machine` is the simulator as a value, `memory` has its address ranges, segments and pools, and `driver` has the C
//! functions over one machine for the process. `build.rs` reads `symbols/*.txt`. It generates a stub for each function
//! that no source file defines, and the table behind `cuGetProcAddress`. To simulate a further function, write it in a
//! `driver! { … }` block. Memory comes from the kernel (`own`), because the program under test may watch `malloc`. The
//! package knows nothing of memtrace.
//!
//! `libraries/` has stand-ins for cuBLAS, cuBLASLt, cuRAND, NCCL, NVML, NVRTC and the CUDA runtime. They know nothing
//! of the driver's code, and find its functions by name.

#![cfg(target_os = "linux")]
#![expect(unsafe_code, reason = "a driver is called through C and returns raw memory")]
#![allow(clippy::cast_possible_truncation, reason = "64-bit targets only: an address, a size and usize are the same")]

pub mod code;
mod config;
mod driver;
pub mod faults;
pub mod history;
mod machine;
mod meminfo;
mod memory;
mod own;
#[cfg(test)]
#[path = "../../tests/support/random.rs"]
mod random;
mod say;
mod units;

pub use config::{Config, Fill, MAX_DEVICES, Results};
pub use machine::{AllocationRequest, SimMachine};
pub use memory::PoolCounters;
pub use units::bytes;
