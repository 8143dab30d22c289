//! Processor time of a pair on many threads at once: what recording costs must not grow with them.

use std::alloc::System;
use std::sync::Barrier;

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

/// Prints nanoseconds of processors per pair: medians of the rounds, and their ratios to one thread's.
pub(crate) fn print(rounds: usize) {
    let mut all = THREADS.map(|_| [const { Vec::new() }; 2]);
    for _ in 0..rounds {
        for (threads, cells) in THREADS.iter().zip(&mut all) {
            cells[0].push(cost(&System, *threads));
            let session = memtrace::builder().start().expect("no other session is under way");
            cells[1].push(cost(&ALLOC, *threads));
            drop(session);
        }
    }
    println!("{:>8}{:>10}{:>10}{:>10}{:>14}{:>14}", "threads", "system", "full", "added", "full × one", "added × one");
    let row = |cells: &[Vec<f64>; 2]| (median(cells[0].iter().copied()), median(cells[1].iter().copied()));
    let one = row(&all[0]);
    for (threads, cells) in THREADS.iter().zip(&all) {
        let (system, full) = row(cells);
        let (added, added_by_one) = (full - system, one.1 - one.0);
        println!(
            "{threads:>8}{system:>10.0}{full:>10.0}{added:>10.0}{:>14.2}{:>14.2}",
            full / one.1,
            added / added_by_one
        );
    }
}

/// Nanoseconds of processors per pair.
fn cost(heap: Heap, threads: usize) -> f64 {
    let barrier = Barrier::new(threads);
    let on_thread = |seed: usize| {
        let mut blocks = Blocks::new(heap, LIVE / threads, 99 + seed as u64, false);
        let mut took = 0;
        deeper(LEVELS, &mut || {
            blocks.exchange(heap, WARM_UP / threads);
            barrier.wait();
            let before = processor_ns();
            blocks.exchange(heap, PAIRS / threads);
            took = processor_ns() - before;
        });
        took
    };
    let took: u64 = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|seed| scope.spawn(move || on_thread(seed))).collect();
        all.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    });
    took as f64 / PAIRS as f64
}

/// Processor time of this thread.
fn processor_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
