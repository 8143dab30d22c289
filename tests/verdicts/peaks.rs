//! Peaks of work on other threads are found, or reported as undecided; unrelated work does not count.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use crate::{Verdict, fails, one_at_a_time, passes, runs, runtime};
use memtrace::PeakLimit;

const MIB: usize = 1 << 20;

fn limit() -> PeakLimit {
    PeakLimit::new().limit("1 MiB")
}

fn large() -> usize {
    black_box(vec![1u8; 16 * MIB]).len()
}

#[test]
fn of_a_thread() {
    fails(|| limit().run(|| std::thread::spawn(large).join().unwrap()).map(drop));
    fails(|| limit().run(|| std::thread::scope(|threads| threads.spawn(large).join().unwrap())).map(drop));
}

#[test]
fn of_a_pool() {
    use rayon::prelude::*;
    let parts = || (0..8).into_par_iter().map(|_| black_box(vec![1u8; 2 * MIB]).len()).sum::<usize>();
    fails(|| limit().run(parts).map(drop));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    fails(|| limit().run(|| pool.install(large)).map(drop));
}

#[test]
fn of_tasks() {
    let runtime = runtime();
    let blocking = || runtime.block_on(async { tokio::task::spawn_blocking(large).await.unwrap() });
    let task = || runtime.block_on(async { tokio::spawn(async { large() }).await.unwrap() });
    fails(|| limit().run(blocking).map(drop));
    fails(|| limit().run(task).map(drop));
}

/// Runs the check while another thread measures the whole process.
fn beside_the_whole_process(check: impl FnOnce() -> Verdict) -> Verdict {
    let ((open, is_open), (close, is_closed)) = (mpsc::channel(), mpsc::channel());
    let whole = move || {
        let everything = PeakLimit::new().limit("1 GiB").whole_process(true);
        everything.run(|| {
            open.send(()).unwrap();
            is_closed.recv().unwrap();
        })
    };
    std::thread::scope(|threads| {
        threads.spawn(move || whole().unwrap());
        is_open.recv().unwrap();
        let outcome = check();
        close.send(()).unwrap();
        outcome
    })
}

#[test]
fn of_a_task_beside_a_measurement_of_the_whole_process() {
    let runtime = runtime();
    let task = || runtime.block_on(async { tokio::spawn(async { large() }).await.unwrap() });
    fails(|| beside_the_whole_process(|| limit().run(task).map(drop)));
}

#[test]
fn of_an_actor_beside_a_measurement_of_the_whole_process() {
    fails(|| beside_the_whole_process(|| with_an_actor(|ask| limit().run(ask))));
    passes(|| beside_the_whole_process(|| with_an_actor(|ask| limit().allow("with_an_actor").run(ask))));
}

#[test]
fn of_an_actor_with_closures() {
    let (to, work) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
    std::thread::spawn(move || work.iter().for_each(|work| work()));
    fails(|| {
        let ask = || {
            let (done, wait) = mpsc::channel();
            to.send(Box::new(move || done.send(large()).unwrap())).unwrap();
            wait.recv().unwrap()
        };
        limit().run(ask).map(drop)
    });
}

/// Requests are numbers, replies are blocks.
fn with_an_actor(check: impl Fn(&dyn Fn()) -> Verdict) -> Verdict {
    let (to, sizes) = mpsc::channel::<usize>();
    let (give, blocks) = mpsc::channel();
    let actor = std::thread::Builder::new().name("loader".to_owned());
    let actor = actor.spawn(move || sizes.iter().for_each(|size| give.send(vec![1u8; size]).unwrap())).unwrap();
    // The channels allocate their first blocks before the measurement.
    to.send(1).unwrap();
    drop(blocks.recv().unwrap());
    let outcome = check(&|| {
        to.send(16 * MIB).unwrap();
        drop(blocks.recv().unwrap());
    });
    drop(to);
    actor.join().unwrap();
    outcome
}

#[test]
fn of_an_actor_without_a_known_client() {
    fails(|| with_an_actor(|ask| limit().run(ask)));
    let failure = with_an_actor(|ask| limit().run(ask)).unwrap_err();
    assert!(failure.is_undecided() && !failure.is_violation(), "{failure}");
    let text = failure.to_string();
    for part in ["undecided: the peak", "16.00 MiB", "tests/verdicts/peaks.rs:", "allow = "] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    passes(|| with_an_actor(|ask| limit().allow("with_an_actor").run(ask)));
    let _one = one_at_a_time();
    let whole = with_an_actor(|ask| limit().whole_process(true).run(ask)).unwrap_err();
    assert!(whole.is_violation(), "{whole}");
    whole.snapshot().map(std::fs::remove_file).transpose().unwrap();
}

/// Checks a small block beside a thread that the test started before, and that works on its own.
fn beside_a_busy_thread(limit: PeakLimit) -> Verdict {
    let (done, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                drop(black_box(vec![1u8; 2 * MIB]));
                done.fetch_add(1, Ordering::SeqCst);
            }
        });
        let outcome = limit.run(|| {
            let before = done.load(Ordering::SeqCst);
            while done.load(Ordering::SeqCst) < before + 2 {
                std::thread::yield_now();
            }
            black_box(vec![0u8; 5000]).len()
        });
        stop.store(true, Ordering::SeqCst);
        outcome.map(drop)
    })
}

#[test]
fn of_a_thread_that_may_have_been_asked_are_undecided_unless_it_is_allowed() {
    fails(|| beside_a_busy_thread(limit()));
    let failure = beside_a_busy_thread(limit()).unwrap_err();
    assert!(failure.is_undecided(), "{failure}");
    passes(|| beside_a_busy_thread(limit().allow("beside_a_busy_thread")));
}

#[test]
fn of_the_whole_process_on_request() {
    let _one = one_at_a_time();
    for _ in 0..runs() {
        let (go, wait) = mpsc::channel::<()>();
        let (done, end) = mpsc::channel();
        let worker = std::thread::spawn(move || {
            wait.recv().unwrap();
            done.send(large()).unwrap();
        });
        let failure = limit().whole_process(true).run(|| {
            go.send(()).unwrap();
            end.recv().unwrap()
        });
        worker.join().unwrap();
        let failure = failure.unwrap_err();
        assert!(failure.is_violation(), "{failure}");
        failure.snapshot().map(std::fs::remove_file).transpose().unwrap();
    }
}

/// Checks on a thread whose work this thread, which started it, does.
fn by_the_thread_that_began(limit: PeakLimit) -> Verdict {
    let asked = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        let checked = threads.spawn(|| {
            limit.run(|| {
                asked.store(1, Ordering::SeqCst);
                while asked.load(Ordering::SeqCst) == 1 {
                    std::thread::yield_now();
                }
            })
        });
        while asked.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        large();
        asked.store(2, Ordering::SeqCst);
        checked.join().unwrap()
    })
}

#[test]
fn of_a_thread_that_started_this_one_or_has_measured_itself() {
    fails(|| by_the_thread_that_began(limit()));
    fails(|| {
        limit().run(|| ()).unwrap();
        by_the_thread_that_began(limit())
    });
}

/// Runs the check in a measurement that has room for everything.
fn in_another(check: impl FnOnce() -> Verdict) -> Verdict {
    let mut inner = Ok(());
    PeakLimit::new().limit("1 GiB").run(|| inner = check()).unwrap();
    inner
}

#[test]
fn of_a_thread_that_was_started_in_a_measurement_around_this_one() {
    fails(|| in_another(|| with_an_actor(|ask| limit().run(ask))));
    fails(|| in_another(|| in_another(|| with_an_actor(|ask| limit().run(ask)))));
    fails(|| in_another(|| with_an_actor(|ask| in_another(|| limit().run(ask)))));
    fails(|| in_another(|| by_the_thread_that_began(limit())));
    fails(|| in_another(|| beside_a_busy_thread(limit())));
    fails(|| {
        in_another(|| {
            let runtime = runtime();
            limit().run(|| runtime.block_on(async { tokio::spawn(async { large() }).await.unwrap() })).map(drop)
        })
    });
    passes(|| in_another(|| with_an_actor(|ask| limit().allow("with_an_actor").run(ask))));
}

#[test]
fn of_a_thread_that_has_worked_before_this_measurement_do_not_count() {
    let after_work = |ask: &dyn Fn()| {
        ask();
        limit().run(|| black_box(vec![0u8; 100]).len()).map(drop)
    };
    passes(|| in_another(|| with_an_actor(after_work)));
    passes(|| {
        let ((to, work), (done, wait)) = (mpsc::channel::<fn() -> usize>(), mpsc::channel());
        std::thread::scope(|threads| {
            threads.spawn(move || work.iter().for_each(|work| done.send(work()).unwrap()));
            let ask = || {
                to.send(large).unwrap();
                wait.recv().unwrap();
            };
            ask();
            let mut inner = Ok(());
            let _ = memtrace::measure(|| inner = after_work(&ask));
            drop(to);
            inner
        })
    });
}
