//! The recorder, which runs inside the watched program on the allocating thread: takes stacks, interns them, keeps one
//! ledger per device. Nothing here panics, formats text, reads files or resolves symbols.

mod calls;
mod census;
mod clock;
mod contexts;
pub(crate) mod device_memory;
mod flow;
pub(crate) mod fork;
pub(crate) mod gates;
pub(crate) mod guard;
pub(crate) mod heap;
pub(crate) mod here;
mod ledger;
pub(crate) mod lineage;
mod live;
pub(crate) mod loader;
pub(crate) mod lock;
mod log;
pub(crate) mod measure;
pub(crate) mod memory;
mod names;
pub(crate) mod naming;
pub(crate) mod own;
mod packed;
pub(crate) mod pages;
mod peak;
mod prefetch;
pub(crate) mod recorder;
mod ring;
mod sampling;
pub(crate) mod segments;
mod site;
mod stacks;
pub(crate) mod thread;
pub(crate) mod thread_name;
pub(crate) mod ticks;
pub(crate) mod untraced;
pub(crate) mod unwind;
pub(crate) mod uses;
mod windows;

pub(crate) use ledger::{Checkpoint, Cursor, LogPart};
pub(crate) use names::BlockLabel;
pub(crate) use own::{Leaves, own};
pub(crate) use recorder::DeviceCopy;
pub(crate) use sampling::set_sample_seed;
pub(crate) use site::EventSite;
#[cfg(feature = "metrics")]
pub(crate) use windows::ScopeBytes;

/// All contexts (paths of scopes) of this process.
pub(crate) static CONTEXTS: contexts::ContextTable = contexts::ContextTable::new();
/// All stacks of this process.
pub(crate) static STACKS: stacks::StackTable = stacks::StackTable::new();
