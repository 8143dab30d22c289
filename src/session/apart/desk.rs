//! A desk, at which one thread serves: other threads leave work for it there, and wait until the work is done.
//!
//! It uses a mutex and a condition variable, because channels of `std` use thread-locals, which no longer exist at the
//! process's exit.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::descriptors;
use crate::record::thread::own_os_id;
use crate::session::kernel_thread::is_alive;

/// After this time, a waiting thread checks whether the thread that serves still exists, because a seccomp filter may
/// have ended it.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    phase: Phase,
    thread: Option<u32>,
    jobs: VecDeque<Arc<dyn Job>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Phase {
    /// The thread has not begun. It may wait for the loader's lock, which its creator holds in a `dlopen`.
    #[default]
    Starting,
    Unsharing,
    Open,
    Closed,
}

impl State {
    fn has_lost_its_thread(&self) -> bool {
        self.thread.is_none_or(|thread| !is_alive(thread))
    }
}

impl Desk {
    /// Waits until the thread is ready for work; false if it never will be.
    pub(super) fn opens(&self) -> bool {
        let mut state = self.lock();
        while matches!(state.phase, Phase::Starting | Phase::Unsharing) {
            let is_late;
            (state, is_late) = self.wait_a_while(state);
            if is_late && state.has_lost_its_thread() {
                state.phase = Phase::Closed;
            }
        }
        state.phase == Phase::Open
    }

    pub(super) fn is_open(&self) -> bool {
        self.lock().phase == Phase::Open
    }

    pub(super) fn close(&self) {
        self.lock().phase = Phase::Closed;
        self.changed.notify_all();
    }

    /// Lets the thread do the work, and waits; `None` if the thread has ended.
    pub(super) fn ask<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let job = Arc::new(Mutex::new(Work::Asked(work)));
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return None;
        }
        state.jobs.push_back(Arc::clone(&job) as Arc<dyn Job>);
        self.changed.notify_all();
        while Arc::strong_count(&job) > 1 {
            let is_late;
            (state, is_late) = self.wait_a_while(state);
            if is_late && state.has_lost_its_thread() {
                state.phase = Phase::Closed;
                break;
            }
        }
        drop(state);
        match Arc::into_inner(job)?.into_inner() {
            Ok(Work::Done(outcome)) => Some(outcome),
            _ => None,
        }
    }

    /// Does the requested work on the calling thread, until the desk closes.
    pub(super) fn serve(&self) {
        if !self.open() {
            return;
        }
        while let Some(job) = self.next() {
            let _ = catch_unwind(AssertUnwindSafe(|| job.work()));
            // Dropped before the thread that asked is woken. So that thread is the last owner of the job, and frees
            // its memory.
            drop(job);
            drop(self.lock());
            self.changed.notify_all();
        }
    }

    fn open(&self) -> bool {
        let mut state = self.lock();
        if state.phase != Phase::Starting {
            return false;
        }
        state.phase = Phase::Unsharing;
        state.thread = Some(own_os_id());
        // The lock is not held during the next call. If a seccomp filter ends this thread there, its creator must not
        // wait for the lock.
        drop(state);
        let is_apart = descriptors::unshare();
        self.lock().phase = if is_apart { Phase::Open } else { Phase::Closed };
        self.changed.notify_all();
        is_apart
    }

    fn next(&self) -> Option<Arc<dyn Job>> {
        let mut state = self.lock();
        loop {
            match state.jobs.pop_front() {
                None if state.phase != Phase::Open => return None,
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                job => return job,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_a_while<'a>(&self, state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, bool) {
        let (state, outcome) = self.changed.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner);
        (state, outcome.timed_out())
    }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

enum Work<F, T> {
    Asked(F),
    Begun,
    Done(T),
}

trait Job: Send + Sync {
    fn work(&self);
}

impl<T: Send, F: FnOnce() -> T + Send> Job for Mutex<Work<F, T>> {
    fn work(&self) {
        let mut step = self.lock().unwrap_or_else(PoisonError::into_inner);
        if let Work::Asked(work) = std::mem::replace(&mut *step, Work::Begun) {
            *step = Work::Done(work());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_for_the_thread_may_be_woken_too_early() {
        let desk = Desk::default();
        std::thread::scope(|threads| {
            threads.spawn(|| {
                for _ in 0..100 {
                    desk.changed.notify_all();
                    std::thread::sleep(Duration::from_millis(1));
                }
                desk.lock().phase = Phase::Open;
                desk.changed.notify_all();
            });
            assert!(desk.opens());
        });
    }

    #[test]
    fn nobody_waits_for_a_thread_that_is_gone() {
        let gone = std::thread::spawn(own_os_id).join().unwrap();
        let desk = Desk::default();
        *desk.lock() = State { phase: Phase::Unsharing, thread: Some(gone), jobs: VecDeque::new() };
        assert!(!desk.opens());
    }
}
