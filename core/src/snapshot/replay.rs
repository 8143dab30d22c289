//! Event replay: rebuilds the live blocks at the beginning of the log, or after any of its records, by undoing the
//! records from the last one on.

use super::record::{Block, Record, RecordKind};
use super::{DeviceSnapshot, Sampling};
use crate::hashed::HashMap;

/// Live blocks by address while records are applied.
///
/// Invariant 18: a replay from [`Replay::at_log_start`] over all records ends in exactly the snapshot's live blocks,
/// even if the ring buffer has overwritten its oldest records.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    live: HashMap<u64, Block>,
    bytes: u64,
    sampling: Sampling,
}

impl Replay {
    /// The live blocks just before the oldest record of the log. [`Record::block`] says what is known of a block whose
    /// alloc was overwritten.
    pub fn at_log_start(device: &DeviceSnapshot) -> Self {
        Self::after(device, 0)
    }

    /// The live blocks after this many records of the log.
    pub fn after(device: &DeviceSnapshot, records: usize) -> Self {
        let mut state = Self { sampling: device.sampling, ..Self::default() };
        device.live.iter().for_each(|block| state.insert(*block));
        device.records.iter().skip(records).rev().for_each(|record| state.undo(record));
        state
    }

    /// Applies one record.
    pub fn apply(&mut self, record: &Record) {
        match record.kind {
            RecordKind::Alloc => self.insert(record.block()),
            RecordKind::Free => self.remove(record.address),
        }
    }

    /// Live bytes by weight.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The live blocks in the order of their allocation.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = self.live.values().copied().collect();
        blocks.sort_unstable_by_key(|block| block.seq);
        blocks
    }

    fn undo(&mut self, record: &Record) {
        match record.kind {
            RecordKind::Alloc => self.remove(record.address),
            // This is the free of a block from before the recording, which the ledger never contained.
            RecordKind::Free if record.alloc_seq.is_none() => {}
            RecordKind::Free => self.insert(record.block()),
        }
    }

    fn insert(&mut self, block: Block) {
        self.bytes += self.sampling.bytes(block.size);
        if let Some(old) = self.live.insert(block.address, block) {
            self.bytes -= self.sampling.bytes(old.size);
        }
    }

    fn remove(&mut self, address: u64) {
        if let Some(old) = self.live.remove(&address) {
            self.bytes -= self.sampling.bytes(old.size);
        }
    }
}
