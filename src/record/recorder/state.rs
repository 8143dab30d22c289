//! The recording as a state machine:
//!
//! ```text
//!              start                    switch, restart
//!    idle ───────────────► recording ───────────────┐
//!     ▲                     │   │ ▲                 │
//!     └─────────────────────┘   │ └─────────────────┘
//!              stop             │ fork
//!                               ▼
//!                            forked (a child process: records nothing until it execs)
//! ```
//!
//! [`ACTIVE`] has the state. Only [`open`] and [`close_gates`] publish it to the atomics that the hot path reads
//! without a lock: gates, sampling interval, device bits.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use memtrace_core::snapshot::{DEFAULT_STACK_DEPTH, Device, Enabled, Sampling, Settings};

use super::super::ledger::sampling;
use super::super::{gates, mappings, thread, untraced, uses};
use super::devices::{device_options, heap_options, with_ledger};
use super::locked::{all_slots, each_slot, slot};
use super::slots::{ACTIVE, ACTIVE_DEVICES, LockedSlot, MAX_DEVICES, MAX_ORDINALS, before, index_of, set_before};
use super::waiting;
use crate::record::gates::GATES;
use crate::record::ledger::Ledger;
use crate::record::lock::{Locked, rank};

/// Whether a session records. Relaxed is enough: the ledgers are behind locks.
static RECORDING: AtomicBool = AtomicBool::new(false);
/// Process id of the process that records; 0 for none.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Value of [`OWNER`] in a child of the process that records. No process has this id.
const FORKED: u32 = u32::MAX;

pub(crate) fn is_recording() -> bool {
    RECORDING.load(Ordering::Relaxed)
}

/// Whether this is a child of the process that records, even if it was created without fork handlers.
pub(crate) fn was_forked() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner != 0 && owner != std::process::id()
}

/// Whether there is a session, recording or not.
pub(crate) fn is_taken() -> bool {
    ACTIVE.lock().is_some()
}

/// Starts a recording. False if there already is one. `before` queries the bytes in use from the pools of each CUDA
/// device, as (ordinal, bytes).
pub(crate) fn start(settings: &Settings, began: Instant, before: impl FnOnce() -> Vec<(u32, u64)>) -> bool {
    if is_taken() {
        return false;
    }
    let (ledger, before) = (first_ledger(settings, began), before());
    mappings::forget();
    let mut active = ACTIVE.lock();
    if active.is_some() {
        return false;
    }
    set_up(&mut active, settings, (began, ledger), &before);
    drop(active);
    make_ledgers_of_before();
    true
}

/// Replaces the current recording by one with other settings, in one step.
pub(crate) fn switch(settings: &Settings, began: Instant, before: impl FnOnce() -> Vec<(u32, u64)>) {
    let (ledger, before) = (first_ledger(settings, began), before());
    let mut active = ACTIVE.lock();
    close_gates();
    each_slot().enumerate().for_each(|(index, mut slot)| discard(index, &mut slot));
    uses::discard();
    set_up(&mut active, settings, (began, ledger), &before);
    drop(active);
    make_ledgers_of_before();
}

/// Restarts every log with its counters and its peak. Live blocks stay known.
pub(crate) fn restart(began: Instant) {
    // The lock is held, so that no ledger is created meanwhile.
    let _active = ACTIVE.lock();
    for mut slot in each_slot() {
        if let Some(ledger) = slot.as_mut() {
            ledger.restart(began);
            waiting::expect_any_peak();
        }
    }
    uses::restart(began);
}

fn set_up(
    active: &mut Option<Settings>,
    settings: &Settings,
    (began, ledger): (Instant, Option<Ledger>),
    before: &[(u32, u64)],
) {
    *active = Some(settings.clone());
    OWNER.store(std::process::id(), Ordering::Relaxed);
    GATES.epoch.fetch_add(1, Ordering::Relaxed);
    thread::renew();
    GATES.stack_context.store(settings.context as u8, Ordering::Relaxed);
    gates::set_stack_depth(settings.stack_depth);
    // Frees read these bytes as soon as the gates are open.
    set_before(before);
    if settings.uses && ledger.is_some() {
        uses::start(began, gates::epoch());
    }
    if let Some(ledger) = ledger {
        open(ledger, settings);
    }
}

/// The device whose ledger exists from the start.
fn first_device(settings: &Settings) -> Device {
    settings.device.unwrap_or(Device::Cpu)
}

/// Creates the first device's ledger. This is slow, so it happens before the pools are queried: memory that is
/// allocated between that query and the opening of the gates is in no account.
fn first_ledger(settings: &Settings, began: Instant) -> Option<Ledger> {
    let options = match first_device(settings) {
        Device::Cpu => heap_options(settings),
        device => device_options(settings, device),
    };
    (settings.enabled != Enabled::Off).then(|| Ledger::new(options, began))
}

/// Installs the first ledger and opens the gates, both under that ledger's lock. So an event that an earlier
/// recording's gates let through comes either before or after all of this.
fn open(mut ledger: Ledger, settings: &Settings) {
    let index = index_of(first_device(settings));
    let mut slot = index.and_then(slot);
    ledger.take_initial_counts();
    if let (Some(slot), Some(index)) = (&mut slot, index) {
        **slot = Some(ledger);
        ACTIVE_DEVICES.store(1 << index, Ordering::Relaxed);
    }
    if index == Some(0) {
        sampling::set(settings.sampling(Device::Cpu));
        waiting::allow(!settings.sampling(Device::Cpu).is_on());
        gates::set_heap_threshold(settings.min_size.max(1) as usize);
    }
    gates::set_device_memory(settings.device != Some(Device::Cpu));
    RECORDING.store(true, Ordering::Relaxed);
}

/// Creates the ledgers of devices that have bytes from before the recording.
fn make_ledgers_of_before() {
    for ordinal in (0..MAX_ORDINALS).filter(|ordinal| before(Device::Cuda(*ordinal)) > 0) {
        with_ledger(Device::Cuda(ordinal), |_| ());
    }
}

/// Ends the recording. The heap ledger's blocks move to the untraced counters, under its lock.
pub(crate) fn stop() {
    let mut active = ACTIVE.lock();
    close_gates();
    each_slot().enumerate().for_each(|(index, mut slot)| discard(index, &mut slot));
    uses::discard();
    *active = None;
    OWNER.store(0, Ordering::Relaxed);
}

/// All locks of the recorder, in the lock order.
pub(in crate::record) struct RecorderLocks {
    active: Locked<'static, Option<Settings>, { rank::ACTIVE }>,
    devices: [LockedSlot; MAX_DEVICES],
}

impl RecorderLocks {
    pub(in crate::record) fn take() -> Self {
        Self { active: ACTIVE.lock(), devices: all_slots() }
    }
}

/// Ends the recording in a forked child. The parent's recording goes on.
pub(in crate::record) fn abandon(locks: &mut RecorderLocks) {
    if locks.active.is_some() {
        OWNER.store(FORKED, Ordering::Relaxed);
        close_gates();
        waiting::forget();
        locks.devices.iter_mut().enumerate().for_each(|(index, slot)| discard(index, slot));
    }
}

fn close_gates() {
    gates::set_heap_threshold(usize::MAX);
    sampling::set(Sampling::default());
    waiting::allow(false);
    gates::set_device_memory(false);
    RECORDING.store(false, Ordering::Relaxed);
    uses::pause();
    ACTIVE_DEVICES.store(0, Ordering::Relaxed);
    gates::set_stack_depth(DEFAULT_STACK_DEPTH);
}

/// Drops a device's ledger. Blocks of the heap ledger become untraced.
fn discard(index: usize, slot: &mut Option<Ledger>) {
    if let Some(ledger) = slot.take()
        && index == 0
    {
        ledger.live.iter().for_each(|block| untraced::add(block.size));
        if ledger.options.sampling.is_on() {
            sampling::forget();
        }
    }
}

/// Whether the session records this device.
pub(in crate::record) fn wants(device: Device) -> bool {
    gates::records_device_memory() && ACTIVE.lock().as_ref().is_some_and(|s| s.device.is_none_or(|only| only == device))
}

/// Whether the session records every device.
pub(in crate::record) fn wants_all() -> bool {
    gates::records_device_memory() && ACTIVE.lock().as_ref().is_some_and(|settings| settings.device.is_none())
}
