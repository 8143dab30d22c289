//! Heap events of threads that contend for the CPU's ledger. Each event takes a position in one total order, and waits
//! in a queue. The next holder of the lock takes many events at once. So a thread writes one shared word per event, and
//! the ledger moves between the cores' caches once for many events.
//!
//! A recording begins with the queue off, so a program with one thread pays only for comparisons. The first thread that
//! finds the lock taken turns the queue on. It is turned off when all events come from one thread again.
//!
//! Bytes below the threshold are counted without the lock. For a peak, they must be read when the event happens, not
//! when the ledger takes it. So a sender reads them, but only if its event may make a new peak: if the sum of the sizes
//! of the queue's events is above `State::limit`.

#[cfg(test)]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use memtrace_core::snapshot::ThreadId;

use super::heap::{enter, put_back, take_out};
use super::messages::{HeapEvent, NOT_ADDRESS, packed, unpacked};
use super::queue::{LENGTH, Position, Queue};
use super::slots::{DEVICES, LockedSlot};
use crate::errno::KeepErrno;
use crate::record::ledger::live::prefetch_slot;
use crate::record::ledger::moment::Earlier;
use crate::record::ledger::{Ledger, LedgerFree};
use crate::record::{gates, ticks, untraced};

static QUEUE: Queue = Queue::new();
static STATE: State = State { mode: AtomicU8::new(NEVER), limit: AtomicI64::new(ANY) };

/// In its own cache line, because every event reads it and it is rarely written.
#[repr(align(128))]
struct State {
    mode: AtomicU8,
    /// The sum of the queue's sizes above which there may be a new peak. Written by the holder of the lock.
    limit: AtomicI64,
}

/// There is no recording, or one with a sample. Whether a sample has a block must be known at once, so its events never
/// wait.
const NEVER: u8 = 0;
const OFF: u8 = 1;
const ON: u8 = 2;

/// A limit that every sum exceeds. It is set when the ledger has changed without the queue.
const ANY: i64 = i64::MIN;

/// The sender of every `BATCH`th message takes out the waiting events.
const BATCH: u64 = 256;
const _: () = assert!(LENGTH >= 4 * BATCH);
/// The cache line that the ledger needs for an event is prefetched this many events ahead.
const AHEAD: u64 = 6;

/// Number of threads that wait for the lock to read. Threads that take batches would starve readers without this count.
pub(super) static READERS: AtomicU32 = AtomicU32::new(0);

/// The CPU's slot. No waiting events are taken first. While this thread waits for the lock, no other thread takes a
/// batch.
pub(super) fn lock_as_it_is() -> LockedSlot {
    DEVICES[0].try_lock().unwrap_or_else(|| {
        // Relaxed: a hint.
        READERS.fetch_add(1, Ordering::Relaxed);
        let slot = DEVICES[0].lock();
        READERS.fetch_sub(1, Ordering::Relaxed);
        slot
    })
}

/// The CPU's slot, after all earlier events have been taken.
pub(super) fn lock_heap() -> LockedSlot {
    let slot = lock_as_it_is();
    if QUEUE.is_empty() { slot } else { catch_up(slot) }
}

/// Takes all earlier events. While one of them is still being written, the lock is released, because the thread that
/// writes it may be waiting for the lock.
#[cold]
#[inline(never)]
fn catch_up(mut slot: LockedSlot) -> LockedSlot {
    let (end, mut patience) = (QUEUE.end(), Patience(0));
    while take_until(&mut slot, end) == Taken::Some {
        drop(slot);
        patience.pause();
        slot = lock_as_it_is();
    }
    slot
}

/// [`lock_heap`] for an event that may wait. `None` if the event has to wait.
#[inline(always)]
pub(super) fn lock_heap_or_wait() -> Option<LockedSlot> {
    // Relaxed: the mode is read again under the lock.
    if STATE.mode.load(Ordering::Relaxed) == ON {
        return None;
    }
    match DEVICES[0].try_lock() {
        Some(slot) if QUEUE.is_empty() && STATE.mode.load(Ordering::Relaxed) != ON => Some(slot),
        other => lock_contended(other),
    }
}

#[cold]
#[inline(never)]
fn lock_contended(slot: Option<LockedSlot>) -> Option<LockedSlot> {
    if let Some(slot) = slot {
        // The queue was turned on or off just now.
        let slot = catch_up(slot);
        expect_any_peak();
        return Some(slot);
    }
    if turn_on() { None } else { Some(lock_heap()) }
}

/// Makes events wait from now on. False if events may not wait.
pub(super) fn turn_on() -> bool {
    // Relaxed: the queue orders its events.
    STATE.mode.compare_exchange(OFF, ON, Ordering::Relaxed, Ordering::Relaxed) != Err(NEVER)
}

/// Called under the lock when a recording begins or ends. Events may wait unless the recording takes a sample.
pub(super) fn allow(allowed: bool) {
    expect_any_peak();
    // Relaxed: see `Queue::end`.
    STATE.mode.store(if allowed { OFF } else { NEVER }, Ordering::Relaxed);
    QUEUE.end();
}

/// Lets any event count as a possible new peak. Must be called, with the lock held, when the ledger's total or peak
/// changes without the queue.
pub(super) fn expect_any_peak() {
    // Relaxed: a thread that synchronises with this one reads this value; other threads are concurrent.
    STATE.limit.store(ANY, Ordering::Relaxed);
}

/// Lets an event wait for the ledger, in the order of the positions that this function takes.
#[inline(never)]
pub(super) fn wait(event: &HeapEvent) {
    let ticks = ticks::read();
    let weight = event.weight();
    let at = QUEUE.position(weight);
    let may_be_peak = weight > 0 && at.after(weight).sum() > STATE.limit.load(Ordering::Relaxed);
    let below_threshold = may_be_peak.then(|| untraced::below(gates::heap_threshold()));
    let message = packed(event, &Earlier { ticks, below_threshold });
    wait_for_place(at);
    QUEUE.send(at, &message);
    // Relaxed: see `Queue::end`.
    if STATE.mode.load(Ordering::Relaxed) != ON {
        // The queue is off, so perhaps no other thread will take the event.
        drop(lock_heap());
    } else if at.is_last_of(BATCH) {
        take_a_batch();
    }
}

#[inline(always)]
fn wait_for_place(at: Position) {
    while !QUEUE.is_free(at) {
        take_until(&mut DEVICES[0].lock(), QUEUE.end());
        if !QUEUE.is_free(at) {
            // Another thread has an earlier position, and needs the lock or a core to write its message.
            sleep();
        }
    }
}

/// Takes the waiting events, unless another thread has the lock or waits for it to read.
#[cold]
fn take_a_batch() {
    if READERS.load(Ordering::Relaxed) > 0 {
        return;
    }
    let Some(mut slot) = DEVICES[0].try_lock() else { return };
    if take_until(&mut slot, QUEUE.end()) != Taken::ManyOfOneThread {
        return;
    }
    expect_any_peak();
    // Relaxed: see `Queue::end`.
    if STATE.mode.compare_exchange(ON, OFF, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        // Some threads may have got a position before the queue was turned off.
        drop(catch_up(slot));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    All,
    /// All events, and the queue may be turned off.
    ManyOfOneThread,
    /// All events up to one that is not written yet.
    Some,
}

/// How often a thread took events.
#[cfg(test)]
pub(super) static TURNS: AtomicU64 = AtomicU64::new(0);

/// Takes the events before `end`, up to the first one that is not written yet.
fn take_until(slot: &mut Option<Ledger>, end: Position) -> Taken {
    #[cfg(test)]
    TURNS.fetch_add(1, Ordering::Relaxed);
    let (first, mut last, mut threads) = (QUEUE.first(), None, 0);
    let mut at = first;
    while at.is_before(end) {
        prefetch_slot(!QUEUE.hint(at, AHEAD, NOT_ADDRESS));
        let Some(message) = QUEUE.take(at) else { break };
        let (event, moment) = unpacked(&message);
        let thread = take(slot, &event, &moment);
        threads += u64::from(last != Some(thread));
        last = Some(thread);
        at = at.after(event.weight());
    }
    QUEUE.set_first(at);
    if STATE.mode.load(Ordering::Relaxed) == ON {
        let below_peak = slot.as_ref().and_then(Ledger::below_peak);
        let limit = below_peak.map_or(i64::MAX, |bytes| at.sum().saturating_add(bytes));
        STATE.limit.store(limit, Ordering::Relaxed);
    } else {
        expect_any_peak();
    }
    match () {
        () if at.is_before(end) => Taken::Some,
        () if threads == 1 && first.until(at) >= BATCH => Taken::ManyOfOneThread,
        () => Taken::All,
    }
}

/// Applies an event to the ledger. Returns the event's thread.
#[inline(always)]
fn take(slot: &mut Option<Ledger>, event: &HeapEvent, moment: &Earlier) -> ThreadId {
    match *event {
        HeapEvent::Alloc(block) => {
            if !enter(slot, block, 0, moment) {
                untraced::add(block.size);
            }
            block.site.thread
        }
        HeapEvent::Free { address, size, site, may_be_undone } => {
            let freed = take_out(slot, address, size, site, moment);
            if matches!(freed, LedgerFree::NotRecorded) {
                untraced::subtract(size);
            }
            if may_be_undone && let Some(ledger) = slot {
                ledger.keep_free(site.thread, freed);
            }
            site.thread
        }
    }
}

/// Undoes this thread's last free, which waited in the queue.
pub(super) fn undo(thread: ThreadId, address: u64, size: u64) {
    let mut slot = lock_heap();
    let freed = slot.as_mut().and_then(|ledger| ledger.kept_free(thread));
    put_back(&mut slot, freed.unwrap_or(LedgerFree::NotRecorded), address, size);
    expect_any_peak();
}

/// Called in a forked child. No other thread exists there, so an event that is not written yet never will be.
pub(super) fn forget() {
    QUEUE.set_first(QUEUE.end());
    READERS.store(0, Ordering::Relaxed);
}

/// Backoff while another thread writes its message.
struct Patience(u32);

impl Patience {
    fn pause(&mut self) {
        const SPINS: u32 = 64;
        self.0 += 1;
        if self.0 < SPINS {
            return std::hint::spin_loop();
        }
        // That thread may have lost its core.
        sleep();
    }
}

fn sleep() {
    let _errno = KeepErrno::new();
    std::thread::sleep(Duration::from_micros(50));
}
