//! A benchmark case: a way to record, a stack depth, a number of live blocks and of threads.

use std::alloc::System;
use std::sync::Barrier;
use std::time::Instant;

use memtrace::{Builder, Device};

use crate::chains::{Blocks, deeper};
use crate::clock;
use crate::heaps::{Heap, Naive, clear_logs, frames_seen};

/// Pairs before the timed ones; enough for every call chain to occur.
pub(crate) const WARM_UP: usize = 8192;

#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) heap: Heap,
    pub(crate) session: Option<fn() -> Builder>,
    /// Target number of frames.
    pub(crate) wished: usize,
    /// Counted by `find_depth`.
    pub(crate) frames: usize,
    pub(crate) live: usize,
    pub(crate) threads: usize,
    /// Stacks repeat in the same order.
    pub(crate) in_order: bool,
    /// Allocates the live blocks before the first pair, which a naive recorder need not see.
    blocks_from: Heap,
    /// Frames added to reach the target.
    levels: usize,
}

/// One round's nanoseconds per pair.
#[derive(Clone, Copy)]
pub(crate) struct Round {
    pub(crate) mean: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

impl Case {
    pub(crate) const fn new(name: &'static str, heap: Heap, session: Option<fn() -> Builder>, frames: usize) -> Self {
        let (live, threads, in_order) = (10_000, 1, false);
        Self { name, heap, session, wished: frames, frames, live, threads, in_order, blocks_from: heap, levels: 0 }
    }

    /// Another recorder, on the system allocator.
    pub(crate) const fn other(name: &'static str, heap: Heap, frames: usize) -> Self {
        Self { blocks_from: &System, ..Self::new(name, heap, None, frames) }
    }

    pub(crate) fn live(self, live: usize) -> Self {
        Self { live, ..self }
    }

    /// The same with stacks in order, as in a program's loop.
    pub(crate) fn in_order(self, name: &'static str) -> Self {
        Self { name, in_order: true, ..self }
    }

    pub(crate) fn threads(self, threads: usize) -> Self {
        Self { threads, ..self }
    }

    /// Runs `pairs` pairs on each thread, in a new session if the case has one.
    #[inline(never)]
    pub(crate) fn measure(&self, warm_up: usize, pairs: usize) -> Round {
        let session = self.session.map(|options| options().start().expect("no other session is under way"));
        let barrier = Barrier::new(self.threads);
        let on_thread = |thread: usize| self.on_thread(thread, &barrier, warm_up, pairs);
        let rounds: Vec<Round> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..self.threads).map(|thread| scope.spawn(move || on_thread(thread))).collect();
            all.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
        });
        let recorded = memtrace::stats(Device::Cpu).allocations.allocated as usize;
        let done = self.live / self.threads * self.threads + (warm_up + 2 * pairs) * self.threads;
        // Under sampling the count is an estimate.
        assert_eq!(recorded * 2 >= done, session.is_some(), "{}: {recorded} recorded", self.name);
        drop(session);
        let slowest = |of: fn(&Round) -> f64| rounds.iter().map(of).fold(0.0, f64::max);
        Round { mean: slowest(|r| r.mean), p50: slowest(|r| r.p50), p99: slowest(|r| r.p99) }
    }

    #[inline(never)]
    fn on_thread(&self, thread: usize, barrier: &Barrier, warm_up: usize, pairs: usize) -> Round {
        let mut blocks = Blocks::new(self.blocks_from, self.live / self.threads, 99 + thread as u64, self.in_order);
        let mut took = Vec::with_capacity(pairs);
        let (mut mean, mut timed) = (0.0, 0.0);
        deeper(self.levels, &mut || {
            blocks.exchange(self.heap, warm_up);
            barrier.wait();
            let began = Instant::now();
            blocks.exchange(self.heap, pairs);
            mean = began.elapsed().as_nanos() as f64 / pairs.max(1) as f64;
            let (began, ticks) = (Instant::now(), clock::ticks());
            blocks.exchange_timed(self.heap, pairs, &mut took);
            timed = began.elapsed().as_nanos() as f64 / (clock::ticks() - ticks).max(1) as f64;
        });
        took.sort_unstable();
        let at = |part: f64| took.get((pairs as f64 * part) as usize).copied().unwrap_or(0);
        let ns = |ticks: u32| f64::from(ticks.saturating_sub(clock::overhead())) * timed;
        Round { mean, p50: ns(at(0.5)), p99: ns(at(0.99)) }
    }

    /// Finds the levels at which a naive recorder sees the target number of frames.
    #[inline(never)]
    pub(crate) fn find_depth(&mut self) {
        let mut counter = Self { live: 1, ..Self::other("frame counter", &Naive, 0) };
        counter.levels = self.wished.saturating_sub(counter.seen());
        (self.levels, self.frames) = (counter.levels, counter.seen());
    }

    /// Frames that the naive recorder sees.
    fn seen(&self) -> usize {
        clear_logs();
        self.measure(0, 1);
        let frames = frames_seen();
        clear_logs();
        frames
    }
}
