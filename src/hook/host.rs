//! The host's memory, for GPUs whose memory it is. The session reads it, because hooks open no files (invariant 19).

use std::sync::OnceLock;

use memtrace_core::snapshot::UnifiedMemory;

use crate::errno::KeepErrno;
use crate::record::guard;

/// The first registration wins.
static READER: OnceLock<fn() -> UnifiedMemory> = OnceLock::new();

pub(crate) fn read_by(reader: fn() -> UnifiedMemory) {
    let _ = READER.set(reader);
}

/// The host's memory now; nothing is known of it before the first session.
pub(crate) fn now() -> UnifiedMemory {
    let (_own, _errno) = (guard::own_work(), KeepErrno::new());
    READER.get().map_or_else(UnifiedMemory::default, |read| read())
}
