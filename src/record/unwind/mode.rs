//! Selection of the unwinder, and how often memtrace's unwinder and libgcc's disagreed.
#![cfg_attr(target_os = "linux", expect(unsafe_code, reason = "writes a line without std"))]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::errno::KeepErrno;
use crate::record::gates::GATES;
use crate::write_errors;

/// memtrace's unwinder takes stacks, and libgcc takes those with a step that it cannot prove. The gates start with
/// this value.
pub(super) const FAST: u8 = 0;
/// libgcc takes every stack. Where memtrace's unwinder can take the stack, too, the two results are compared.
pub(super) const CHECKED: u8 = 1;
/// Only libgcc.
pub(super) const LIBRARY: u8 = 2;

/// Stacks that were compared with libgcc's.
pub(crate) static COMPARED: AtomicU64 = AtomicU64::new(0);
/// Stacks that memtrace's unwinder got wrong. libgcc's were kept.
pub(crate) static WRONG: AtomicU64 = AtomicU64::new(0);

#[inline]
pub(super) fn current() -> u8 {
    GATES.unwinder.load(Relaxed)
}

/// Whether a difference ends the program.
static ABORTS: AtomicBool = AtomicBool::new(false);

/// How stacks are checked against libgcc's unwinder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum StackCheck {
    /// They are not checked.
    #[default]
    Off,
    /// Differences are counted.
    Count,
    /// The first difference ends the program. So a test that starts programs cannot miss it.
    Abort,
}

pub(crate) fn check_stacks(check: StackCheck) {
    ABORTS.store(check == StackCheck::Abort, Relaxed);
    let (from, to) = if check == StackCheck::Off { (CHECKED, FAST) } else { (FAST, CHECKED) };
    // A process that is in the mode `LIBRARY` stays in it.
    let _ = GATES.unwinder.compare_exchange(from, to, Relaxed, Relaxed);
}

/// Called in a forked child, where libgcc takes all stacks: another thread of the parent may have held the loader's
/// lock at the fork, and then it stays held for ever.
pub(crate) fn after_fork() {
    GATES.unwinder.store(LIBRARY, Relaxed);
}

pub(super) fn count(same: bool) {
    COMPARED.fetch_add(1, Relaxed);
    if !same && WRONG.fetch_add(1, Relaxed) == 0 {
        say_that_one_is_wrong();
        if ABORTS.load(Relaxed) {
            std::process::abort();
        }
    }
}

/// Writes at once, as few programs look at `Health`, and without std's stderr, which the program may be using.
#[cold]
fn say_that_one_is_wrong() {
    const WORDS: &str = "memtrace: a stack differs from libgcc's, which is kept; please report this\n";
    let (_limit, _errno) = (write_errors::errors_only(), KeepErrno::new());
    // SAFETY: the text is a constant of this length. Nothing depends on whether it is written.
    #[cfg(target_os = "linux")]
    let _ = unsafe { libc::write(libc::STDERR_FILENO, WORDS.as_ptr().cast(), WORDS.len()) };
}
