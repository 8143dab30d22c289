//! Thread ids: small integers, assigned without allocation or destructors.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use memtrace_core::snapshot::ThreadId;

use super::thread_name::{LENGTH, of_this_thread, text};
use super::{guard, thread_end};

static NEXT: AtomicU32 = AtomicU32::new(1);
/// Kernel thread ids of the first threads, by thread id − 1.
static OS_IDS: [AtomicU32; MAX_NAMED] = [const { AtomicU32::new(0) }; MAX_NAMED];
/// Kernel id of each of the newest threads, and the address of its `guard::THREAD`, which has the same offset in every
/// thread's thread-local storage. The address is stored as its complement: static memory is searched for addresses of
/// blocks, and a block may lie where an ended thread's variables were.
static LOCALS: [(AtomicU32, AtomicUsize); MAX_NAMED] = [const { (AtomicU32::new(0), AtomicUsize::new(0)) }; MAX_NAMED];
/// Each thread's name when it was first seen and when it ended, written once by the thread itself.
static NAMES: [[OnceLock<[u8; LENGTH]>; 2]; MAX_NAMED] = [const { [const { OnceLock::new() }; 2] }; MAX_NAMED];
/// Number of threads whose names are kept.
const MAX_NAMED: usize = 4096;

/// This thread's id, from 1.
#[inline]
pub(crate) fn number() -> ThreadId {
    ThreadId(guard::thread_number(first_time))
}

#[cold]
fn first_time(number: &Cell<u32>) -> u32 {
    // Relaxed: only uniqueness matters.
    let n = NEXT.fetch_add(1, Relaxed);
    number.set(n);
    if let Some(os_id) = OS_IDS.get(n as usize - 1) {
        os_id.store(own_os_id(), Relaxed);
    }
    if let Some((os_id, local)) = LOCALS.get(n as usize % MAX_NAMED) {
        os_id.store(own_os_id(), Relaxed);
        local.store(!std::ptr::from_ref(number).addr(), Relaxed);
    }
    if let Some([first, _]) = NAMES.get(n as usize - 1) {
        let _ = first.set(of_this_thread());
        thread_end::watch(on_end);
    }
    n
}

/// Called on a thread when it ends.
fn on_end() {
    let number = guard::thread_number(|_| 0) as usize;
    if let Some([_, last]) = NAMES.get(number.wrapping_sub(1)) {
        let _ = last.set(of_this_thread());
    }
}

/// The address of `guard::THREAD` in each of the newest threads, with the thread's kernel id.
pub(crate) fn locals() -> impl Iterator<Item = (u32, u64)> {
    let both = LOCALS.iter().map(|(os_id, local)| (os_id.load(Relaxed), !local.load(Relaxed) as u64));
    both.filter(|(os_id, _)| *os_id != 0)
}

/// A thread's name when it was first seen, and its name when it ended.
pub(crate) fn kept_names(thread: ThreadId) -> [Option<String>; 2] {
    let names = NAMES.get((thread.0 as usize).wrapping_sub(1));
    names.map_or([None, None], |names| names.each_ref().map(|name| name.get().map(|name| text(*name))))
}

/// Number of threads that have an id so far.
pub(crate) fn count() -> usize {
    (NEXT.load(Relaxed) - 1) as usize
}

/// Reads this thread's kernel id again: after a fork, the stored id is the parent's.
pub(crate) fn renew() {
    let at = number().0 as usize - 1;
    if let Some(os_id) = OS_IDS.get(at) {
        os_id.store(own_os_id(), Relaxed);
    }
}

/// The threads seen so far, with their kernel ids.
pub(crate) fn seen() -> impl Iterator<Item = (ThreadId, u32)> {
    let ids = OS_IDS.iter().take(count()).map(|id| id.load(Relaxed));
    (1..).map(ThreadId).zip(ids).filter(|(_, os_id)| *os_id != 0)
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "gettid is a C function")]
pub(crate) fn own_os_id() -> u32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() as u32 }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn own_os_id() -> u32 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_reads_its_kernel_id_again() {
        let here = number();
        let of = |thread| seen().find(|(of, _)| *of == thread);
        OS_IDS[here.0 as usize - 1].store(1, Relaxed);
        renew();
        assert_eq!(of(here), Some((here, own_os_id())));
    }
}
