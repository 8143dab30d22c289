//! Counters in the words of `torch.cuda.memory_stats`.

/// One quantity over time, as `torch.cuda.memory_stats` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Its value now.
    pub current: u64,
    /// Its largest value since the recording began or since `reset_peak`.
    pub peak: u64,
    /// The sum of all increases.
    pub allocated: u64,
    /// The sum of all decreases.
    pub freed: u64,
}

/// What was counted of the heap beside a sample: every byte, but not by whom. In blocks of at least the recording's
/// `min_size`. Peak and current bytes of the device are these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Bytes live now.
    pub now: u64,
    /// Bytes live at the peak.
    pub at_peak: u64,
    /// Bytes live when the recording began in blocks of which a sample is taken since: they are in no sample.
    pub before: u64,
}

/// The counters of a device.
///
/// `allocated = active`: the bytes that the program asked for. On the CPU device in blocks of at least the
/// recording's `min_size`, those from before the recording included, and reserved is the same; what is smaller is in
/// `below_threshold`. On CUDA devices in recorded blocks and in what the driver's pool had handed out before;
/// reserved are the segments that the driver tells of (those of recorded blocks), and blocks outside of them. What
/// the driver says of its pool as a whole is in [`DeviceSnapshot::pool`](crate::snapshot::DeviceSnapshot::pool).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Bytes in blocks that the program holds (`allocated_bytes.all`).
    pub allocated_bytes: Stat,
    /// Bytes in blocks that are held or wait for a stream (`active_bytes.all`).
    pub active_bytes: Stat,
    /// Bytes that the allocator took from the driver (`reserved_bytes.all`).
    pub reserved_bytes: Stat,
    /// Number of blocks allocated since the recording began (`allocation.all`); `current` counts
    /// those still live.
    pub allocations: Stat,
    /// Allocations that were refused for lack of memory (`num_ooms`).
    pub num_ooms: u64,
    /// How often a thread asked again for as many bytes right after it was refused them
    /// (`num_alloc_retries`).
    pub num_alloc_retries: u64,
    /// CPU only: live bytes in blocks smaller than the recording's threshold.
    pub below_threshold: u64,
    /// CPU only: what was counted, if only a sample of the small blocks is recorded. Of the other counters those of bytes
    /// that are live, and were live at most, are counted as well; what was allocated and freed, and numbers of
    /// blocks, are estimates then.
    pub counted: Option<Counted>,
}

impl MemoryStats {
    /// Bytes live now in blocks of every size; counted, so exact also where other figures are estimates.
    #[inline]
    pub fn live(&self) -> u64 {
        self.allocated_bytes.current + self.below_threshold
    }
}
