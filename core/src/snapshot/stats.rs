//! Counters, named after `torch.cuda.memory_stats`.

/// A quantity over time, with the values of `torch.cuda.memory_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Its value now.
    pub current: u64,
    /// Its high-water mark since the recording began or since `reset_peak`.
    pub peak: u64,
    /// The sum of all increases.
    pub allocated: u64,
    /// The sum of all decreases.
    pub freed: u64,
}

/// Heap bytes in blocks of at least `min_size`. A recording with a sampling interval counts these bytes exactly, and
/// takes the device's current and peak bytes from the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes live now.
    pub now: u64,
    /// Bytes live at the peak.
    pub at_peak: u64,
    /// Bytes live when the recording began, in blocks that are small enough to be sampled. The sample has none of these
    /// blocks.
    pub before: u64,
}

/// The counters of a device.
///
/// `allocated_bytes` and `active_bytes` are equal: the bytes that the program requested. On the CPU they count the
/// blocks of at least `min_size`, including blocks from before the recording; smaller blocks are in `below_threshold`,
/// and `reserved_bytes` equals `allocated_bytes`. On CUDA devices they count the recorded blocks and what the driver's
/// pool had handed out before the recording; `reserved_bytes` counts the segments that the driver reports and the
/// blocks outside of these segments. The pool as a whole is in
/// [`DeviceSnapshot::pool`](crate::snapshot::DeviceSnapshot::pool).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in blocks that the program holds (`allocated_bytes.all`).
    pub allocated_bytes: Stat,
    /// `allocated_bytes`, plus blocks that wait for a CUDA stream (`active_bytes.all`).
    pub active_bytes: Stat,
    /// Bytes that the allocator reserved from the driver (`reserved_bytes.all`).
    pub reserved_bytes: Stat,
    /// Blocks allocated since the recording began (`allocation.all`); `current` counts those still live.
    pub allocations: Stat,
    /// Allocations that were refused for lack of memory (`num_ooms`).
    pub num_ooms: u64,
    /// Refused allocations that their thread repeated right away with the same size (`num_alloc_retries`).
    pub num_alloc_retries: u64,
    /// CPU only: live bytes in blocks smaller than the recording's threshold.
    pub below_threshold: u64,
    /// CPU only: the counted bytes, if small blocks are sampled. Live bytes and their high-water marks come from these
    /// counts. The totals of allocated and freed bytes, and the numbers of blocks, are estimates.
    pub counted: Option<Counted>,
}

impl MemoryStats {
    /// Live bytes in blocks of every size. They are counted, so they are exact even in a sample.
    #[inline]
    pub fn live(&self) -> u64 {
        self.allocated_bytes.current + self.below_threshold
    }
}
