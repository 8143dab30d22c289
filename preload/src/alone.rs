//! Calls that the kernel refuses to a process with several threads, or that restrict only the calling thread.
//! memtrace's threads and hooks must not change what such a call allows. So the recording ends before it.
#![expect(unsafe_code, reason = "functions of C")]

use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::sync::atomic::Ordering::Relaxed;

use crate::{mode, next};

/// Options of `prctl` that change what the calling thread may do.
const RESTRICTING: [c_int; 5] =
    [libc::PR_SET_SECCOMP, libc::PR_SET_SECUREBITS, libc::PR_SET_KEEPCAPS, libc::PR_CAPBSET_DROP, libc::PR_CAP_AMBIENT];

/// System calls that C's functions either apply to all threads or do not offer. If a program calls them by their
/// numbers (with `syscall`), they apply to the calling thread only.
const FOR_ONE_THREAD: [c_long; 12] = [
    libc::SYS_seccomp,
    libc::SYS_capset,
    libc::SYS_setns,
    libc::SYS_setuid,
    libc::SYS_setreuid,
    libc::SYS_setresuid,
    libc::SYS_setfsuid,
    libc::SYS_setgid,
    libc::SYS_setregid,
    libc::SYS_setresgid,
    libc::SYS_setfsgid,
    libc::SYS_setgroups,
];

/// Defines functions that end the recording before a call that restricts a thread.
macro_rules! restricting {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty, if $restricts:expr;)*) => {
        $(
            /// # Safety
            /// The contract of C's function of this name. The same is true of the functions below.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
                if $restricts {
                    end_recording();
                }
                // SAFETY: the caller's arguments are passed on unchanged.
                unsafe { next::$name::call($($argument),*) }
            }
        )*
    };
}

restricting! {
    prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int, if RESTRICTING.contains(&option);
    syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long,
        if is_restricting(number, a as c_int);
    capset(header: *mut c_void, data: *const c_void) -> c_int, if true;
    unshare(flags: c_int) -> c_int, if is_for_one_thread(flags);
    setns(descriptor: c_int, kind: c_int) -> c_int, if true;
}

fn is_restricting(call: c_long, first: c_int) -> bool {
    match call {
        libc::SYS_prctl => RESTRICTING.contains(&first),
        libc::SYS_unshare => is_for_one_thread(first),
        call => FOR_ONE_THREAD.contains(&call),
    }
}

/// Whether `unshare` needs a process with one thread, or changes which files exist. The flags that only give a thread
/// tables of its own do not count, because threads get such tables for other reasons, too.
fn is_for_one_thread(flags: c_int) -> bool {
    flags & !(libc::CLONE_FS | libc::CLONE_FILES | libc::CLONE_SYSVSEM) != 0
}

/// Ends the recording for good, because a hook might make a system call that the program's new filter does not allow.
#[cold]
fn end_recording() {
    let _errno = memtrace::keep_errno();
    if memtrace::end_with_threads(&crate::SESSION) {
        mode::pass_on();
        crate::MAY_RECORD.store(false, Relaxed);
        memtrace::tell("the recording ends here: the program changes what it, or one of its threads, may do");
    }
}
