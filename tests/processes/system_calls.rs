//! System calls on the way of a block. A seccomp filter ends a thread that makes any.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::Relaxed};

use crate::child::{eventually, in_child};
use crate::support::Raw;

const BLOCKS: usize = 1000;

/// Blocks that the thread allocated and freed under the filter.
static DONE: AtomicUsize = AtomicUsize::new(0);
static THREAD: AtomicI32 = AtomicI32::new(0);

/// From now on any system call but `exit` kills this thread.
fn forbid_system_calls() {
    let step = |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut steps = [
        // The number of the call is the first word of its description.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, libc::SYS_exit as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_KILL_THREAD),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the filter is valid during the call.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) }, 0);
}

/// The same code before and after the filter.
fn allocate() {
    // SAFETY: no preconditions.
    THREAD.store(unsafe { libc::gettid() }, Relaxed);
    for round in 0..2 * BLOCKS {
        if round == BLOCKS {
            forbid_system_calls();
        }
        drop(Raw::new(4000));
        DONE.store((round + 1).saturating_sub(BLOCKS), Relaxed);
    }
    // SAFETY: ends this thread only; nothing of it is used again.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

fn has_ended() -> bool {
    let thread = THREAD.load(Relaxed);
    // SAFETY: signal 0 is none.
    thread != 0 && unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, 0) } != 0
}

#[test]
fn a_block_of_code_that_was_recorded_before_takes_no_system_call() {
    in_child(&[], || {
        let session = memtrace::builder().min_size(0).start().unwrap();
        let before = session.snapshot().device(memtrace::Device::Cpu).unwrap().stats.allocations.allocated;
        std::mem::forget(std::thread::spawn(allocate));
        // Nothing here allocates: the thread would wait for the ledger, with a system call.
        eventually("the thread ends", has_ended);
        assert_eq!(DONE.load(Relaxed), BLOCKS);
        let after = session.snapshot().device(memtrace::Device::Cpu).unwrap().stats.allocations.allocated;
        assert!(after - before >= 2 * BLOCKS as u64, "{before} {after}");
    });
}
