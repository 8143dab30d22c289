//! The limit that whoever runs the program has set on the size of files (`ulimit -f`): what memtrace writes beyond it
//! fails, and does not end the program by a signal.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "signals are blocked and taken by C functions"))]

/// While this lives, a write of this thread's beyond the limit is an error and nothing else.
#[must_use]
#[derive(Debug)]
pub(crate) struct ErrorsOnly {
    /// The signal was blocked before; one of its kind was waiting before.
    was_blocked: bool,
    was_waiting: bool,
    /// It is about the thread that it was made on.
    _here: std::marker::PhantomData<*const ()>,
}

pub(crate) fn errors_only() -> ErrorsOnly {
    let was_waiting = signal::is_waiting();
    ErrorsOnly { was_waiting, was_blocked: signal::block(), _here: std::marker::PhantomData }
}

impl Drop for ErrorsOnly {
    fn drop(&mut self) {
        // What was waiting before is the program's.
        if !self.was_waiting {
            signal::take();
        }
        if !self.was_blocked {
            signal::unblock();
        }
    }
}

#[cfg(target_os = "linux")]
mod signal {
    use std::mem::MaybeUninit;
    use std::ptr::null_mut;

    use libc::{SIGXFSZ, sigset_t};

    fn set(fill: impl FnOnce(*mut sigset_t)) -> sigset_t {
        let mut set = MaybeUninit::uninit();
        // SAFETY: it fills in the set that it is given.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        fill(set.as_mut_ptr());
        // SAFETY: filled in above.
        unsafe { set.assume_init() }
    }

    fn this_one() -> sigset_t {
        // SAFETY: the set was filled in, and the signal is one.
        set(|set| _ = unsafe { libc::sigaddset(set, SIGXFSZ) })
    }

    fn contains(set: &sigset_t) -> bool {
        // SAFETY: the set was filled in.
        unsafe { libc::sigismember(set, SIGXFSZ) == 1 }
    }

    pub(super) fn is_waiting() -> bool {
        // SAFETY: it fills in the set that it is given.
        contains(&set(|set| _ = unsafe { libc::sigpending(set) }))
    }

    /// True if it was before.
    pub(super) fn block() -> bool {
        // SAFETY: only this thread's mask changes; what it was is written to the set.
        contains(&set(|before| _ = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &this_one(), before) }))
    }

    pub(super) fn unblock() {
        // SAFETY: only this thread's mask changes.
        unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &this_one(), null_mut()) };
    }

    /// Takes one that waits, and waits for none.
    pub(super) fn take() {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time are there to be read; nothing is written.
        unsafe { libc::sigtimedwait(&this_one(), null_mut(), &at_once) };
    }
}

#[cfg(not(target_os = "linux"))]
mod signal {
    pub(super) fn is_waiting() -> bool {
        false
    }

    pub(super) fn block() -> bool {
        false
    }

    pub(super) fn unblock() {}

    pub(super) fn take() {}
}
