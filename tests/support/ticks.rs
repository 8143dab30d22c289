//! Signals that interrupt a thread ten thousand times a second, wherever it is.
#![expect(unsafe_code, reason = "timers and signals are C's")]

use std::mem::zeroed;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How often the handler ran, on all threads.
static HANDLED: AtomicU64 = AtomicU64::new(0);

const EACH: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 100_000 };

/// Until this is dropped, the thread that made it is interrupted. Its waits end with EINTR, because the handler
/// restarts nothing.
#[derive(Debug)]
pub(crate) struct Ticks(libc::timer_t);

impl Ticks {
    pub(crate) fn begin() -> Self {
        handle();
        // SAFETY: an event is plain data.
        let mut event: libc::sigevent = unsafe { zeroed() };
        (event.sigev_notify, event.sigev_signo) = (libc::SIGEV_THREAD_ID, libc::SIGPROF);
        // SAFETY: it only returns a number.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer = null_mut();
        // SAFETY: it reads the event and writes the timer; both are valid.
        assert_eq!(unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) }, 0);
        let each = libc::itimerspec { it_interval: EACH, it_value: EACH };
        // SAFETY: the timer was just made; the call reads the times.
        assert_eq!(unsafe { libc::timer_settime(timer, 0, &raw const each, null_mut()) }, 0);
        Self(timer)
    }

    #[allow(dead_code, reason = "each test program uses a part of this")]
    pub(crate) fn handled() -> u64 {
        HANDLED.load(Relaxed)
    }
}

impl Drop for Ticks {
    fn drop(&mut self) {
        // SAFETY: this is the timer's only owner.
        unsafe { libc::timer_delete(self.0) };
    }
}

/// Counts signals. The handler stays installed, because a signal may still arrive after its timer is deleted.
fn handle() {
    extern "C" fn count(_: libc::c_int) {
        HANDLED.fetch_add(1, Relaxed);
    }
    // SAFETY: an action without flags is plain data.
    let mut action: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = count as extern "C" fn(_) as usize;
    // SAFETY: the handler only does what signal handlers may do.
    assert_eq!(unsafe { libc::sigaction(libc::SIGPROF, &raw const action, null_mut()) }, 0);
}
