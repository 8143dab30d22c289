//! Uses of blocks: which GPU operation used a block first and last, found from the arguments of launches, copies and
//! fills. Recorded on request ([`Settings::uses`](super::Settings::uses)).

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
    /// Position of the device's last alloc before the use: a free right after the use comes before the next alloc.
    pub after_alloc: u64,
    /// Frees of the device's blocks between that alloc and the use.
    pub frees_after: u64,
    /// The stack that submitted the operation; kept if the operation used a block of at least 1 MiB.
    pub stack: StackId,
    /// The kernel, or the driver function of a copy or fill.
    pub kernel: KernelId,
    /// CUDA stream, numbered as in [`Block::stream`](super::Block::stream); kept together with the stack, otherwise 0.
    pub stream: u32,
}

/// A time between two uses of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IdleTime {
    /// Operations between the two uses.
    pub operations: u64,
    /// Times of the two uses.
    pub from_ns: u64,
    /// The later one.
    pub to_ns: u64,
    /// Position of the device's last alloc before each of them.
    pub from_alloc: u64,
    /// The later one.
    pub to_alloc: u64,
}

/// A time in which nothing used a large block, between two uses of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockIdle {
    /// The block's number, as in [`BlockUses::seq`].
    pub seq: NonZeroU64,
    /// From the one use to the other.
    pub time: IdleTime,
}

impl BlockIdle {
    /// Shorter times are not kept, in operations.
    pub const LEAST_OPERATIONS: u64 = 16;
    /// Of smaller blocks only the longest time is kept, in bytes.
    pub const LEAST_SIZE: u64 = 1 << 20;
}

/// A block was written twice, by copies or fills, and nothing read it in between.
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

/// What a block was made of: the blocks that operations used beside it, from its first use until the device's next alloc, in its
/// first six operations at most. Kept as differences of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operands([i32; Self::MOST]);

/// In the place of the first one: they are not known.
const UNKNOWN: i32 = i32::MIN;

impl Operands {
    /// Of blocks with more, none are kept.
    pub const MOST: usize = 6;

    /// Adds an operand of a block. One that is too many, or has a number too far away, makes all unknown.
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

    /// Are they known?
    pub fn are_known(self) -> bool {
        self.0[0] != UNKNOWN
    }

    /// How they are kept in a capture.
    pub(crate) fn distances(self) -> impl Iterator<Item = i32> {
        self.0.into_iter().take_while(|distance| *distance != 0)
    }

    /// From what a capture kept.
    pub(crate) fn of_distances(kept: &[i32]) -> Option<Self> {
        let mut distances = [0; Self::MOST];
        distances.get_mut(..kept.len())?.copy_from_slice(kept);
        Some(Self(distances))
    }

    /// Their numbers, given that of the block, in the order of the operation's arguments; `None` if they are not known.
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
    /// Operations before its allocation.
    pub allocated_at: u64,
    /// Operations before its free; `None` while it is live.
    pub freed_at: Option<u64>,
    /// Operations that used it.
    pub count: u64,
    /// Those that only read it, as far as known: copies from it, and kernels whose parameter is `const`.
    pub reads: u64,
    /// Those that only wrote it, as far as known: copies to it, and fills.
    pub writes: u64,
    /// The first use.
    pub first: Option<BlockUse>,
    /// What it was made of.
    pub operands: Operands,
    /// The last use.
    pub last: Option<BlockUse>,
    /// The longest time between two uses without an opaque operation in between.
    pub idle: Option<IdleTime>,
    /// Number of the last opaque operation during its lifetime, 0 for none. An operation is opaque if its arguments are
    /// unknown, so it may have used any block.
    pub last_opaque: u64,
    /// An opaque operation came before the first use.
    pub opaque_first: bool,
    /// Its address went where memtrace does not follow it, so any operation may use it.
    pub escaped: bool,
    /// The first dead write.
    pub dead_write: Option<DeadWrite>,
}

impl BlockUses {
    /// A live block that nothing used yet, allocated after so many operations.
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

    /// Was the block never used, with certainty?
    pub fn is_unused(&self) -> bool {
        self.count == 0 && !self.escaped && self.last_opaque == 0
    }
}

/// The GPU operations of a recording, over all devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GpuWork {
    /// Names of kernels, and of driver functions that copy and fill.
    pub kernels: Vec<String>,
    /// The numbers.
    pub totals: GpuTotals,
    /// Opaque operations by kernel.
    pub opaque: Vec<(KernelId, u64)>,
}

/// Numbers of GPU operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuTotals {
    /// All operations.
    pub operations: u64,
    /// Kernels launched, those of graphs included.
    pub launches: u64,
    /// Kernels whose argument layout is known.
    pub laid_out: u64,
    /// Copies, those of graphs included.
    pub copies: u64,
    /// Fills, those of graphs included.
    pub fills: u64,
    /// Graphs launched.
    pub graphs: u64,
    /// Number of the last opaque operation, 0 for none.
    pub last_opaque: u64,
    /// Uses of freed blocks that were overwritten before they were read.
    pub lost: u64,
}

impl GpuWork {
    /// The name of a kernel or driver function.
    pub fn kernel(&self, id: KernelId) -> &str {
        self.kernels.get(id.0 as usize).map_or("", String::as_str)
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

    /// The long times between two uses of a block without an opaque operation in between, in order: of a large block all
    /// that are known, of others the longest.
    pub fn idle_of(&self, uses: &BlockUses) -> impl Iterator<Item = IdleTime> {
        let from = self.idle.partition_point(|idle| idle.seq < uses.seq);
        let all = self.idle.get(from..).unwrap_or_default().iter().take_while(|idle| idle.seq == uses.seq);
        let only = uses.idle.filter(|_| all.clone().next().is_none());
        all.map(|idle| idle.time).chain(only)
    }
}
