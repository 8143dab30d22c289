//! The recording as a state machine:
//!
//! ```text
//!              start                    switch, begin_anew
//!    idle ───────────────► recording ───────────────┐
//!     ▲                     │   │ ▲                 │
//!     └─────────────────────┘   │ └─────────────────┘
//!              stop             │ fork
//!                               ▼
//!                            forked (a child of it: nothing is recorded any more, until it execs)
//! ```
//!
//! [`ACTIVE`] is the state. What the hot path looks at without a lock is published from here alone: [`open`] and
//! [`close_gates`] set the gates, the sample, and the bits of devices.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use super::devices::{device_options, heap_options, with_ledger};
use super::slots::{
    ACTIVE, ACTIVE_DEVICES, DEVICES, LockedSlot, MAX_DEVICES, MAX_ORDINALS, before, index_of, set_before,
};
use crate::record::gates::GATES;
use crate::record::ledger::Ledger;
use crate::record::lock::{Lock, Locked, rank};
use crate::record::{gates, sampling, thread, untraced};
use crate::snapshot::{DEFAULT_STACK_DEPTH, Device, Enabled, Sampling, Settings};

/// A session is under way. Release/acquire with the ledgers is not needed: they stand behind locks.
static RECORDING: AtomicBool = AtomicBool::new(false);
/// The process that records, by its number; 0 is none.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// No process has this number: in a child of the one that records.
const FORKED: u32 = u32::MAX;

pub(crate) fn is_recording() -> bool {
    RECORDING.load(Ordering::Relaxed)
}

/// Is this a child of the process that records? Not every way to make one tells the fork handlers.
pub(crate) fn was_forked() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    owner != 0 && owner != std::process::id()
}

/// Is a session under way, recording or not?
pub(crate) fn is_taken() -> bool {
    ACTIVE.lock().is_some()
}

/// Begins a recording; false if one is under way. `before` says what pools of CUDA devices have handed out by then:
/// (ordinal, bytes).
pub(crate) fn start(settings: &Settings, began: Instant, before: impl FnOnce() -> Vec<(u32, u64)>) -> bool {
    if is_taken() {
        return false;
    }
    let (ledger, before) = (first_ledger(settings, began), before());
    let mut active = ACTIVE.lock();
    if active.is_some() {
        return false;
    }
    set_up(&mut active, settings, ledger, &before);
    drop(active);
    make_ledgers_of_before();
    true
}

/// Ends what is being recorded and begins to record with other settings, all in one.
pub(crate) fn switch(settings: &Settings, began: Instant, before: impl FnOnce() -> Vec<(u32, u64)>) {
    let (ledger, before) = (first_ledger(settings, began), before());
    let mut active = ACTIVE.lock();
    close_gates();
    DEVICES.iter().enumerate().for_each(|(index, device)| discard(index, &mut device.lock()));
    set_up(&mut active, settings, ledger, &before);
    drop(active);
    make_ledgers_of_before();
}

/// Begins every log anew, with counters and peak; what is live stays known.
pub(crate) fn begin_anew(began: Instant) {
    // No device's ledger comes into being meanwhile.
    let _active = ACTIVE.lock();
    for slot in &DEVICES {
        if let Some(ledger) = slot.lock().as_mut() {
            ledger.begin_anew(began);
        }
    }
}

fn set_up(active: &mut Option<Settings>, settings: &Settings, ledger: Option<Ledger>, before: &[(u32, u64)]) {
    *active = Some(settings.clone());
    OWNER.store(std::process::id(), Ordering::Relaxed);
    GATES.epoch.fetch_add(1, Ordering::Relaxed);
    thread::renew();
    GATES.stack_context.store(settings.context as u8, Ordering::Relaxed);
    GATES.stack_depth.store(settings.stack_depth as u32, Ordering::Relaxed);
    // Frees look at it as soon as the gates are open.
    set_before(before);
    if let Some(ledger) = ledger {
        open(ledger, settings);
    }
}

/// The device that has a ledger from the beginning.
fn first_device(settings: &Settings) -> Device {
    settings.device.unwrap_or(Device::Cpu)
}

/// It takes a while, and so it is made before the driver's pools are looked at: what comes or goes between that and the
/// opening of the gates is in no account.
fn first_ledger(settings: &Settings, began: Instant) -> Option<Ledger> {
    let options = match first_device(settings) {
        Device::Cpu => heap_options(settings),
        device => device_options(settings, device),
    };
    (settings.enabled != Enabled::Off).then(|| Ledger::new(options, began))
}

/// Puts the first ledger in its place and opens the gates, all under its lock: an event that the gates of an earlier
/// recording let through comes before all of this or after it.
fn open(mut ledger: Ledger, settings: &Settings) {
    ledger.count_beside();
    let index = index_of(first_device(settings));
    let mut slot = index.and_then(|index| DEVICES.get(index)).map(Lock::lock);
    if let (Some(slot), Some(index)) = (&mut slot, index) {
        **slot = Some(ledger);
        ACTIVE_DEVICES.store(1 << index, Ordering::Relaxed);
    }
    if index == Some(0) {
        sampling::set(settings.sampling(Device::Cpu));
        gates::set_heap_threshold(settings.min_size.max(1) as usize);
    }
    gates::set_device_memory(settings.device != Some(Device::Cpu));
    RECORDING.store(true, Ordering::Relaxed);
}

/// A device that had handed out something has a ledger from the beginning.
fn make_ledgers_of_before() {
    for ordinal in (0..MAX_ORDINALS).filter(|ordinal| before(Device::Cuda(*ordinal)) > 0) {
        with_ledger(Device::Cuda(ordinal), |_| ());
    }
}

/// Ends the recording. What the heap ledger holds goes to the untraced account, under its lock.
pub(crate) fn stop() {
    let mut active = ACTIVE.lock();
    close_gates();
    DEVICES.iter().enumerate().for_each(|(index, device)| discard(index, &mut device.lock()));
    *active = None;
    OWNER.store(0, Ordering::Relaxed);
}

/// All locks of the recorder, taken in order.
pub(in crate::record) struct RecorderLocks {
    active: Locked<'static, Option<Settings>, { rank::ACTIVE }>,
    devices: [LockedSlot; MAX_DEVICES],
}

impl RecorderLocks {
    pub(in crate::record) fn take() -> Self {
        Self { active: ACTIVE.lock(), devices: DEVICES.each_ref().map(Lock::lock) }
    }
}

/// Ends the recording in a forked child: what it inherited stays whole, the parent's goes on.
pub(in crate::record) fn abandon(locks: &mut RecorderLocks) {
    if locks.active.is_some() {
        OWNER.store(FORKED, Ordering::Relaxed);
        close_gates();
        locks.devices.iter_mut().enumerate().for_each(|(index, slot)| discard(index, slot));
    }
}

fn close_gates() {
    gates::set_heap_threshold(usize::MAX);
    sampling::set(Sampling::default());
    gates::set_device_memory(false);
    RECORDING.store(false, Ordering::Relaxed);
    ACTIVE_DEVICES.store(0, Ordering::Relaxed);
    GATES.stack_depth.store(DEFAULT_STACK_DEPTH as u32, Ordering::Relaxed);
}

/// Drops a device's ledger; what the heap's one held is untraced from now on.
fn discard(index: usize, slot: &mut Option<Ledger>) {
    if let Some(ledger) = slot.take()
        && index == 0
    {
        ledger.live_blocks().for_each(|block| untraced::add(block.size));
        if ledger.sampling().is_on() {
            sampling::forget();
        }
    }
}

/// Is memory of this device to be recorded?
pub(in crate::record) fn wants(device: Device) -> bool {
    gates::records_device_memory() && ACTIVE.lock().as_ref().is_some_and(|s| s.device.is_none_or(|only| only == device))
}

/// Is memory of all devices to be recorded?
pub(in crate::record) fn wants_all() -> bool {
    gates::records_device_memory() && ACTIVE.lock().as_ref().is_some_and(|settings| settings.device.is_none())
}
