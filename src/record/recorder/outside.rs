//! Bytes on a device that are not in its ledger.

use memtrace_core::snapshot::Device;

use super::slots::before;
use crate::record::ledger::{Ledger, Outside};
use crate::record::untraced;

/// Adds a checkpoint of the counters to the log at regular intervals.
#[inline(always)]
pub(in crate::record) fn keep_counters(device: Device, ledger: &mut Ledger) {
    if ledger.is_at_checkpoint() {
        let outside = outside(device, ledger);
        ledger.keep_counters(outside);
    }
}

/// Bytes outside the ledger. Called under its lock.
///
/// Without sampling, the bytes that were live at the start are in large untraced blocks that are still live or were
/// freed since. Under sampling, untraced blocks may be newer, so the bytes are counted at the start.
pub(super) fn outside(device: Device, ledger: &Ledger) -> Outside {
    if device != Device::Cpu {
        return Outside { below_threshold: 0, base: before(device) };
    }
    let (below_threshold, large) = untraced::split_at(ledger.options.min_size);
    let base = if ledger.options.sampling.is_on() { ledger.sample.before } else { large + ledger.unknown };
    Outside { below_threshold, base }
}
