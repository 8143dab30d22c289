//! What a ledger records, and how.

use memtrace_core::snapshot::Sampling;

use crate::record::untraced;

/// Takes `min_size` and a sampling interval. Returns two sums of bytes outside the ledger: of the blocks whose size
/// is between the two, and of larger blocks.
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
    /// There are blocks below `min_size`, which are counted elsewhere (`untraced`). This is so on the heap only.
    pub(crate) counts_below: bool,
    /// Used under sampling only.
    pub(crate) outside: Option<AskOutside>,
    /// The driver may report segments.
    pub(crate) has_segments: bool,
    /// Records may have a stream or the stack of a free, so they take 40 bytes instead of 32.
    pub(crate) long_records: bool,
    /// The log's address space is reserved at once, because the log will be filled.
    pub(crate) reserved: bool,
}

impl LedgerOptions {
    pub(super) fn below_threshold(&self) -> u64 {
        if self.counts_below { untraced::below(self.min_size) } else { 0 }
    }
}
