//! What a recording was asked to keep, in the words of `torch.cuda.memory._record_memory_history`.

use std::num::NonZeroU64;

/// How much is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enabled {
    /// Nothing: the session exists, its snapshot is empty.
    Off,
    /// Live blocks, counters and the peak, without the history of events.
    State,
    /// The history of events as well.
    #[default]
    All,
}

/// Whose stacks are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StackContext {
    /// Nobody's: counters and addresses only.
    None,
    /// Of live blocks and of the blocks at the peak, not in the history.
    State,
    /// Of allocations, in the history too. The default here; PyTorch's is `All`.
    #[default]
    Alloc,
    /// Of frees as well.
    All,
}

/// Which frames of a stack are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StackKind {
    /// Rust frames (what PyTorch calls "python").
    #[default]
    Rust,
    /// Frames of C libraries and of the system too.
    All,
}

/// Log entries, in PyTorch's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Memory was allocated.
    Alloc,
    /// The program gave memory back.
    FreeRequested,
    /// The memory can be used again.
    FreeCompleted,
}

/// What a recording was asked to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How much is recorded.
    pub enabled: Enabled,
    /// Whose stacks are kept.
    pub context: StackContext,
    /// Which frames are kept.
    pub stacks: StackKind,
    /// How many records the log holds; older ones are overwritten.
    pub max_entries: usize,
    /// CPU: smallest block that is recorded, in bytes; a power of two, or 0 for every block.
    pub min_size: u64,
    /// CPU: the sampling interval, a power of two of at most 1 GiB. Blocks smaller than this are sampled, one point per
    /// interval of allocated bytes on average; `None` records every block.
    pub sample_interval: Option<NonZeroU64>,
    /// Most frames that are kept of a stack, half of them innermost, half outermost.
    pub stack_depth: usize,
    /// Only this device is recorded.
    pub device: Option<super::Device>,
    /// Log entries that are left out. Counters and the peak are not affected.
    pub skip_actions: Vec<Action>,
    /// What attribution knows of frameworks; it may be changed afterwards.
    pub rules: super::Rules,
}

/// 1 KiB: in ResNet-50 training on candle's CPU device 71 % of the allocations are smaller, and
/// together they hold well under 0.1 % of the memory at the peak.
pub(crate) const DEFAULT_MIN_SIZE: u64 = 1024;
/// About a million records, 32 MiB once the log is full, 40 MiB for CUDA devices or with the stacks of frees.
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
            rules: super::Rules::default(),
        }
    }
}

impl Settings {
    /// How blocks of a device are chosen: those of devices other than the CPU are all recorded.
    pub fn sampling(&self, device: super::Device) -> super::Sampling {
        let interval = self.sample_interval.map_or(0, NonZeroU64::get);
        let is_sampled = device == super::Device::Cpu && interval > self.min_size;
        super::Sampling::every(if is_sampled { interval } else { 0 })
    }
}
