//! The recorder, which runs inside the watched program on the allocating thread: takes stacks, interns them, keeps one
//! ledger per device. Nothing here panics, formats text, reads files or resolves symbols.

pub(crate) mod answer;
mod clock;
mod contexts;
pub(crate) mod device_memory;
pub(crate) mod event_site;
pub(crate) mod fork;
pub(crate) mod gates;
pub(crate) mod guard;
pub(crate) mod heap;
#[cfg_attr(not(all(target_os = "linux", target_env = "gnu", not(miri))), path = "kept_elsewhere.rs")]
pub(crate) mod kept;
pub(crate) mod ledger;
pub(crate) mod loader;
pub(crate) mod lock;
pub(crate) mod mappings;
pub(crate) mod measure;
pub(crate) mod memory;
pub(crate) mod naming;
pub(crate) mod own;
#[cfg(all(feature = "preload", target_os = "linux", target_env = "gnu"))]
pub(crate) mod own_heap;
pub(crate) mod own_pages;
pub(crate) mod pages;
mod prefetch;
pub(crate) mod recorder;
#[cfg(test)]
pub(crate) mod scarce;
mod stacks;
pub(crate) mod thread;
mod thread_end;
pub(crate) mod thread_name;
pub(crate) mod ticks;
pub(crate) mod untraced;
pub(crate) mod unwind;
pub(crate) mod uses;

pub(crate) use event_site::EventSite;
#[cfg(feature = "candle")]
pub(crate) use ledger::graph_nodes::HandedOverNode;
pub(crate) use ledger::names::BlockLabel;
pub(crate) use ledger::sampling::set_sample_seed;
#[cfg(feature = "metrics")]
pub(crate) use ledger::windows::ScopeBytes;
pub(crate) use ledger::{Checkpoint, Cursor, LogPart};
pub(crate) use own::{Leaves, own};
pub(crate) use recorder::DeviceCopy;

/// All contexts (paths of scopes) of this process.
pub(crate) static CONTEXTS: contexts::ContextTable = contexts::ContextTable::new();
pub(crate) static STACKS: stacks::StackTable = stacks::StackTable::new();
