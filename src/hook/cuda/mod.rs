//! CUDA memory, at the boundary of the driver: every call of `libcuda.so.1` that allocates or frees,
//! whoever makes it.
//!
//! Programs reach the driver through their imports (candle links it), through `dlsym` (cudarc's dynamic
//! loading) or through `cuGetProcAddress` (NVIDIA's own libraries). All three are led past functions of
//! ours, which call the driver and tell the recorder what came of it:
//!
//! * [`start`] does so before `main`, unless it is not wanted, through [`interpose`](super::interpose),
//! * [`started`] calls what waits for the driver to be started,
//! * [`lookup`] says which of our functions stands for which of the driver's,
//! * [`calls`] are those functions, [`requests`] and [`arrays`] read their arguments, through [`pointers`]; [`driver`] knows
//!   the real ones, [`functions`] are those that are called for our own ends,
//! * [`events`] says where a call and its result go, [`tell`] tells the recorder, in the [`words`] that all of these share,
//!   [`place`] says where that is, [`bulk`] what is freed without being named; [`streams`] numbers streams, [`capture`] knows
//!   which are captured into graphs, [`unseen`] counts what is not recorded,
//! * [`graphs`] enters what launched graphs allocate and free, [`handles`] what has a handle and no address, [`imports`] what
//!   other processes have, [`pools`] knows the program's own pools, each in a [`table`]; [`segments`] what the driver reserved,
//! * [`query`] asks the driver what it says itself.
//!
//! The hooks are put in place before `main`, because cudarc keeps the addresses that it looked up
//! first. While nothing is recorded each costs two relaxed loads besides the call, unless there is a reason for
//! [`attention`]. A process that never
//! loads CUDA has its imports of `dlsym` changed and nothing else; with `MEMTRACE=0` not even that.
//!
//! Rules for everything here: the driver's answer is passed on as it is, and so are `errno` and what
//! `dlerror` says; nothing panics, allocates from the watched allocator, or prints. No lock of ours is held while
//! foreign code runs. The loader's is taken for a look through all objects, as rarely as can be: a thread
//! that holds it and waits for one that looks up a function of the driver would wait for ever.

mod arrays;
mod attention;
mod bulk;
mod calls;
mod capture;
mod driver;
mod events;
mod functions;
mod graphs;
mod handles;
mod imports;
mod lookup;
mod place;
mod pointers;
mod pools;
mod query;
mod requests;
mod segments;
mod start;
mod started;
mod streams;
mod table;
mod tell;
mod unseen;
mod words;

use crate::hook::interpose::{dlsym, patch};
use crate::snapshot::{CudaHooks, CudaState};

pub(crate) use query::{memory, pool, used_pools};
pub(crate) use started::on_cuda_start;

/// Looks through objects that were loaded since the last time: a hook that was missed is put in place.
pub(crate) fn refresh() {
    if start::has_hooks() {
        patch::patch_all();
    }
}

/// Looks at what pools have given back unnoticed: other processes' needs may take it.
pub(crate) fn settle() {
    segments::look();
}

/// Is the driver there, with hooks in place?
pub(crate) fn is_loaded() -> bool {
    start::state() == CudaState::Active && driver::is_loaded()
}

/// Is the driver there, and another copy of memtrace has the hooks?
pub(crate) fn is_elsewhere() -> bool {
    start::state() == CudaState::AnotherCopy && driver::is_loaded()
}

/// What the hooks are in place for.
pub(crate) fn coverage() -> CudaHooks {
    let state = match start::state() {
        CudaState::Active if !driver::is_loaded() => CudaState::NotLoaded,
        CudaState::Active if driver::is_simulated() => CudaState::Simulated,
        state => state,
    };
    let (imports, refused_imports) = patch::counts();
    let looked_up = dlsym::answered();
    CudaHooks { state, imports, refused_imports, looked_up, unseen_calls: unseen::calls() }
}
