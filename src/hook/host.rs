//! The host's memory, for GPUs that use it as their own. The session reads it, because hooks must not open files
//! (invariant 19).

use std::sync::OnceLock;

use memtrace_core::snapshot::UnifiedMemory;

use crate::errno::KeepErrno;
use crate::record::guard;

/// The first registration wins.
static READER: OnceLock<fn() -> UnifiedMemory> = OnceLock::new();

pub(crate) fn read_by(reader: fn() -> UnifiedMemory) {
    let _ = READER.set(reader);
}

/// The current state of the host's memory. Nothing is known before the first session.
pub(crate) fn now() -> UnifiedMemory {
    let (_own, _errno) = (guard::own_work(), KeepErrno::new());
    READER.get().map_or_else(UnifiedMemory::default, |read| read())
}
