//! Processor time of a pair on many threads at once: what recording costs must not grow with them, also where threads are stopped
//! wherever they are, as a scheduler does.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::ALLOC;
use crate::case::WARM_UP;
use crate::chains::{Blocks, deeper};
use crate::figures::median;
use crate::heaps::Heap;

const LIVE: usize = 10_000;
const THREADS: [usize; 6] = [1, 2, 4, 8, 16, 64];
/// Levels of calls around each thread's pairs; with the chain's and the thread's own, some 21 frames.
const LEVELS: usize = 8;
/// Pairs of all threads together.
const PAIRS: usize = 1 << 18;

/// How often a thread is stopped, and for how long.
const EACH: Duration = Duration::from_millis(2);
const STOPPED_NS: i64 = 1_000_000;

/// The system allocator, with one shared addition for each event: what an order of all events costs at least.
struct Numbered;

static NUMBER: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes everything on to the system allocator.
unsafe impl GlobalAlloc for Numbered {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        NUMBER.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        NUMBER.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Prints nanoseconds of processors per pair: medians of the rounds, and their ratios to one thread's.
pub(crate) fn print(rounds: usize) {
    let mut all = THREADS.map(|_| [const { Vec::new() }; 4]);
    for _ in 0..rounds {
        for (threads, cells) in THREADS.iter().zip(&mut all) {
            cells[0].push(cost(&System, *threads, false));
            cells[1].push(cost(&Numbered, *threads, false));
            for (cell, stopped) in cells[2..].iter_mut().zip([false, true]) {
                let session = memtrace::builder().start().expect("no other session is under way");
                cell.push(cost(&ALLOC, *threads, stopped));
                drop(session);
            }
        }
    }
    let medians = all.map(|cells| cells.map(|cell| median(cell.into_iter())));
    let [one, ..] = medians;
    println!("nanoseconds of processors per pair; in brackets: times one thread\n");
    println!(
        "{:>8}{:>10}{:>10}{:>18}{:>18}{:>24}",
        "threads", "system", "numbered", "recording", "added", "recording, stopped"
    );
    for (threads, [system, numbered, full, stopped]) in THREADS.iter().zip(medians) {
        let beside = |value: f64, one: f64| format!("{value:.0} ({:.2})", value / one);
        let (added, stopped) = (beside(full - system, one[2] - one[0]), beside(stopped, one[3]));
        println!("{threads:>8}{system:>10.0}{numbered:>10.0}{:>18}{added:>18}{stopped:>24}", beside(full, one[2]));
    }
}

/// Nanoseconds of processors per pair.
fn cost(heap: Heap, threads: usize, stopped: bool) -> f64 {
    let barrier = Barrier::new(threads);
    let ids: Vec<AtomicI32> = (0..threads).map(|_| AtomicI32::new(0)).collect();
    let on_thread = |seed: usize| {
        let mut blocks = Blocks::new(heap, LIVE / threads, 99 + seed as u64, false);
        let mut took = 0;
        deeper(LEVELS, &mut || {
            blocks.exchange(heap, WARM_UP / threads);
            barrier.wait();
            // SAFETY: returns a number.
            ids[seed].store(unsafe { libc::gettid() }, Relaxed);
            let before = processor_ns();
            blocks.exchange(heap, PAIRS / threads);
            took = processor_ns() - before;
            ids[seed].store(0, Relaxed);
        });
        took
    };
    let goes_on = AtomicBool::new(stopped);
    let took: u64 = std::thread::scope(|scope| {
        let stopper = scope.spawn(|| stop_threads(&ids, &goes_on));
        let all: Vec<_> = (0..threads).map(|seed| scope.spawn(move || on_thread(seed))).collect();
        let took = all.into_iter().map(|thread| thread.join().expect("no thread panics")).sum();
        goes_on.store(false, Relaxed);
        stopper.join().expect("no thread panics");
        took
    });
    took as f64 / PAIRS as f64
}

/// Stops one thread after the other, wherever it is.
fn stop_threads(ids: &[AtomicI32], goes_on: &AtomicBool) {
    extern "C" fn pause(_: libc::c_int) {
        let time = libc::timespec { tv_sec: 0, tv_nsec: STOPPED_NS };
        // SAFETY: reads one `timespec`; may be called in signal handlers.
        unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
    }
    // SAFETY: the handler does what handlers may.
    unsafe { libc::signal(libc::SIGUSR1, pause as extern "C" fn(_) as usize) };
    for id in ids.iter().cycle().take_while(|_| goes_on.load(Relaxed)) {
        let id = id.load(Relaxed);
        if id != 0 {
            // SAFETY: the handler is there; a thread that has ended is an error.
            unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), id, libc::SIGUSR1) };
        }
        std::thread::sleep(EACH);
    }
}

/// Processor time of this thread.
fn processor_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
