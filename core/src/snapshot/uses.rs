//! Uses of blocks: which GPU operation used a block first and last. memtrace finds uses from the arguments of launches,
//! copies and fills, and records them on request ([`Settings::uses`](super::Settings::uses)).

use std::num::NonZeroU64;

use super::{DeviceSnapshot, StackId};

/// Index of the name of a kernel or driver function in [`GpuWork::kernels`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelId(#[doc(hidden)] pub u32);

/// A use of a block by a GPU operation: a kernel, a copy, a fill, or a graph launch with any of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockUse {
    /// Number of the operation, from 1, over all devices, in the order in which the host submitted them.
    pub operation: u64,
    /// Nanoseconds since the recording began.
    pub time_ns: u64,
    /// Position of the device's last alloc before the use.
    pub after_alloc: u64,
    /// Number of the device's blocks freed between that alloc and the use.
    pub frees_after: u64,
    /// The stack that submitted the operation; kept if the operation used a block of at least 1 MiB.
    pub stack: StackId,
    /// The kernel, or the driver function of a copy or fill.
    pub kernel: KernelId,
    /// CUDA stream, numbered as in [`Block::stream`](super::Block::stream); kept together with the stack, otherwise 0.
    pub stream: u32,
}

/// The time between two uses of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleTime {
    /// Number of operations between the two uses.
    pub operations: u64,
    /// Time of the earlier use.
    pub from_ns: u64,
    /// Time of the later use.
    pub to_ns: u64,
    /// Position of the device's last alloc before the earlier use.
    pub from_alloc: u64,
    /// The same for the later use.
    pub to_alloc: u64,
}

/// A time between two uses of a large block, in which nothing used it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockIdle {
    /// The block's number, as in [`BlockUses::seq`].
    pub seq: NonZeroU64,
    /// The time between the two uses.
    pub time: IdleTime,
}

impl BlockIdle {
    /// The fewest operations between two uses whose time is kept as a [`BlockIdle`].
    pub const LEAST_OPERATIONS: u64 = 16;
    /// The smallest block, in bytes, that has a [`BlockIdle`]. Of smaller blocks, only [`BlockUses::idle`] is kept.
    pub const LEAST_SIZE: u64 = 1 << 20;
}

/// Two copies or fills wrote to a block: the second overwrote all bytes of the first, and nothing read the block in
/// between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadWrite {
    /// Bytes of the first write.
    pub bytes: u64,
    /// Driver function of the first write.
    pub first: KernelId,
    /// Driver function of the second.
    pub second: KernelId,
    /// Stack of the second write, as in [`BlockUse::stack`].
    pub stack: StackId,
}

/// What a block was computed from: the other blocks, in use before, that operations used together with this block. At
/// most this block's first six operations count, and only those before the device's next alloc. The operands are stored
/// as differences of block numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operands([i32; Self::MOST]);

/// Value of the first element if the operands are unknown.
const UNKNOWN: i32 = i32::MIN;

impl Operands {
    /// The most operands that are kept. If a block has more, its operands are unknown.
    pub const MOST: usize = 6;

    /// Adds an operand of a block. If the block has too many operands, or if the operand's number is too far from the
    /// block's, all operands become unknown.
    pub fn add(&mut self, block: NonZeroU64, operand: NonZeroU64) {
        let distance = block.get().wrapping_sub(operand.get()).cast_signed();
        let kept = i32::try_from(distance).ok().filter(|distance| *distance != UNKNOWN);
        if distance == 0 || !self.are_known() || kept.is_some_and(|kept| self.0.contains(&kept)) {
            return;
        }
        match self.0.iter_mut().find(|place| **place == 0).zip(kept) {
            Some((place, kept)) => *place = kept,
            None => self.0[0] = UNKNOWN,
        }
    }

    /// Are the operands known?
    pub fn are_known(self) -> bool {
        self.0[0] != UNKNOWN
    }

    /// The operands as a capture stores them: the block's number minus the operand's.
    pub(crate) fn distances(self) -> impl Iterator<Item = i32> {
        self.0.into_iter().take_while(|distance| *distance != 0)
    }

    /// Operands from the numbers that a capture stores; `None` if there are too many.
    pub(crate) fn of_distances(kept: &[i32]) -> Option<Self> {
        let mut distances = [0; Self::MOST];
        distances.get_mut(..kept.len())?.copy_from_slice(kept);
        Some(Self(distances))
    }

    /// The numbers of the operands, given that of the block, in the order of the operation's arguments; `None` if they
    /// are unknown.
    pub fn of(self, block: NonZeroU64) -> Option<impl Iterator<Item = NonZeroU64>> {
        let number = move |distance: i32| NonZeroU64::new(block.get().checked_add_signed(-i64::from(distance))?);
        self.are_known().then(|| self.distances().filter_map(number))
    }
}

/// The uses of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockUses {
    /// The block's number: its [`seq`](super::Block::seq), and the [`alloc_seq`](super::Record::alloc_seq) of its records.
    pub seq: NonZeroU64,
    /// Number of operations before its allocation.
    pub allocated_at: u64,
    /// Number of operations before its free; `None` while the block is live.
    pub freed_at: Option<u64>,
    /// Operations that used it.
    pub count: u64,
    /// Operations that are known to only read it: copies from it, and kernels whose parameter is `const`.
    pub reads: u64,
    /// Operations that are known to only write it: copies to it, and fills.
    pub writes: u64,
    /// The first use.
    pub first: Option<BlockUse>,
    /// The blocks that it was computed from.
    pub operands: Operands,
    /// The last use.
    pub last: Option<BlockUse>,
    /// The longest time between two uses without an opaque operation in between.
    pub idle: Option<IdleTime>,
    /// Number of the last opaque operation during its lifetime, 0 for none. An operation is opaque if its arguments are
    /// unknown, so that it may have used any block.
    pub last_opaque: u64,
    /// An opaque operation came before the first use.
    pub opaque_first: bool,
    /// True if its address was stored where memtrace does not follow it, so that any operation may use the block.
    pub escaped: bool,
    /// The first dead write.
    pub dead_write: Option<DeadWrite>,
}

impl BlockUses {
    /// A live block that nothing has used yet. `allocated_at` is the number of operations before its allocation.
    pub fn new(seq: NonZeroU64, allocated_at: u64) -> Self {
        Self {
            seq,
            allocated_at,
            freed_at: None,
            count: 0,
            reads: 0,
            writes: 0,
            first: None,
            operands: Operands::default(),
            last: None,
            idle: None,
            last_opaque: 0,
            opaque_first: false,
            escaped: false,
            dead_write: None,
        }
    }

    /// The last use, if no later operation can have used the block.
    pub fn known_last(&self) -> Option<&BlockUse> {
        self.last.as_ref().filter(|last| !self.escaped && self.last_opaque <= last.operation)
    }

    /// The first use, if no earlier operation can have used the block.
    pub fn known_first(&self) -> Option<&BlockUse> {
        self.first.as_ref().filter(|_| !self.escaped && !self.opaque_first)
    }

    /// Is it certain that the block was never used?
    pub fn is_unused(&self) -> bool {
        self.count == 0 && !self.escaped && self.last_opaque == 0
    }
}

/// The GPU operations of a recording, over all devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuWork {
    /// Names of kernels, and of driver functions that copy and fill.
    pub kernels: Vec<String>,
    /// Counts of operations.
    pub totals: GpuTotals,
    /// Opaque operations by kernel.
    pub opaque: Vec<(KernelId, u64)>,
    /// The local memory of launched kernels that need any.
    pub local: Vec<LocalMemory>,
}

/// The local memory of a kernel: registers that are spilled, arrays, the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocalMemory {
    /// The kernel.
    pub kernel: KernelId,
    /// Bytes that each thread needs (`CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES`).
    pub bytes: u64,
    /// The stack that launched it first, if a thread needs more than a context's default of 1 KiB.
    pub stack: StackId,
}

/// Counts of GPU operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuTotals {
    /// All operations.
    pub operations: u64,
    /// Kernels launched, including those of graphs.
    pub launches: u64,
    /// Kernels whose argument layout is known.
    pub laid_out: u64,
    /// Copies, including those of graphs.
    pub copies: u64,
    /// Fills, including those of graphs.
    pub fills: u64,
    /// Graphs launched.
    pub graphs: u64,
    /// Number of the last opaque operation, 0 for none.
    pub last_opaque: u64,
    /// Freed blocks whose uses are lost, because the uses of newer blocks overwrote them before they were read.
    pub lost: u64,
}

impl GpuWork {
    /// The name of a kernel or driver function.
    pub fn kernel(&self, id: KernelId) -> &str {
        self.kernels.get(id.0 as usize).map_or("", String::as_str)
    }

    /// The launched kernel that needs the most local memory for each thread.
    pub fn most_local(&self) -> Option<LocalMemory> {
        self.local.iter().copied().max_by_key(|local| (local.bytes, std::cmp::Reverse(local.kernel)))
    }

    /// Opaque operations.
    pub fn opaque_operations(&self) -> u64 {
        self.opaque.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

impl DeviceSnapshot {
    /// The uses of the block with this number ([`Block::seq`](super::Block::seq)); `None` if they were not recorded.
    pub fn uses_of(&self, seq: Option<NonZeroU64>) -> Option<&BlockUses> {
        let at = self.uses.binary_search_by_key(&seq?, |uses| uses.seq).ok()?;
        self.uses.get(at)
    }

    /// The times between two uses of a block without an opaque operation in between, in order: those in
    /// [`idle`](Self::idle), which has only large blocks, or else only the block's longest time.
    pub fn idle_of(&self, uses: &BlockUses) -> impl Iterator<Item = IdleTime> {
        let from = self.idle.partition_point(|idle| idle.seq < uses.seq);
        let all = self.idle.get(from..).unwrap_or_default().iter().take_while(|idle| idle.seq == uses.seq);
        let only = uses.idle.filter(|_| all.clone().next().is_none());
        all.map(|idle| idle.time).chain(only)
    }
}
