//! The current recording: one ledger per device, each behind its own lock, and the functions that the hooks call.

mod devices;
mod heap;
mod locked;
mod messages;
mod outside;
mod queue;
mod read;
mod slots;
mod state;
mod waiting;

use std::sync::atomic::Ordering;

use memtrace_core::snapshot::{ContextId, Device};

pub(crate) use self::devices::cuda_devices;
pub(super) use self::devices::{active_devices, with_ledger, with_ledger_there};
use self::heap::{NewBlock, enter, put_back, take_out};
use self::locked::{each_slot, slot, slot_of};
use self::messages::HeapEvent;
pub(super) use self::outside::keep_counters;
#[cfg(feature = "metrics")]
pub(crate) use self::read::gauges;
#[cfg(feature = "tracing")]
pub(crate) use self::read::peak_since;
pub(crate) use self::read::{Detail, DeviceCopy, copies, log_end, read_log, reset_peak, skip_log, stats};
use self::slots::{ACTIVE_DEVICES, LockedSlot, MAX_DEVICES};
pub(super) use self::slots::{before, has_place_for};
pub(crate) use self::slots::{devices, had_blocks_before, know_total, total_at_first};
pub(super) use self::state::{RecorderLocks, abandon, wants, wants_all};
pub(crate) use self::state::{is_recording, is_taken, restart, start, stop, switch, was_forked};
use self::waiting::{lock_heap, lock_heap_or_wait, wait};
use super::event_site::EventSite;
use super::event_site::free_site;
use super::ledger::LedgerFree;
#[cfg(feature = "candle")]
use super::ledger::graph_nodes::HandedOverNode;
use super::ledger::moment::Now;
use super::{BlockLabel, guard, thread};

/// Enters a block into the CPU's ledger, or lets it wait for the ledger's lock. False if the ledger does not take the
/// block. `interval` is the sampling interval with which the block was selected. `size` decides whether the block is
/// recorded; `asked` is the recorded size.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn on_heap_alloc(address: u64, size: u64, asked: u64, site: EventSite, interval: usize) -> bool {
    let block = NewBlock { address, size, asked, site };
    match if interval == 0 { lock_heap_or_wait() } else { Some(lock_heap()) } {
        Some(mut slot) => enter(&mut slot, block, interval, &Now),
        None => {
            wait(&HeapEvent::Alloc(block));
            true
        }
    }
}

/// Takes a heap block out of the CPU's ledger. With `may_be_undone`, this thread may undo the free before its next
/// one.
#[inline(always)]
pub(crate) fn on_heap_free(address: u64, size: u64, may_be_undone: bool) -> LedgerFree {
    let site = free_site();
    match lock_heap_or_wait() {
        Some(mut slot) => take_out(&mut slot, address, size, site, &Now),
        None => {
            wait(&HeapEvent::Free { address, size, site, may_be_undone });
            LedgerFree::Waiting(site.thread)
        }
    }
}

pub(crate) fn undo_heap_free(freed: LedgerFree, address: u64, size: u64) {
    match freed {
        LedgerFree::Waiting(thread) => waiting::undo(thread, address, size),
        freed => put_back(&mut lock_heap(), freed, address, size),
    }
}

/// See [`naming::name`](super::naming::name).
pub(crate) fn name(device: Option<Device>, address: u64, label: BlockLabel<'_>) -> bool {
    let in_slot = |mut slot: LockedSlot| slot.as_mut().is_some_and(|ledger| ledger.name(address, label));
    match device {
        Some(device) => slot_of(device).is_some_and(in_slot),
        None => is_recording() && each_slot().any(in_slot),
    }
}

/// Keeps the order in which this thread's backward pass visits the nodes of a graph, if the device is recorded.
#[cfg(feature = "candle")]
pub(crate) fn hand_over(device: Device, nodes: impl Iterator<Item = HandedOverNode>) {
    let _own = guard::own_work();
    let thread = thread::number();
    let mut slot = slot_of(device);
    if let Some(ledger) = slot.as_mut().and_then(|slot| slot.as_mut()) {
        ledger.hand_over(thread, nodes);
    }
}

pub(crate) fn on_scope(enter: bool, instance: u64, context: ContextId) {
    // Own work, because a signal handler that allocates must not wait for the thread that it interrupted.
    let _own = guard::own_work();
    let thread = thread::number();
    let mut active = 1;
    for index in 0..MAX_DEVICES {
        if active & (1 << index) == 0 {
            continue;
        }
        let Some(mut slot) = slot(index) else { continue };
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use memtrace_core::snapshot::Settings;

    use super::*;
    use crate::record::untraced;

    /// Retries, as another test of this process may be recording.
    fn begin(settings: &Settings) -> Instant {
        let began = Instant::now();
        while !start(settings, began, Vec::new) {
            std::thread::yield_now();
        }
        began
    }

    /// The gates that let an event through may belong to a recording that has ended since.
    #[test]
    fn an_event_that_waits_when_it_need_not_is_taken_at_once_and_counted() {
        const SIZE: u64 = 1 << 60;
        let count = || untraced::split_at(SIZE >> 1).1;
        begin(&Settings { device: Some(Device::Cuda(0)), ..Settings::default() });
        let before = count();
        let block = NewBlock { address: 0x1000, size: SIZE, asked: SIZE, site: EventSite::default() };
        wait(&HeapEvent::Alloc(block));
        assert_eq!(count() - before, SIZE);
        wait(&HeapEvent::Free { address: 0x1000, size: SIZE, site: EventSite::default(), may_be_undone: true });
        assert_eq!(count(), before);
        stop();
    }

    /// Threads share one position counter for each event, but the ledger's lock only once for many.
    #[test]
    fn the_ledger_changes_hands_once_for_many_events() {
        const EVENTS: u64 = 50_000;
        begin(&Settings { min_size: 0, max_entries: 0, ..Settings::default() });
        let before = waiting::TURNS.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for thread in 1..=4u64 {
                scope.spawn(move || {
                    let _own = guard::own_work();
                    let site = EventSite { thread: thread::number(), ..EventSite::default() };
                    for address in (1..=EVENTS).map(|number| thread << 40 | number << 4) {
                        on_heap_alloc(address, 16, 16, site, 0);
                    }
                });
            }
        });
        let turns = waiting::TURNS.load(Ordering::Relaxed) - before;
        let live = stats(Device::Cpu).map(|stats| stats.allocations.current);
        stop();
        untraced_again(4 * EVENTS * 16);
        assert!(live >= Some(4 * EVENTS), "{live:?}");
        assert!(turns < 4 * EVENTS / 16, "{turns} turns");
    }

    /// Puts the bytes of blocks that never existed back into the untraced counters.
    fn untraced_again(bytes: u64) {
        (0..bytes / 16).for_each(|_| untraced::subtract(16));
    }

    #[test]
    fn an_event_that_waited_has_the_time_at_which_it_took_place() {
        const SIZE: u64 = 65_536;
        const WAITS: Duration = Duration::from_millis(20);
        let began = begin(&Settings { min_size: SIZE, ..Settings::default() });
        let block = NewBlock { address: 0x1000, size: SIZE, asked: SIZE, site: EventSite::default() };
        let waited = || {
            waiting::turn_on();
            wait(&HeapEvent::Alloc(block));
            let sent = began.elapsed();
            std::thread::sleep(WAITS);
            let (_, copy) = copies(began).remove(0);
            wait(&HeapEvent::Free { address: 0x1000, size: SIZE, site: EventSite::default(), may_be_undone: false });
            let times: Vec<u64> = copy.ledger.records.iter().map(|record| record.time_ns).collect();
            assert!(times.is_sorted());
            Duration::from_nanos(*times.last().unwrap()) < sent + WAITS / 2
        };
        // The first one or two events come before the clock has a rate. Readings of the system clock may be disturbed
        // later, too.
        let is_told = (0..100).any(|_| waited());
        stop();
        assert!(is_told);
    }

    #[test]
    fn who_reads_the_log_takes_in_nothing_and_goes_before_the_next_batch() {
        const SIZE: u64 = 65_536;
        begin(&Settings { min_size: SIZE, ..Settings::default() });
        let block = NewBlock { address: 0x1000, size: SIZE, asked: SIZE, site: EventSite::default() };
        let come_and_go = || {
            wait(&HeapEvent::Alloc(block));
            wait(&HeapEvent::Free { address: 0x1000, size: SIZE, site: EventSite::default(), may_be_undone: false });
        };
        // Another test may use the ledger meanwhile.
        let takes_nothing = |work: &dyn Fn()| {
            (0..100).any(|_| {
                waiting::turn_on();
                let before = waiting::TURNS.load(Ordering::Relaxed);
                work();
                let turns = waiting::TURNS.load(Ordering::Relaxed) - before;
                drop(lock_heap());
                turns == 0
            })
        };
        let (end, _) = log_end(Device::Cpu, Detail::Counters, Default::default()).unwrap();
        let reading = takes_nothing(&|| {
            come_and_go();
            read_log(Device::Cpu, &mut Default::default(), &end, 100, &mut Default::default()).unwrap();
            skip_log(Device::Cpu, &mut Default::default(), &end, &mut Default::default());
        });
        waiting::READERS.fetch_add(1, Ordering::Relaxed);
        let sending = takes_nothing(&|| (0..300).for_each(|_| come_and_go()));
        waiting::READERS.fetch_sub(1, Ordering::Relaxed);
        stop();
        assert_eq!((reading, sending), (true, true));
    }

    #[test]
    fn a_block_below_the_sessions_threshold_is_not_taken_whatever_gate_let_it_through() {
        let settings = Settings { min_size: 65_536, ..Settings::default() };
        let began = begin(&settings);
        assert!(!on_heap_alloc(0x1000, 2048, 2048, EventSite::default(), 0));
        // A block that the sampling of another session selected.
        assert!(!on_heap_alloc(0x1000, 65_536, 65_536, EventSite::default(), 1 << 19));
        assert!(matches!(on_heap_free(0x1000, 2048, false), LedgerFree::NotRecorded));
        assert!(on_heap_alloc(0x2000, 65_536, 65_536, EventSite::default(), 0));
        assert!(matches!(on_heap_free(0x2000, 65_536, false), LedgerFree::Recorded(..)));
        assert!(matches!(on_heap_free(0x3000, 65_536, false), LedgerFree::FromBefore(_)));
        assert!(copies(began + Duration::from_nanos(1)).is_empty(), "of another recording");
        let (_, copy) = copies(began).remove(0);
        stop();
        assert_eq!((copy.ledger.records.len(), copy.ledger.live.len()), (3, 0));
        untraced::add(65_536);
    }
}
