//! CUDA driver hooks: they cover every call of `libcuda.so.1` that allocates or frees memory, from any caller.
//!
//! ```text
//!    candle (imports) ─┐    cudarc (dlsym) ─┐    NVIDIA's libraries (cuGetProcAddress) ─┐
//!                      ▼                    ▼                                           ▼
//!    hook::interpose   patch: imports of every object · dlsym: look-ups by name         │
//!                      └──────────────► hook::cuda::calls ◄─────────────────────────────┘
//!                                         │  alloc: the driver first, then on_alloc
//!                                         │  free:  before_free, the driver, undone if it refuses
//!                                         ▼
//!    record::device_memory   finds the device's ledger, or creates it with the device's first block
//! ```
//!
//! A constructor puts the hooks in place before `main`, because cudarc keeps the addresses of its first look-ups.
//! Without a recording each hook costs two relaxed loads, unless [`attention`] has a reason to examine calls anyway (a
//! stream capture, imported memory, memory that the launch of a graph left allocated). In a process that never loads
//! CUDA, only the imports of `dlsym` and `pthread_create` are patched. With `MEMTRACE=0` nothing is patched.
//!
//! Files import each other only in one direction, from top to bottom:
//!
//! | layer | files | |
//! |---|---|---|
//! | start | [`constructor`], [`init`] | before `main`: hands the hooks to `interpose`; at `cuInit`: runs a callback |
//! | look-up | [`lookup`] | which hook replaces which driver function |
//! | hooks | [`calls`], [`contexts`] | one row for each driver function; contexts that end |
//! | uses | [`uses`] | launches, copies and fills, and the blocks that they use |
//! | routes | [`events`], [`capture`], [`requests`], [`arrays`] | arguments, and where a call goes |
//! | tables | [`graphs`], [`array_mappings`], [`handles`], [`imports`], [`pools`] | objects with a handle, each in a [`table`] |
//! | recorder | [`notify`], [`gone`], [`segments`], [`streams`] | what is reported to the recorder |
//! | queries | [`query`], [`device`] | what the driver knows |
//! | types | [`types`], [`table`], [`unseen`], [`attention`] | kinds of memory, devices, CUDA streams; handle tables with undo; counts of unrecorded calls |
//! | driver | [`functions`], [`pointers`], [`driver`] | driver functions that memtrace calls; the program's pointers; addresses |
//!
//! Rules for every file:
//!
//! - The driver's result, `errno` and `dlerror` reach the program unchanged.
//! - Nothing panics, prints, or allocates from the watched allocator.
//! - No lock of memtrace is held while foreign code runs.
//! - All objects are searched as rarely as possible. A search takes the loader's lock and can deadlock: a thread may
//!   hold that lock while it waits for a thread that looks up a driver function.

mod array_mappings;
mod arrays;
mod attention;
mod calls;
mod capture;
mod constructor;
mod contexts;
mod device;
mod driver;
mod events;
mod functions;
mod gone;
mod graphs;
mod handles;
mod imports;
mod init;
mod lookup;
mod notify;
mod pointers;
mod pools;
mod query;
mod requests;
mod segments;
mod streams;
mod table;
mod types;
mod unseen;
mod uses;

use crate::hook::interpose::{dlsym, patch};

pub(crate) use graphs::executable_graphs;
pub(crate) use init::on_cuda_start;
use memtrace_core::snapshot::{CudaHooks, CudaState};
pub(crate) use query::{driver, used_pools};

/// Patches imports of objects that were loaded since the last time.
pub(crate) fn refresh() {
    if constructor::has_hooks() {
        patch::patch_all();
    }
}

/// Asks the driver how much memory its pools have released unnoticed, for instance because another process needed
/// memory.
pub(crate) fn settle() {
    segments::look();
}

/// Whether the driver is loaded and this copy has the hooks.
pub(crate) fn is_loaded() -> bool {
    constructor::state() == CudaState::Active && driver::is_loaded()
}

/// Whether the driver is loaded and another copy of memtrace has the hooks.
pub(crate) fn is_elsewhere() -> bool {
    constructor::state() == CudaState::AnotherCopy && driver::is_loaded()
}

/// The state of the hooks, and counts of what they cover.
pub(crate) fn coverage() -> CudaHooks {
    let state = match constructor::state() {
        CudaState::Active if !driver::is_loaded() => CudaState::NotLoaded,
        CudaState::Active if driver::is_simulated() => CudaState::Simulated,
        state => state,
    };
    let (imports, refused_imports) = patch::counts();
    let looked_up = dlsym::answered();
    CudaHooks { state, imports, refused_imports, looked_up, unseen_calls: unseen::calls() }
}
