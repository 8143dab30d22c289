//! The state of the host's memory, for GPUs that use this memory as their own. The session reads the state,
//! because hooks must not open files (invariant 19).

use std::sync::OnceLock;

use memtrace_core::snapshot::UnifiedMemory;

use crate::errno::KeepErrno;
use crate::record::guard;

/// Set by the first call of [`read_by`]. Later calls change nothing.
static READER: OnceLock<fn() -> UnifiedMemory> = OnceLock::new();

pub(crate) fn read_by(reader: fn() -> UnifiedMemory) {
    let _ = READER.set(reader);
}

/// The current state of the host's memory. Nothing is known before the first session.
pub(crate) fn now() -> UnifiedMemory {
    let (_own, _errno) = (guard::own_work(), KeepErrno::new());
    READER.get().map_or_else(UnifiedMemory::default, |read| read())
}
