//! The recording under way: one ledger per device, the gates in front of them.

mod devices;
mod read;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use self::devices::{device_options, heap_options, index_of};
use super::gates::GATES;
use super::ledger::Ledger;
use super::live::Held;
use super::site::Site;
use super::unwind::{Taken, with_stack};
use super::{Label, STACKS, fork, gates, guard, measure, sampling, thread, untraced};
use crate::record::lock::lock;
use crate::snapshot::{
    ContextId, DEFAULT_STACK_DEPTH, Device, Enabled, MemoryKind, Sampling, Settings, StackContext, StackId,
};

pub(super) use self::devices::{active_devices, with_ledger, with_ledger_there};
pub(crate) use self::devices::{cuda_devices, devices};
pub(super) use self::read::keep_counters;
pub(crate) use self::read::{Detail, DeviceCopy, copies, log_end, read_log, reset_peak, skip_log, stats};

/// CUDA devices with a ledger of their own; blocks of any further one are lost, and counted so.
const MAX_ORDINALS: u32 = 32;
/// The CPU, the CUDA devices by ordinal, then pinned, managed and imported memory.
const MAX_DEVICES: usize = MAX_ORDINALS as usize + 4;

/// Taken after [`ACTIVE`], and one after the other in this order.
static DEVICES: [Mutex<Option<Ledger>>; MAX_DEVICES] = [const { Mutex::new(None) }; MAX_DEVICES];
static ACTIVE: Mutex<Option<Settings>> = Mutex::new(None);

/// One bit for each device that has a ledger. While a recording is under way it is set, and read by scopes,
/// with the first device's lock held: so a device that comes later has seen every scope.
static ACTIVE_DEVICES: AtomicU64 = AtomicU64::new(0);

/// A session is under way. Release/acquire with the ledgers is not needed: they stand behind locks.
static RECORDING: AtomicBool = AtomicBool::new(false);
/// This process was forked off one that was recording.
static FORKED: AtomicBool = AtomicBool::new(false);
/// The process that records, by its number; 0 is none.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Bytes that the drivers' pools had handed out when the recording began, by ordinal.
static BEFORE: [AtomicU64; MAX_ORDINALS as usize] = [const { AtomicU64::new(0) }; MAX_ORDINALS as usize];
/// Whether there were any.
static ANY_BEFORE: AtomicBool = AtomicBool::new(false);

/// Stacks that lost their middle frames.
static SHORTENED: AtomicUsize = AtomicUsize::new(0);

pub(crate) fn is_recording() -> bool {
    RECORDING.load(Ordering::Relaxed)
}

/// Is this a child of the process that records? Not every way to make one tells the fork handlers.
pub(crate) fn was_forked() -> bool {
    let owner = OWNER.load(Ordering::Relaxed);
    FORKED.load(Ordering::Relaxed) || (owner != 0 && owner != std::process::id())
}

/// Is a session under way, recording or not?
pub(crate) fn is_taken() -> bool {
    lock(&ACTIVE).is_some()
}

/// Begins a recording; false if one is under way. `before` says what pools of CUDA devices have handed out by then:
/// (ordinal, bytes).
pub(crate) fn start(settings: &Settings, began: Instant, before: impl FnOnce() -> Vec<(u32, u64)>) -> bool {
    if is_taken() {
        return false;
    }
    let (ledger, before) = (first_ledger(settings, began), before());
    let mut active = lock(&ACTIVE);
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
    if was_forked() {
        return;
    }
    let (ledger, before) = (first_ledger(settings, began), before());
    let mut active = lock(&ACTIVE);
    close_gates();
    DEVICES.iter().enumerate().for_each(|(index, device)| discard(index, &mut lock(device)));
    set_up(&mut active, settings, ledger, &before);
    drop(active);
    make_ledgers_of_before();
}

/// Begins every log anew, with counters and peak; what is live stays known.
pub(crate) fn begin_anew(began: Instant) {
    if was_forked() {
        return;
    }
    // No device's ledger comes into being meanwhile.
    let _active = lock(&ACTIVE);
    for slot in &DEVICES {
        if let Some(ledger) = lock(slot).as_mut() {
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
    let mut slot = index.and_then(|index| DEVICES.get(index)).map(lock);
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

fn set_before(used: &[(u32, u64)]) {
    let bytes = |ordinal: usize| used.iter().find(|(known, _)| *known as usize == ordinal).map_or(0, |(_, used)| *used);
    BEFORE.iter().enumerate().for_each(|(ordinal, before)| before.store(bytes(ordinal), Ordering::Relaxed));
    ANY_BEFORE.store(used.iter().any(|(_, bytes)| *bytes > 0), Ordering::Relaxed);
}

/// A device that had handed out something has a ledger from the beginning.
fn make_ledgers_of_before() {
    for ordinal in (0..MAX_ORDINALS).filter(|ordinal| before(Device::Cuda(*ordinal)) > 0) {
        with_ledger(Device::Cuda(ordinal), |_| ());
    }
}

/// Was anything live on CUDA devices before the recording, as far as is known?
pub(crate) fn had_blocks_before() -> bool {
    ANY_BEFORE.load(Ordering::Relaxed)
}

/// Bytes that the device's pool had handed out before the recording.
pub(super) fn before(device: Device) -> u64 {
    let Device::Cuda(ordinal) = device else { return 0 };
    BEFORE.get(ordinal as usize).map_or(0, |before| before.load(Ordering::Relaxed))
}

/// Ends the recording. What the heap ledger holds goes to the untraced account, under its lock.
pub(crate) fn stop() {
    if was_forked() {
        return;
    }
    let mut active = lock(&ACTIVE);
    close_gates();
    DEVICES.iter().enumerate().for_each(|(index, device)| discard(index, &mut lock(device)));
    *active = None;
    OWNER.store(0, Ordering::Relaxed);
}

/// All locks of this file, taken in order.
pub(super) struct RecorderLocks {
    active: MutexGuard<'static, Option<Settings>>,
    devices: [MutexGuard<'static, Option<Ledger>>; MAX_DEVICES],
}

impl RecorderLocks {
    pub(super) fn take() -> Self {
        Self { active: lock(&ACTIVE), devices: DEVICES.each_ref().map(lock) }
    }
}

/// Ends the recording in a forked child: what it inherited stays whole, the parent's goes on.
pub(super) fn abandon(locks: &mut RecorderLocks) {
    if locks.active.is_some() {
        FORKED.store(true, Ordering::Relaxed);
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

/// Enters a block that was chosen at this interval into the heap's ledger; false if it could not be.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn on_heap_alloc(address: u64, size: u64, site: Site, interval: usize) -> bool {
    let mut slot = lock(&DEVICES[0]);
    // The gate that let this block through, or what chose it, may have been that of an earlier session.
    let takes = |ledger: &&mut Ledger| ledger.takes(size) && ledger.is_sampled_at(interval as u64);
    let Some(ledger) = slot.as_mut().filter(takes) else { return false };
    let entered = ledger.alloc(address, size, site);
    keep_counters(Device::Cpu, ledger);
    if entered && ledger.samples(size) {
        sampling::enter(address);
    }
    entered
}

/// What came of a free.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Freed {
    /// The ledger of the recording with this number held it.
    Recorded(Held, u64),
    /// That recording takes such blocks and did not see this one: it is from before, and is now
    /// logged as freed and no longer among the untraced.
    FromBefore(u64),
    /// Nobody records such blocks, or the sample has not got this one.
    NotRecorded,
}

/// Takes a heap block out of the CPU's ledger, or out of what was there before it. Where a sample is recorded, that
/// cannot be told from what was left out, and stays among the untraced.
#[inline(always)]
pub(crate) fn on_heap_free(address: u64, size: u64) -> Freed {
    let site = free_site();
    let mut slot = lock(&DEVICES[0]);
    let Some(ledger) = slot.as_mut().filter(|ledger| ledger.takes(size)) else { return Freed::NotRecorded };
    if let Some(held) = ledger.free(address, site) {
        if ledger.samples(held.size()) {
            sampling::leave(address);
        }
        return Freed::Recorded(held, epoch());
    }
    if ledger.samples(size) {
        // From before the recording, or left out of the sample: nobody can tell.
        return Freed::NotRecorded;
    }
    ledger.free_unknown(address, size, site);
    // Under the lock: whoever reads both must not find the block in both or in neither.
    untraced::subtract(size);
    Freed::FromBefore(epoch())
}

/// Undoes [`on_heap_free`] for a block that stayed where it was. If another recording has begun meanwhile, the block
/// is one from before it.
pub(crate) fn undo_heap_free(freed: Freed, address: u64, size: u64) {
    let mut slot = lock(&DEVICES[0]);
    let now = epoch();
    let kept = match (freed, slot.as_mut()) {
        (Freed::Recorded(held, then), Some(ledger)) if then == now => {
            let block = held.block();
            let kept = ledger.undo_free(&block);
            if kept && ledger.samples(block.size) {
                sampling::enter(block.address);
            }
            kept
        }
        (Freed::FromBefore(then), Some(ledger)) if then == now => {
            ledger.undo_free_unknown(address, size);
            false
        }
        _ => false,
    };
    if !kept {
        untraced::add(size);
    }
}

/// Where an allocation of this thread happens, with its stack if the recording keeps it.
#[inline(always)]
pub(crate) fn alloc_site(always_with_stack: bool) -> Site {
    let wanted = GATES.stack_context.load(Ordering::Relaxed) != StackContext::None as u8;
    // What a measurement tells apart by stack must not depend on a session that comes or goes meanwhile.
    let depth = GATES.stack_depth.load(Ordering::Relaxed) as usize;
    let depth = if always_with_stack { depth.max(DEFAULT_STACK_DEPTH) } else { depth };
    let stack = if always_with_stack || wanted { capture(depth) } else { StackId::NONE };
    Site { stack, context: guard::context(), thread: thread::number(), stream: 0, memory: MemoryKind::Heap }
}

/// Without the stack, if that was taken for the measurement of somebody else.
#[inline]
pub(crate) fn site_for_session(site: Site) -> Site {
    let wanted = guard::measure() != 0 || GATES.stack_context.load(Ordering::Relaxed) != StackContext::None as u8;
    if wanted { site } else { Site { stack: StackId::NONE, ..site } }
}

#[inline]
pub(crate) fn free_site() -> Site {
    let wanted = GATES.stack_context.load(Ordering::Relaxed) == StackContext::All as u8;
    let stack = if wanted { stack_of_free() } else { StackId::NONE };
    Site { stack, context: guard::context(), thread: thread::number(), stream: 0, memory: MemoryKind::Heap }
}

/// Apart: most recordings have none.
#[inline(never)]
fn stack_of_free() -> StackId {
    capture(GATES.stack_depth.load(Ordering::Relaxed) as usize)
}

#[inline(always)]
fn capture(depth: usize) -> StackId {
    let guess = |innermost| STACKS.guess(innermost);
    let stack = with_stack(depth, guess, |taken| match taken {
        Taken::Guessed(known) => StackId(known.number),
        Taken::Walked(stack) => {
            if stack.shortened {
                SHORTENED.fetch_add(1, Ordering::Relaxed);
            }
            STACKS.intern(stack)
        }
    });
    STACKS.learn(stack);
    stack
}

/// Names the live block that begins at an address of a device, or of any; false if none is recorded there.
pub(crate) fn name(device: Option<Device>, address: u64, label: Label<'_>) -> bool {
    fork::watch();
    let _own = guard::own_work();
    let in_slot = |slot: &Mutex<Option<Ledger>>| lock(slot).as_mut().is_some_and(|ledger| ledger.name(address, label));
    let recorded = match device {
        Some(device) => index_of(device).and_then(|index| DEVICES.get(index)).is_some_and(in_slot),
        None => is_recording() && DEVICES.iter().any(in_slot),
    };
    measure::name(device, address, label) || recorded
}

pub(crate) fn on_scope(enter: bool, instance: u64, context: ContextId) {
    // A signal handler that allocates must not wait for the thread that it interrupted.
    let _own = guard::own_work();
    let thread = thread::number();
    let mut active = 1;
    for (index, device) in DEVICES.iter().enumerate() {
        if active & (1 << index) == 0 {
            continue;
        }
        let mut slot = lock(device);
        if index == 0 {
            active |= ACTIVE_DEVICES.load(Ordering::Relaxed);
        }
        if let Some(ledger) = slot.as_mut() {
            match enter {
                true => ledger.enter_scope(instance, context, thread),
                false => ledger.exit_scope(instance, context, thread),
            }
        }
    }
}

pub(crate) fn shortened_stacks() -> u64 {
    SHORTENED.load(Ordering::Relaxed) as u64
}

/// The number of the recording under way, to be compared under a device's lock.
pub(super) fn epoch() -> u64 {
    GATES.epoch.load(Ordering::Relaxed)
}

/// Is memory of this device to be recorded?
pub(super) fn wants(device: Device) -> bool {
    gates::records_device_memory() && lock(&ACTIVE).as_ref().is_some_and(|s| s.device.is_none_or(|only| only == device))
}

/// Is memory of all devices to be recorded?
pub(super) fn wants_all() -> bool {
    gates::records_device_memory() && lock(&ACTIVE).as_ref().is_some_and(|settings| settings.device.is_none())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_block_below_the_sessions_threshold_is_not_taken_whatever_gate_let_it_through() {
        let settings = Settings { min_size: 65_536, ..Settings::default() };
        // Another test of this process may be recording.
        let began = Instant::now();
        while !start(&settings, began, Vec::new) {
            std::thread::yield_now();
        }
        assert!(!on_heap_alloc(0x1000, 2048, Site::default(), 0));
        // One that was chosen for a sample.
        assert!(!on_heap_alloc(0x1000, 65_536, Site::default(), 1 << 19));
        assert!(matches!(on_heap_free(0x1000, 2048), Freed::NotRecorded));
        assert!(on_heap_alloc(0x2000, 65_536, Site::default(), 0));
        assert!(matches!(on_heap_free(0x2000, 65_536), Freed::Recorded(..)));
        assert!(matches!(on_heap_free(0x3000, 65_536), Freed::FromBefore(_)));
        assert!(copies(began + Duration::from_nanos(1)).is_empty(), "of another recording");
        let (_, copy) = copies(began).remove(0);
        stop();
        assert_eq!((copy.ledger.records.len(), copy.ledger.live.len()), (3, 0));
        untraced::add(65_536);
    }
}
