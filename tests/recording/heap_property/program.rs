//! A random program: real blocks on real threads, one step after another, with the oracle beside it.

use std::sync::mpsc;

use memtrace::ScopeGuard;
use proptest::prelude::*;
use proptest::sample::Index;

use super::oracle::Oracle;
use crate::support::MIB;
use crate::ticks::Ticks;

const THREADS: usize = 4;

/// One thread's operation.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Alloc(usize),
    Resize(Index, usize),
    Free(Index),
    FreeOld(Index),
    Enter(&'static str),
    Leave(Index),
}

/// An operation and its thread's number.
pub(crate) type Step = (usize, Op);

pub(crate) fn step() -> impl Strategy<Value = Step> {
    // Few sizes, so that different live sets often have the same total.
    let size = || prop_oneof![(1..=4usize).prop_map(|n| n * MIB), (MIB..4 * MIB)];
    let op = prop_oneof![
        6 => size().prop_map(Op::Alloc),
        3 => (any::<Index>(), size()).prop_map(|(which, size)| Op::Resize(which, size)),
        4 => any::<Index>().prop_map(Op::Free),
        1 => any::<Index>().prop_map(Op::FreeOld),
        2 => prop::sample::select(vec!["a", "b", "c"]).prop_map(Op::Enter),
        2 => any::<Index>().prop_map(Op::Leave),
    ];
    (0..THREADS, op)
}

/// A thread that runs commands one after another.
struct Worker {
    jobs: mpsc::Sender<Job>,
    /// Names of its open scopes.
    path: Vec<&'static str>,
}

type Job = Box<dyn FnOnce(&mut Vec<ScopeGuard>) + Send>;

impl Worker {
    fn start(signals: bool) -> Self {
        let (jobs, todo) = mpsc::channel::<Job>();
        std::thread::spawn(move || {
            let _ticks = signals.then(Ticks::begin);
            let mut scopes = Vec::new();
            todo.into_iter().for_each(|job| job(&mut scopes));
        });
        Self { jobs, path: Vec::new() }
    }

    fn run<R: Send + 'static>(&self, job: impl FnOnce(&mut Vec<ScopeGuard>) -> R + Send + 'static) -> R {
        let (answer, answered) = mpsc::channel();
        self.jobs.send(Box::new(move |scopes| answer.send(job(scopes)).unwrap())).unwrap();
        answered.recv().unwrap()
    }
}

/// The ledger's key of a block. Vectors of bytes have exactly the requested capacity.
fn key(block: &Vec<u8>) -> (u64, u64) {
    (block.as_ptr().addr() as u64, block.capacity() as u64)
}

fn take(blocks: &mut Vec<Vec<u8>>, which: Index) -> Option<Vec<u8>> {
    if blocks.is_empty() { None } else { Some(blocks.swap_remove(which.index(blocks.len()))) }
}

pub(crate) struct Program {
    workers: Vec<Worker>,
    blocks: Vec<Vec<u8>>,
    /// Blocks from before the recording.
    old: Vec<Vec<u8>>,
    pub(crate) oracle: Oracle,
}

impl Program {
    /// With signals or without.
    pub(crate) fn new(signals: bool) -> Self {
        Self {
            workers: (0..THREADS).map(|_| Worker::start(signals)).collect(),
            blocks: Vec::new(),
            old: (1..=3).map(|n| Vec::with_capacity(n * MIB)).collect(),
            oracle: Oracle::new(),
        }
    }

    pub(crate) fn step(&mut self, (thread, op): Step) {
        match op {
            Op::Alloc(size) => self.alloc(thread, size),
            Op::Resize(which, size) => self.resize(thread, which, size),
            Op::Free(which) => self.free(thread, which),
            Op::FreeOld(which) => self.free_old(thread, which),
            Op::Enter(name) => self.enter(thread, name),
            Op::Leave(which) => self.leave(thread, which),
        }
    }

    /// Closes every scope, so that none remains for the next program.
    pub(crate) fn finish(self) {
        self.workers.iter().for_each(|worker| worker.run(Vec::clear));
    }

    fn alloc(&mut self, thread: usize, size: usize) {
        let worker = &self.workers[thread];
        let block = worker.run(move |_| Vec::with_capacity(size));
        self.oracle.alloc(key(&block), &worker.path);
        self.blocks.push(block);
    }

    fn resize(&mut self, thread: usize, which: Index, size: usize) {
        let Some(mut block) = take(&mut self.blocks, which) else { return };
        let (worker, before) = (&self.workers[thread], key(&block));
        let block = worker.run(move |_| {
            if size > block.capacity() {
                block.reserve_exact(size)
            } else {
                block.shrink_to(size)
            }
            block
        });
        // A resize to the same size does nothing.
        if before.1 != size as u64 {
            self.oracle.free(before.0);
            self.oracle.alloc(key(&block), &worker.path);
        }
        self.blocks.push(block);
    }

    fn free(&mut self, thread: usize, which: Index) {
        let Some(block) = take(&mut self.blocks, which) else { return };
        self.oracle.free(key(&block).0);
        self.workers[thread].run(move |_| drop(block));
    }

    fn free_old(&mut self, thread: usize, which: Index) {
        let Some(block) = take(&mut self.old, which) else { return };
        self.oracle.free_old(key(&block).1);
        self.workers[thread].run(move |_| drop(block));
    }

    fn enter(&mut self, thread: usize, name: &'static str) {
        let worker = &mut self.workers[thread];
        worker.path.push(name);
        worker.run(move |scopes| scopes.push(memtrace::scope_guard(name)));
    }

    /// Closes any open scope, not only the innermost one.
    fn leave(&mut self, thread: usize, which: Index) {
        let worker = &mut self.workers[thread];
        if !worker.path.is_empty() {
            let at = which.index(worker.path.len());
            worker.path.remove(at);
            worker.run(move |scopes| drop(scopes.remove(at)));
        }
    }
}
