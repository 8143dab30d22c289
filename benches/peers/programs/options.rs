//! What `--record` says to memtrace.

use memtrace::{Builder, Enabled, StackContext};

/// `off`, `counters`, `sampled` or the size from which on blocks are recorded.
pub(crate) fn options(record: &str) -> Option<Builder> {
    match record {
        "off" => None,
        "counters" => Some(memtrace::builder().context(StackContext::None).enabled(Enabled::State)),
        // As jemalloc's default.
        "sampled" => Some(memtrace::builder().sample_interval("512 KiB")),
        size => Some(memtrace::builder().min_size(size)),
    }
}
