//! Thirty programs with a planted leak, growth or peak: in cells, in containers that double, in work that older threads do.
//! Each asks for 1 to 3,000 iterations. None may pass; at most five may end undecided.
//!
//! `MEMTRACE_TEST_RUNS=200 cargo test --test verdicts planted -- --nocapture` prints a row for each.

use std::cell::{OnceCell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::hint::black_box;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Once, OnceLock, PoisonError, mpsc};

use crate::{Verdict, one_at_a_time, removed, runs_or, runtime};
use memtrace::{NoGrowth, NoLeak, PeakLimit};

const LARGE: usize = 16 << 20;
const SMALL: usize = 4 << 10;
/// Room for the blocks of all runs of an assertion.
const MOST_RUNS: usize = 10_000;

fn block(size: usize) -> Vec<u8> {
    black_box(vec![1u8; size])
}

fn peak(f: impl FnOnce()) -> Verdict {
    PeakLimit::new().limit("1 MiB").run(f)
}

fn leak<T>(runs: usize, f: impl FnMut() -> T) -> Verdict {
    NoLeak::new().runs(runs).run(f)
}

fn growth<T>(iterations: usize, f: impl FnMut() -> T) -> Verdict {
    NoGrowth::new().iterations(iterations).run(f)
}

/// Keeps what `make` returns in each run.
fn kept<T>(watch: impl FnOnce(&mut dyn FnMut()) -> Verdict, mut make: impl FnMut() -> T) -> Verdict {
    let mut all = Vec::with_capacity(MOST_RUNS);
    watch(&mut || all.push(make()))
}

// Cells of std, one in an object of each run.

#[derive(Default)]
struct Layer {
    mask: OnceLock<Vec<u8>>,
}

impl Layer {
    fn with_mask(size: usize) -> Self {
        let layer = Self::default();
        layer.mask.get_or_init(|| block(size));
        layer
    }
}

struct Table {
    once: Once,
    rows: RefCell<Vec<u8>>,
}

impl Table {
    fn filled() -> Self {
        let table = Self { once: Once::new(), rows: RefCell::default() };
        table.once.call_once(|| *table.rows.borrow_mut() = block(SMALL));
        table
    }
}

fn lazy() -> Box<LazyLock<Vec<u8>>> {
    let lazy = Box::new(LazyLock::new((|| block(SMALL)) as fn() -> Vec<u8>));
    LazyLock::force(&lazy);
    lazy
}

// Cells of another kind.

/// As a library without std would write it.
#[derive(Default)]
struct Slot(Mutex<Option<Vec<u8>>>);

impl Slot {
    fn filled(size: usize) -> Self {
        let slot = Self::default();
        slot.0.lock().unwrap().get_or_insert_with(|| block(size));
        slot
    }
}

struct Shared(AtomicPtr<Vec<u8>>);

impl Shared {
    fn filled() -> Self {
        let shared = Self(AtomicPtr::default());
        shared.0.store(Box::leak(Box::new(block(SMALL))), Ordering::Release);
        shared
    }
}

fn local() -> OnceCell<Vec<u8>> {
    let cell = OnceCell::new();
    cell.get_or_init(|| block(SMALL));
    cell
}

fn optional() -> RefCell<Option<Vec<u8>>> {
    let cell = RefCell::new(None);
    cell.borrow_mut().get_or_insert_with(|| block(SMALL));
    cell
}

// Work that older threads do.

/// What other threads keep; it has room for all runs.
fn keep() -> MutexGuard<'static, Vec<Vec<u8>>> {
    static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

fn keeps_a_block() {
    let block = block(SMALL);
    keep().push(block);
}

/// Forgets what the verdict before kept.
fn with_room(check: impl FnOnce() -> Verdict) -> Verdict {
    *keep() = Vec::with_capacity(MOST_RUNS);
    check()
}

/// A thread that was there before and is asked by a number that it looks at.
fn asked_by_a_number(work: fn(), check: impl FnOnce(&dyn Fn()) -> Verdict) -> Verdict {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    static DONE: AtomicUsize = AtomicUsize::new(0);
    const STOP: usize = usize::MAX;
    ASKED.store(0, Ordering::SeqCst);
    DONE.store(0, Ordering::SeqCst);
    let worker = std::thread::spawn(move || {
        loop {
            match ASKED.load(Ordering::SeqCst) {
                STOP => return,
                asked if asked > DONE.load(Ordering::SeqCst) => {
                    work();
                    DONE.store(asked, Ordering::SeqCst);
                }
                _ => std::thread::yield_now(),
            }
        }
    });
    let outcome = check(&|| {
        let number = ASKED.fetch_add(1, Ordering::SeqCst) + 1;
        while DONE.load(Ordering::SeqCst) < number {
            std::thread::yield_now();
        }
    });
    ASKED.store(STOP, Ordering::SeqCst);
    worker.join().unwrap();
    outcome
}

/// A thread that was there before and is sent functions, which capture nothing.
fn sent_functions(work: fn(), check: impl FnOnce(&dyn Fn()) -> Verdict) -> Verdict {
    let (ask, asked) = mpsc::sync_channel::<fn()>(1);
    let (done, wait) = mpsc::sync_channel(1);
    let worker = std::thread::spawn(move || {
        for work in asked {
            work();
            done.send(()).unwrap();
        }
    });
    ask.send(|| ()).unwrap();
    wait.recv().unwrap();
    let outcome = check(&|| {
        ask.send(work).unwrap();
        wait.recv().unwrap();
    });
    drop(ask);
    worker.join().unwrap();
    outcome
}

fn in_a_scope() {
    rayon::scope(|scope| scope.spawn(|_| keeps_a_block()));
}

/// Does not sleep while it waits.
fn spawned_while_this_thread_works() {
    static DONE: AtomicUsize = AtomicUsize::new(0);
    let before = DONE.load(Ordering::SeqCst);
    rayon::spawn(|| {
        keeps_a_block();
        DONE.fetch_add(1, Ordering::SeqCst);
    });
    while DONE.load(Ordering::SeqCst) == before {
        std::hint::spin_loop();
    }
}

fn in_a_task(runtime: &tokio::runtime::Runtime) {
    runtime.block_on(async {
        tokio::spawn(async {
            tokio::task::yield_now().await;
            keeps_a_block();
        })
        .await
        .unwrap();
    });
}

type Program = fn() -> Verdict;

const CELLS: [(&str, Program); 12] = [
    ("1: peak, a `OnceLock` in an object", || peak(|| drop(Layer::with_mask(LARGE)))),
    ("8: leak, objects with a `OnceLock`", || kept(|run| leak(8, run), || Box::new(Layer::with_mask(SMALL)))),
    ("20: growth, a `OnceLock` by value", || kept(|run| growth(20, run), || Layer::with_mask(SMALL))),
    ("100: leak, `LazyLock`s in boxes", || kept(|run| leak(100, run), lazy)),
    ("1,000: growth, a `Once` beside its table", || kept(|run| growth(1000, run), || Box::new(Table::filled()))),
    ("3,000: growth, a `OnceLock` in an `Arc`", || kept(|run| growth(3000, run), || Arc::new(Layer::with_mask(SMALL)))),
    ("1: peak, a slot on the stack", || peak(|| drop(Slot::filled(LARGE)))),
    ("8: leak, `OnceCell`s in boxes", || kept(|run| leak(8, run), || Box::new(local()))),
    ("20: growth, a pointer that is set once", || kept(|run| growth(20, run), Shared::filled)),
    ("100: leak, an `Option` in a `RefCell`", || kept(|run| leak(100, run), optional)),
    ("1,000: growth, slots", || kept(|run| growth(1000, run), || Slot::filled(SMALL))),
    ("3,000: growth, `OnceCell`s by value", || kept(|run| growth(3000, run), local)),
];

const CONTAINERS: [(&str, Program); 10] = [
    ("1: leak, a `Vec` of arrays", || {
        let mut all: Vec<[u8; SMALL]> = Vec::new();
        leak(1, || all.push(black_box([0; SMALL])))
    }),
    ("8: leak, a `String`", || {
        let mut log = String::new();
        leak(8, || log.push_str("a line of a log that grows on and on\n"))
    }),
    ("20: growth, a `Vec` of numbers", || numbers(20)),
    ("20: growth, a `HashMap` with 1 KiB a run", || values_by_key(20, [0u8; 1 << 10])),
    ("100: growth, a `Vec` of numbers", || numbers(100)),
    ("100: growth, a `Vec` with 4 KiB a run", || {
        let mut all = Vec::new();
        growth(100, || all.extend_from_slice(&black_box([1u8; SMALL])))
    }),
    ("1,000: growth, a `VecDeque`", || {
        let mut queue = VecDeque::new();
        growth(1000, || queue.push_back(black_box(1u64)))
    }),
    ("1,000: growth, a `HashMap` of numbers", || values_by_key(1000, 1u64)),
    ("3,000: growth, a `Vec` of numbers", || numbers(3000)),
    ("3,000: growth, a `String`", || {
        let mut log = String::new();
        growth(3000, || log.push_str("a line of a log\n"))
    }),
];

fn numbers(iterations: usize) -> Verdict {
    let mut all: Vec<f64> = Vec::new();
    growth(iterations, || all.push(black_box(1.0)))
}

fn values_by_key<T: Copy>(iterations: usize, value: T) -> Verdict {
    let (mut map, mut key) = (HashMap::new(), 0u64);
    growth(iterations, || {
        key += 1;
        map.insert(key, black_box(value))
    })
}

const HANDED_OVER: [(&str, Program); 8] = [
    ("1: peak, asked by a number", || asked_by_a_number(|| drop(block(LARGE)), |ask| peak(ask))),
    ("1: peak, sent a function", || sent_functions(|| drop(block(LARGE)), |ask| peak(ask))),
    ("1: leak, `rayon::scope`", || with_room(|| leak(1, in_a_scope))),
    ("8: leak, `rayon::spawn` beside work", || with_room(|| leak(8, spawned_while_this_thread_works))),
    ("20: growth, a task of an older runtime", || {
        let runtime = runtime();
        runtime.block_on(async { tokio::spawn(async {}).await.unwrap() });
        with_room(|| growth(20, || in_a_task(&runtime)))
    }),
    ("100: growth, sent a function", || with_room(|| sent_functions(keeps_a_block, |ask| growth(100, ask)))),
    ("1,000: leak, asked by a number", || with_room(|| asked_by_a_number(keeps_a_block, |ask| leak(1000, ask)))),
    ("3,000: growth, asked by a number", || with_room(|| asked_by_a_number(keeps_a_block, |ask| growth(3000, ask)))),
];

/// How many of the runs found the planted fault, were undecided, and passed.
#[derive(Default)]
struct Outcomes {
    found: usize,
    undecided: usize,
    silent: usize,
}

fn outcomes(program: Program, runs: usize) -> Outcomes {
    let mut all = Outcomes::default();
    for _ in 0..runs {
        match program() {
            Ok(()) => all.silent += 1,
            Err(failure) => {
                assert!(failure.is_violation() || failure.is_undecided(), "{failure}");
                let kind = if failure.is_violation() { &mut all.found } else { &mut all.undecided };
                *kind += 1;
                removed(&failure);
            }
        }
    }
    all
}

#[test]
fn planted_faults_are_found_and_none_passes() {
    let _one = one_at_a_time();
    // A pool that was there before.
    rayon::join(|| (), || ());
    let (runs, mut found, mut silent) = (runs_or(1), 0, Vec::new());
    for (name, program) in CELLS.iter().chain(&CONTAINERS).chain(&HANDED_OVER) {
        let all = outcomes(*program, runs);
        println!("{name}: found {}, undecided {}, passed {}", all.found, all.undecided, all.silent);
        found += usize::from(all.found == runs);
        if all.silent > 0 {
            silent.push(*name);
        }
    }
    println!("{found} of 30 are always found");
    assert!(silent.is_empty(), "these passed: {silent:?}");
    assert!(found >= 25, "{found} of 30 are always found");
}

#[test]
fn work_in_a_scope_of_a_pool_never_passes() {
    let _one = one_at_a_time();
    rayon::join(|| (), || ());
    let runs = runs_or(1) * 10;
    let silent = |program: Program| outcomes(program, runs).silent;
    let leaks = silent(|| with_room(|| leak(3, in_a_scope)));
    let peaks = silent(|| peak(|| rayon::scope(|scope| scope.spawn(|_| drop(block(LARGE))))));
    println!("{leaks} leaks and {peaks} peaks of {runs} passed");
    assert_eq!((leaks, peaks), (0, 0));
}
