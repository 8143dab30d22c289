//! Recording settings, named after `torch.cuda.memory._record_memory_history`.

use std::num::NonZeroU64;

/// Which parts of a recording are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enabled {
    /// Nothing: the session's snapshot is empty.
    Off,
    /// Live blocks, counters and the peak, without the log.
    State,
    /// The log as well.
    #[default]
    All,
}

/// For which records stacks are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StackContext {
    /// None; only counters and addresses are kept.
    None,
    /// For live blocks and the blocks of the peak, but not for the log.
    State,
    /// For allocations, also in the log. This is the default; PyTorch's default is `All`.
    #[default]
    Alloc,
    /// For frees as well.
    All,
}

/// Which frames of a stack are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackKind {
    /// Only Rust frames (PyTorch's "python").
    #[default]
    Rust,
    /// Also frames of C libraries and of the system.
    All,
}

/// Kinds of log entries, named after PyTorch's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Memory was allocated.
    Alloc,
    /// The program freed memory.
    FreeRequested,
    /// The freed memory can be used again.
    FreeCompleted,
}

/// The settings of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How much is recorded.
    pub enabled: Enabled,
    /// For which records stacks are kept.
    pub context: StackContext,
    /// Which frames are kept.
    pub stacks: StackKind,
    /// Capacity of the log, a ring buffer, in records.
    pub max_entries: usize,
    /// CPU: the threshold, a power of two; smaller blocks are counted, not recorded. 0 records every block.
    pub min_size: u64,
    /// CPU: the sampling interval, a power of two of at most 1 GiB. Blocks smaller than the interval are sampled, on
    /// average with one sampling point per interval of allocated bytes. `None` records every block.
    pub sample_interval: Option<NonZeroU64>,
    /// Maximum number of frames kept of a stack, half of them the innermost, half the outermost.
    pub stack_depth: usize,
    /// The only device to record; `None` records all devices.
    pub device: Option<super::Device>,
    /// Log entries that are left out. Counters and the peak still include them.
    pub skip_actions: Vec<Action>,
    /// CUDA devices: whether uses of blocks are recorded, see [`BlockUses`](super::BlockUses).
    pub uses: bool,
    /// Attribution rules; they may be changed after the recording.
    pub rules: super::Rules,
}

/// 1 KiB. In ResNet-50 training on candle's CPU device, 71 % of the allocations are smaller; together they hold well
/// under 0.1 % of the peak.
pub(crate) const DEFAULT_MIN_SIZE: u64 = 1024;
/// About a million records: 32 MiB for a full log, 40 MiB for CUDA devices or with the stacks of frees.
pub(crate) const DEFAULT_MAX_ENTRIES: usize = 1 << 20;
/// candle's stacks are 16 to 34 calls deep; only its recursive graph walk is deeper.
pub const DEFAULT_STACK_DEPTH: usize = 128;

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: Enabled::default(),
            context: StackContext::default(),
            stacks: StackKind::default(),
            max_entries: DEFAULT_MAX_ENTRIES,
            min_size: DEFAULT_MIN_SIZE,
            sample_interval: None,
            stack_depth: DEFAULT_STACK_DEPTH,
            device: None,
            skip_actions: Vec::new(),
            uses: false,
            rules: super::Rules::default(),
        }
    }
}

impl Settings {
    /// The sampling of a device's blocks; only the CPU's blocks are ever sampled.
    pub fn sampling(&self, device: super::Device) -> super::Sampling {
        let interval = self.sample_interval.map_or(0, NonZeroU64::get);
        let is_sampled = device == super::Device::Cpu && interval > self.min_size;
        super::Sampling::every(if is_sampled { interval } else { 0 })
    }
}
