//! Creation and look-up of devices' ledgers.

use std::sync::atomic::Ordering;

use memtrace_core::snapshot::{Action, Device, Enabled, Settings, StackContext};

use super::locked::{slot, slot_of};
use super::slots::{ACTIVE, ACTIVE_DEVICES, devices, index_of};
use super::waiting::lock_heap;
use crate::record::ledger::{AskOutside, Ledger, LedgerOptions};
use crate::record::{gates, untraced};

/// Calls `f` with the device's ledger, if it has one.
pub(in crate::record) fn with_ledger_there<T>(device: Device, f: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
    slot_of(device)?.as_mut().map(f)
}

/// Like [`with_ledger_there`], but first creates the ledger if the device is recorded.
pub(in crate::record) fn with_ledger<T>(device: Device, f: impl FnOnce(&mut Ledger) -> T) -> Option<T> {
    let mut slot = slot_of(device)?;
    if slot.is_none() {
        drop(slot);
        make_ledger(device);
        slot = slot_of(device)?;
    }
    slot.as_mut().map(f)
}

/// Creates a ledger. The new ledger copies the scopes of the CPU's ledger, as if it had existed from the start.
#[cold]
fn make_ledger(device: Device) {
    let active = ACTIVE.lock();
    let Some(settings) = active.as_ref().filter(|settings| settings.device.is_none() && gates::records_device_memory())
    else {
        return;
    };
    let first = lock_heap();
    let (Some(first), Some(index)) = (first.as_ref(), index_of(device)) else { return };
    if let Some(mut slot) = slot(index) {
        slot.get_or_insert_with(|| first.for_other_device(device_options(settings, device)));
        // Set under the ledger's lock, so that a thread that recorded an allocation always finds the ledger at the
        // free.
        ACTIVE_DEVICES.fetch_or(1 << index, Ordering::Relaxed);
    }
}

pub(in crate::record) fn active_devices() -> impl Iterator<Item = Device> {
    let active = ACTIVE_DEVICES.load(Ordering::Relaxed);
    devices().enumerate().filter(move |(index, _)| active & (1 << index) != 0).map(|(_, device)| device)
}

pub(crate) fn cuda_devices() -> impl Iterator<Item = Device> {
    active_devices().filter(|device| matches!(device, Device::Cuda(_)))
}

pub(super) fn options(settings: &Settings) -> LedgerOptions {
    let skips = |action| settings.skip_actions.contains(&action);
    LedgerOptions {
        max_entries: if settings.enabled == Enabled::All { settings.max_entries } else { 0 },
        stacks_in_log: settings.context >= StackContext::Alloc,
        skip_allocs: skips(Action::Alloc),
        skip_frees: skips(Action::FreeRequested) && skips(Action::FreeCompleted),
        long_records: settings.context == StackContext::All,
        reserved: true,
        ..LedgerOptions::default()
    }
}

pub(super) fn heap_options(settings: &Settings) -> LedgerOptions {
    let sampling = settings.sampling(Device::Cpu);
    let outside = sampling.is_on().then_some(untraced::around as AskOutside);
    LedgerOptions { min_size: settings.min_size, sampling, counts_below: true, outside, ..options(settings) }
}

pub(super) fn device_options(settings: &Settings, device: Device) -> LedgerOptions {
    LedgerOptions { has_segments: matches!(device, Device::Cuda(_)), long_records: true, ..options(settings) }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::time::Instant;

    use super::*;
    use crate::record::recorder::slots::MAX_ORDINALS;
    use crate::record::recorder::{start, stop};

    /// A free searches all devices that have a ledger, including one that was just created.
    #[test]
    fn who_enters_a_block_in_a_new_ledger_finds_it_there() {
        const THREADS: usize = 4;
        let settings = Settings { max_entries: 1, ..Settings::default() };
        for ordinal in (1..MAX_ORDINALS).cycle().take(300) {
            // Another test of this process may be recording.
            while !start(&settings, Instant::now(), Vec::new) {
                std::thread::yield_now();
            }
            let (device, barrier) = (Device::Cuda(ordinal), Barrier::new(THREADS));
            let is_found = || {
                barrier.wait();
                with_ledger(device, |_| ()).is_some() && active_devices().any(|active| active == device)
            };
            let found = std::thread::scope(|scope| {
                let threads = [(); THREADS].map(|()| scope.spawn(is_found));
                threads.map(|thread| thread.join().unwrap())
            });
            stop();
            assert_eq!(found, [true; THREADS]);
        }
    }
}
