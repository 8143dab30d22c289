//! Blocking of SIGXFSZ and SIGPIPE around memtrace's writes.
//!
//! A write beyond the file size limit (`ulimit -f`) or into a closed pipe raises a signal, which by default ends the
//! program. With the signal blocked the write only returns an error.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "blocks and consumes signals with C functions"))]

/// Until this is dropped, a failed write on this thread raises no signal.
#[must_use = "the signals are unblocked when it is dropped"]
#[derive(Debug)]
pub(crate) struct ErrorsOnly {
    before: [SignalState; signal::KINDS.len()],
    /// Makes the type neither `Send` nor `Sync`, because signal masks belong to a thread.
    _here: std::marker::PhantomData<*const ()>,
}

#[derive(Clone, Copy, Debug)]
struct SignalState {
    was_blocked: bool,
    /// Such a signal was already pending for the program, so it must stay pending.
    was_pending: bool,
}

pub(crate) fn errors_only() -> ErrorsOnly {
    let block = |kind| SignalState { was_pending: signal::is_pending(kind), was_blocked: signal::block(kind) };
    ErrorsOnly { before: signal::KINDS.map(block), _here: std::marker::PhantomData }
}

impl Drop for ErrorsOnly {
    fn drop(&mut self) {
        for (kind, SignalState { was_blocked, was_pending }) in signal::KINDS.into_iter().zip(self.before) {
            if !was_pending {
                signal::consume(kind);
            }
            if !was_blocked {
                signal::unblock(kind);
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod signal {
    use std::mem::MaybeUninit;
    use std::ptr::null_mut;

    use libc::{SIGPIPE, SIGXFSZ, c_int, sigset_t};

    pub(super) const KINDS: [c_int; 2] = [SIGXFSZ, SIGPIPE];

    fn set(fill: impl FnOnce(*mut sigset_t)) -> sigset_t {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` initializes the set that it is given.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        fill(set.as_mut_ptr());
        // SAFETY: the set is initialized above.
        unsafe { set.assume_init() }
    }

    fn only(kind: c_int) -> sigset_t {
        // SAFETY: the set is initialized, and the number is a valid signal.
        set(|set| _ = unsafe { libc::sigaddset(set, kind) })
    }

    fn contains(set: &sigset_t, kind: c_int) -> bool {
        // SAFETY: the set is initialized.
        unsafe { libc::sigismember(set, kind) == 1 }
    }

    pub(super) fn is_pending(kind: c_int) -> bool {
        // SAFETY: `sigpending` fills in the set that it is given.
        contains(&set(|set| _ = unsafe { libc::sigpending(set) }), kind)
    }

    /// Returns whether the signal was blocked before.
    pub(super) fn block(kind: c_int) -> bool {
        // SAFETY: only this thread's mask changes; the previous mask is written to the set.
        contains(&set(|before| _ = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &only(kind), before) }), kind)
    }

    pub(super) fn unblock(kind: c_int) {
        // SAFETY: only this thread's mask changes.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &only(kind), null_mut()) };
    }

    /// Consumes a pending signal, without waiting for one.
    pub(super) fn consume(kind: c_int) {
        let no_wait = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time are valid for reading; nothing is written.
        unsafe { libc::sigtimedwait(&only(kind), null_mut(), &no_wait) };
    }
}

#[cfg(not(target_os = "linux"))]
mod signal {
    pub(super) const KINDS: [i32; 0] = [];

    pub(super) fn is_pending(_kind: i32) -> bool {
        false
    }

    pub(super) fn block(_kind: i32) -> bool {
        false
    }

    pub(super) fn unblock(_kind: i32) {}

    pub(super) fn consume(_kind: i32) {}
}
