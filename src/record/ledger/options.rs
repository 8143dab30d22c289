//! What a ledger records, and how.

use memtrace_core::snapshot::Sampling;

use crate::record::untraced;

/// Takes `min_size` and a sampling interval. Returns the bytes outside the ledger in blocks between the two, and in
/// larger ones.
pub(crate) type AskOutside = fn(u64, u64) -> (u64, u64);

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LedgerOptions {
    /// Capacity of the log; 0 for none.
    pub(crate) max_entries: usize,
    /// Records in the log have stacks, too, not only live blocks.
    pub(crate) stacks_in_log: bool,
    pub(crate) skip_allocs: bool,
    pub(crate) skip_frees: bool,
    /// Size of the smallest recorded block, in bytes. Smaller ones are only counted (`untraced`).
    pub(crate) min_size: u64,
    pub(crate) sampling: Sampling,
    /// Blocks below `min_size` exist and are counted elsewhere. This is so on the heap.
    pub(crate) counts_below: bool,
    /// Used under sampling only.
    pub(crate) outside: Option<AskOutside>,
    /// The driver may report segments.
    pub(crate) has_segments: bool,
    /// Records may have streams, or frees stacks: 40 bytes instead of 32.
    pub(crate) long_records: bool,
    /// The log's address space is reserved at once, because it will be filled.
    pub(crate) reserved: bool,
}

impl LedgerOptions {
    pub(super) fn below_threshold(&self) -> u64 {
        if self.counts_below { untraced::below(self.min_size) } else { 0 }
    }
}
