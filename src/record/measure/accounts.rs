//! A measurement, and its ledgers.

use std::num::NonZeroU64;
use std::time::Instant;

use memtrace_core::snapshot::{Block, Device, Record};

use super::id::Id;
use super::lineage::Family;
use super::others::Helper;
use crate::record::ledger::{Ledger, LedgerCopy, LedgerOptions};
use crate::record::memory::{OwnVec, make_room, put};

/// Capacity of a measurement's log on each device.
const MAX_ENTRIES: usize = 1 << 16;

/// A measurement's ledger of one device. Handed-over work has a ledger of its own.
#[derive(Debug)]
pub(super) struct MeasuredLedger {
    pub(super) device: Device,
    /// This is the ledger of handed-over work.
    pub(super) handed: bool,
    pub(super) ledger: Ledger,
    /// Bytes that the measured code freed, but that were allocated outside of it.
    pub(super) foreign_freed: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct MeasuredCopy {
    pub(crate) device: Device,
    pub(crate) handed: bool,
    pub(crate) foreign_freed: u64,
    pub(crate) ledger: LedgerCopy,
}

impl MeasuredCopy {
    /// Represents the largest blocks of helper threads as if they were a measurement's blocks.
    pub(crate) fn of_helpers(helpers: &[Helper]) -> Self {
        let mut ledger = Ledger::new(LedgerOptions::default(), Instant::now()).copy(0);
        let block = |(seq, helper): (u64, &Helper)| {
            let Helper { thread, largest: size, stack, address, .. } = *helper;
            Block { address, size, seq: NonZeroU64::new(seq), stack, thread, ..Block::default() }
        };
        ledger.live = (1..).zip(helpers).map(block).collect();
        ledger.records = ledger.live.iter().map(Record::alloc_of).collect();
        Self { device: Device::Cpu, handed: true, foreign_freed: 0, ledger }
    }
}

#[derive(Debug)]
pub(super) struct MeasurementState {
    /// The enclosing measurement; 0 for none.
    pub(super) parent: Id,
    pub(super) began: Instant,
    /// Family of the thread that began the measurement.
    pub(super) family: Family,
    /// It measures the whole process.
    pub(super) whole: bool,
    /// False after the measurement was closed. A closed measurement stays in the registry as long as work may carry it.
    /// Such work then counts for the measurement's parent.
    pub(super) open: bool,
    pub(super) carried: bool,
    pub(super) devices: OwnVec<MeasuredLedger>,
    pub(super) lost: u64,
    pub(super) unknown_frees: u64,
}

impl MeasurementState {
    /// The ledger of a device; creates it if needed. In a measurement of the whole process no work is handed over: all
    /// work counts.
    pub(super) fn on(&mut self, device: Device, handed: bool) -> Option<&mut MeasuredLedger> {
        let handed = handed && !self.whole;
        if !self.devices.iter().any(|on| on.device == device && on.handed == handed) {
            self.begin_on(device, handed);
        }
        self.devices.iter_mut().find(|on| on.device == device && on.handed == handed)
    }

    /// Out of line, because the stack frame is large.
    #[cold]
    #[inline(never)]
    fn begin_on(&mut self, device: Device, handed: bool) {
        let (max_entries, log) = (MAX_ENTRIES, LedgerOptions::default());
        let options = LedgerOptions { max_entries, stacks_in_log: true, long_records: true, ..log };
        if make_room(&mut self.devices) {
            // Built in place: a ledger is large, and each move through a variable would need stack space for a copy.
            let ledger = Ledger::new(options, self.began);
            put(&mut self.devices, MeasuredLedger { device, handed, ledger, foreign_freed: 0 });
        }
    }
}
