//! Writes that fail with a signal as well as with an error: beyond the limit on the size of files that whoever runs the
//! program has set (`ulimit -f`), or into a pipe that nobody reads. memtrace's end with the error, and not the program.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "signals are blocked and taken by C functions"))]

/// While this lives, a write of this thread's that fails is an error and nothing else.
#[must_use]
#[derive(Debug)]
pub(crate) struct ErrorsOnly {
    before: [Before; signal::KINDS.len()],
    /// It is about the thread that it was made on.
    _here: std::marker::PhantomData<*const ()>,
}

/// How it was with a signal.
#[derive(Clone, Copy, Debug)]
struct Before {
    was_blocked: bool,
    /// One of its kind waits, which is the program's.
    was_waiting: bool,
}

pub(crate) fn errors_only() -> ErrorsOnly {
    let block = |kind| Before { was_waiting: signal::is_waiting(kind), was_blocked: signal::block(kind) };
    ErrorsOnly { before: signal::KINDS.map(block), _here: std::marker::PhantomData }
}

impl Drop for ErrorsOnly {
    fn drop(&mut self) {
        for (kind, Before { was_blocked, was_waiting }) in signal::KINDS.into_iter().zip(self.before) {
            if !was_waiting {
                signal::take(kind);
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
        // SAFETY: it fills in the set that it is given.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        fill(set.as_mut_ptr());
        // SAFETY: filled in above.
        unsafe { set.assume_init() }
    }

    fn only(kind: c_int) -> sigset_t {
        // SAFETY: the set was filled in, and the signal is one.
        set(|set| _ = unsafe { libc::sigaddset(set, kind) })
    }

    fn contains(set: &sigset_t, kind: c_int) -> bool {
        // SAFETY: the set was filled in.
        unsafe { libc::sigismember(set, kind) == 1 }
    }

    pub(super) fn is_waiting(kind: c_int) -> bool {
        // SAFETY: it fills in the set that it is given.
        contains(&set(|set| _ = unsafe { libc::sigpending(set) }), kind)
    }

    /// True if it was before.
    pub(super) fn block(kind: c_int) -> bool {
        // SAFETY: only this thread's mask changes; what it was is written to the set.
        contains(&set(|before| _ = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &only(kind), before) }), kind)
    }

    pub(super) fn unblock(kind: c_int) {
        // SAFETY: only this thread's mask changes.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &only(kind), null_mut()) };
    }

    /// Takes one that waits, and waits for none.
    pub(super) fn take(kind: c_int) {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time are there to be read; nothing is written.
        unsafe { libc::sigtimedwait(&only(kind), null_mut(), &at_once) };
    }
}

#[cfg(not(target_os = "linux"))]
mod signal {
    pub(super) const KINDS: [i32; 0] = [];

    pub(super) fn is_waiting(_kind: i32) -> bool {
        false
    }

    pub(super) fn block(_kind: i32) -> bool {
        false
    }

    pub(super) fn unblock(_kind: i32) {}

    pub(super) fn take(_kind: i32) {}
}
