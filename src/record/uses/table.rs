//! The table of uses: blocks by address, and what GPU operations do to them.

use std::hash::BuildHasher;
use std::time::Instant;

use memtrace_core::snapshot::{Block, BlockIdle, BlockUses, Device, GpuTotals, IdleTime, KernelId, MemoryKind};

use super::super::ledger::ring::Ring;
use super::block::{Applied, OperandNumbers, UsedBlock};
use super::index::AddressIndex;
use super::kernels::KernelTable;
use super::touched::{OperationKind, TensorMapWords, Touch, Touched, UseAccess};
use crate::record::clock::Clock;
use crate::record::event_site::EventSite;
use crate::record::memory::{HASHER, OwnMap, OwnVec, System, own_map, try_push};

/// Number of freed blocks whose uses are kept; about 75 MiB.
const MAX_FINISHED: usize = 1 << 18;
/// Number of idle times of large blocks that are kept; about 8 MiB.
const MAX_IDLE: usize = 1 << 17;
/// An operation gets a stack if it uses a block of at least this size.
const LARGE: u64 = 1 << 20;

/// Whether blocks of this kind have their own addresses, which only this process uses.
fn has_known_uses(device: Device, memory: MemoryKind) -> bool {
    matches!(device, Device::Cuda(_)) && matches!(memory, MemoryKind::Pool | MemoryKind::Classic | MemoryKind::Graph)
}

#[derive(Debug)]
pub(crate) struct UseTable {
    index: AddressIndex,
    pub(super) slots: OwnVec<Option<UsedBlock>>,
    vacant: OwnVec<u32>,
    /// Addresses that a block contains, by the block's slot.
    held: OwnMap<u32, OwnVec<u64>>,
    pub(crate) kernels: KernelTable,
    pub(super) finished: Ring<(Device, BlockUses)>,
    pub(super) idle: Ring<(Device, BlockIdle)>,
    /// The last alloc of each device, and the number of frees since.
    positions: OwnVec<(Device, (u64, u64))>,
    pub(super) totals: GpuTotals,
    /// Addresses in tensor maps, keyed by a hash of the tensor map's bytes.
    tensor_maps: OwnMap<u64, u64>,
    /// A CUDA graph is being launched. All of its nodes may use the blocks that are entered meanwhile.
    in_graph: bool,
    clock: Clock,
    pub(crate) epoch: u64,
}

impl UseTable {
    pub(super) fn new(began: Instant, epoch: u64) -> Self {
        Self {
            index: AddressIndex::new(),
            slots: OwnVec::new_in(System),
            vacant: OwnVec::new_in(System),
            held: own_map(),
            kernels: KernelTable::new(),
            finished: Ring::new(MAX_FINISHED),
            idle: Ring::new(MAX_IDLE),
            positions: OwnVec::new_in(System),
            totals: GpuTotals::default(),
            tensor_maps: own_map(),
            in_graph: false,
            clock: Clock::new(began),
            epoch,
        }
    }

    /// Forgets freed blocks, and the times of earlier uses.
    pub(super) fn restart(&mut self, began: Instant) {
        self.finished = Ring::new(MAX_FINISHED);
        self.idle = Ring::new(MAX_IDLE);
        self.clock = Clock::new(began);
        for block in self.slots.iter_mut().flatten() {
            let uses = &mut block.uses;
            uses.first.iter_mut().chain(&mut uses.last).for_each(|used| used.time_ns = 0);
            uses.idle = None;
        }
    }

    pub(super) fn alloc(&mut self, device: Device, block: &Block) {
        match self.positions.iter_mut().find(|(of, _)| *of == device) {
            Some((_, position)) => *position = (block.raw_seq(), 0),
            None => _ = try_push(&mut self.positions, (device, (block.raw_seq(), 0))),
        }
        let Some(seq) = block.seq.filter(|_| has_known_uses(device, block.memory)) else { return };
        if self.index.find(block.address).is_some() {
            self.free_at(block.address);
        }
        let uses = BlockUses::new(seq, self.totals.operations - u64::from(self.in_graph));
        let Some(slot) = self.put(UsedBlock::new(device, block, uses)) else { return };
        if !self.index.insert(block.address, block.size, slot) {
            self.take(slot);
        }
    }

    fn put(&mut self, block: UsedBlock) -> Option<u32> {
        if let Some(slot) = self.vacant.pop() {
            *self.slots.get_mut(slot as usize)? = Some(block);
            return Some(slot);
        }
        let slot = self.slots.len() as u32;
        // Also reserves room in `vacant`, so that the slot can be given back later.
        let has_room = self.vacant.try_reserve(self.slots.len() + 1).is_ok();
        (has_room && try_push(&mut self.slots, Some(block))).then_some(slot)
    }

    fn take(&mut self, slot: u32) -> Option<UsedBlock> {
        let block = self.slots.get_mut(slot as usize)?.take()?;
        try_push(&mut self.vacant, slot);
        if block.holds {
            self.held.remove(&slot);
        }
        Some(block)
    }

    /// Moves the block at this address to the freed blocks, if `seq` is the log position of its alloc.
    pub(super) fn free(&mut self, device: Device, address: u64, seq: u64) {
        if let Some((_, (_, frees))) = self.positions.iter_mut().find(|(of, _)| *of == device) {
            *frees += 1;
        }
        let is_it = |block: &UsedBlock| block.address == address && block.uses.seq.get() == seq;
        if self.index.find(address).and_then(|slot| self.block(slot)).is_some_and(is_it) {
            self.free_at(address);
        }
    }

    /// Moves the block that contains this address to the freed blocks.
    fn free_at(&mut self, address: u64) {
        let start = self.index.find(address).and_then(|slot| self.block(slot)).map(|block| block.address);
        let Some(block) = start.and_then(|start| self.index.remove(start)).and_then(|slot| self.take(slot)) else {
            return;
        };
        let last_opaque = self.opaque_since(&block.uses);
        let uses = BlockUses { freed_at: Some(self.totals.operations), last_opaque, ..block.uses };
        self.finished.push((block.device, uses));
    }

    /// The last opaque operation in a block's lifetime; 0 if there is none.
    pub(super) fn opaque_since(&self, uses: &BlockUses) -> u64 {
        if self.totals.last_opaque > uses.allocated_at { self.totals.last_opaque } else { 0 }
    }

    #[inline]
    fn block(&self, slot: u32) -> Option<&UsedBlock> {
        self.slots.get(slot as usize)?.as_ref()
    }

    fn block_at(&mut self, address: u64) -> Option<&mut UsedBlock> {
        let slot = self.index.find(address)?;
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    /// Whether the address is inside a known block.
    pub(crate) fn has(&self, address: u64) -> bool {
        self.index.find(address).is_some()
    }

    /// From now on any operation may use the block.
    pub(crate) fn escape(&mut self, address: u64) {
        if let Some(block) = self.block_at(address) {
            block.uses.escaped = true;
        }
    }

    /// The block at `holder` contains this address, so using it also uses the block at `address`. If the holder is
    /// unknown, or there is no memory, the block at `address` counts as escaped.
    pub(crate) fn hold(&mut self, holder: u64, address: u64) {
        let slot = self.index.find(holder);
        let is_held = slot.is_some_and(|slot| {
            self.held.try_reserve(1).is_ok() && {
                let list = self.held.entry(slot).or_insert_with(|| OwnVec::new_in(System));
                list.contains(&address) || try_push(list, address)
            }
        });
        match slot.and_then(|slot| self.slots.get_mut(slot as usize)?.as_mut()).filter(|_| is_held) {
            Some(block) => block.holds = true,
            None => self.escape(address),
        }
    }

    /// Everything in this range was overwritten. A block that lies within it contains no addresses any more.
    pub(crate) fn overwritten(&mut self, start: u64, size: u64) {
        let Some(slot) = self.index.find(start) else { return };
        let is_whole = |block: &&mut UsedBlock| block.holds && start == block.address && size >= block.size;
        if let Some(block) = self.slots.get_mut(slot as usize).and_then(Option::as_mut).filter(is_whole) {
            block.holds = false;
            self.held.remove(&slot);
        }
    }

    /// The addresses that the block at `from` contains are copied to the block at `to`.
    pub(crate) fn copy_held(&mut self, from: u64, to: u64) {
        let Some(slot) = self.index.find(from).filter(|slot| self.block(*slot).is_some_and(|block| block.holds)) else {
            return;
        };
        let count = self.held.get(&slot).map_or(0, |list| list.len());
        for at in 0..count {
            if let Some(address) = self.held.get(&slot).and_then(|list| list.get(at)).copied() {
                self.hold(to, address);
            }
        }
    }

    /// Adds the block that a word points into, and the blocks whose addresses that block contains.
    #[inline]
    pub(crate) fn collect(&self, word: u64, access: UseAccess, touched: &mut Touched) {
        let Some((slot, block)) = self.found(word) else { return };
        let first = touched.len();
        touched.add(Touch { slot, seq: block.uses.seq.get(), access });
        if block.holds && access.follows() {
            self.collect_held(first, touched);
        }
    }

    fn found(&self, word: u64) -> Option<(u32, &UsedBlock)> {
        let slot = self.index.find(word)?;
        Some((slot, self.block(slot)?))
    }

    #[cold]
    fn collect_held(&self, first: usize, touched: &mut Touched) {
        let mut at = first;
        while let Some(touch) = touched.get(at) {
            for word in self.held.get(&touch.slot).into_iter().flatten() {
                if let Some((slot, block)) = self.found(*word) {
                    touched.add(Touch { slot, seq: block.uses.seq.get(), access: UseAccess::Unknown });
                }
            }
            at += 1;
        }
    }

    pub(crate) fn needs_stack(&self, touched: &Touched) -> bool {
        touched.iter().any(|touch| self.block(touch.slot).is_some_and(|block| block.size >= LARGE))
    }

    pub(crate) fn begin(&mut self) {
        self.totals.operations += 1;
    }

    /// Begins a graph launch, which is one operation.
    pub(crate) fn begin_graph(&mut self) {
        self.in_graph = true;
        self.begin();
    }

    pub(crate) fn end_graph(&mut self) {
        self.in_graph = false;
    }

    pub(crate) fn learn_tensor_map(&mut self, map: &TensorMapWords, address: u64) {
        if self.tensor_maps.try_reserve(1).is_err() {
            return self.escape(address);
        }
        self.tensor_maps.insert(HASHER.hash_one(map), address);
    }

    pub(crate) fn has_tensor_maps(&self) -> bool {
        !self.tensor_maps.is_empty()
    }

    pub(crate) fn tensor_map(&self, map: &TensorMapWords) -> Option<u64> {
        if self.has_tensor_maps() { self.tensor_maps.get(&HASHER.hash_one(map)).copied() } else { None }
    }

    pub(crate) fn count(&mut self, work: OperationKind, kernel: KernelId) {
        let totals = &mut self.totals;
        match work {
            OperationKind::Kernel => {
                totals.launches += 1;
                totals.laid_out += 1;
            }
            OperationKind::Copy => totals.copies += 1,
            OperationKind::Fill => totals.fills += 1,
            OperationKind::Graph => totals.graphs += 1,
            OperationKind::Opaque => {
                totals.last_opaque = totals.operations;
                self.kernels.count_opaque(kernel);
            }
        }
    }

    /// A kernel was launched whose arguments are unknown.
    pub(crate) fn count_opaque_launch(&mut self, kernel: KernelId) {
        self.totals.launches += 1;
        self.count(OperationKind::Opaque, kernel);
    }

    /// Adds operands to the blocks that the current operation makes.
    fn add_operands(&mut self, touched: &Touched) {
        let is_it = |touch: &Touch, block: &&UsedBlock| block.uses.seq.get() == touch.seq;
        let blocks = touched.iter().filter_map(|touch| self.block(touch.slot).filter(|block| is_it(touch, block)));
        let older =
            blocks.filter(|block| block.uses.first.is_some_and(|first| first.operation < self.totals.operations));
        let mut numbers = OperandNumbers::default();
        numbers.iter_mut().zip(older).for_each(|(number, block)| *number = Some((block.device, block.uses.seq)));
        for touch in touched.iter() {
            let Some(device) = self.block(touch.slot).map(|block| block.device) else { continue };
            let (last_alloc, _) = self.position(device);
            let block = self.slots.get_mut(touch.slot as usize).and_then(Option::as_mut);
            if let Some(block) = block.filter(|block| block.uses.seq.get() == touch.seq && block.is_made(last_alloc)) {
                block.add_operands(&numbers);
            }
        }
    }

    /// The log position of a device's last alloc, and the number of frees since.
    fn position(&self, device: Device) -> (u64, u64) {
        let position = self.positions.iter().find(|(of, _)| *of == device);
        position.map_or((0, 0), |(_, position)| *position)
    }

    /// Records that the current operation uses these blocks.
    pub(crate) fn apply(&mut self, kernel: KernelId, touched: &Touched, site: EventSite) {
        let applied = Applied { operation: self.totals.operations, time_ns: self.clock.now(), kernel, site };
        let mut makes = false;
        for touch in touched.iter() {
            let last_opaque = self.totals.last_opaque;
            let Some(block) = self.slots.get_mut(touch.slot as usize).and_then(Option::as_mut) else { continue };
            if block.uses.seq.get() == touch.seq {
                let position = self.positions.iter().find(|(of, _)| *of == block.device);
                let position = position.map_or((0, 0), |(_, position)| *position);
                let idle = block.used(touch.access, &applied, position, last_opaque);
                makes |= block.is_made(position.0);
                let is_long = |idle: &IdleTime| idle.operations >= BlockIdle::LEAST_OPERATIONS;
                if let Some(time) = idle.filter(|idle| is_long(idle) && block.size >= BlockIdle::LEAST_SIZE) {
                    self.idle.push((block.device, BlockIdle { seq: block.uses.seq, time }));
                }
            }
        }
        if makes {
            self.add_operands(touched);
        }
    }
}
