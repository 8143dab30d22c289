//! memtrace's settings for the value of `--record`.

use memtrace::{Builder, Enabled, StackContext};

/// `off`, `counters`, `sampled`, or the threshold.
pub(crate) fn options(record: &str) -> Option<Builder> {
    match record {
        "off" => None,
        "counters" => Some(memtrace::builder().context(StackContext::None).enabled(Enabled::State)),
        // jemalloc's default interval.
        "sampled" => Some(memtrace::builder().sample_interval("512 KiB")),
        size => Some(memtrace::builder().min_size(size)),
    }
}
