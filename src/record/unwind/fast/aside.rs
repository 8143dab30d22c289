//! A stack beside the program's, for what takes more than a thread may have left.
#![expect(unsafe_code, reason = "C functions that change stacks")]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::MutexGuard;

use libc::ucontext_t;

/// Whoever has it may change the cache of rules and use the stack aside.
pub(super) type Turn = MutexGuard<'static, ()>;

/// Several times what is needed where nothing is optimised.
const SIZE: usize = 128 << 10;

/// Memory that the system gives as it is touched. The two contexts are kilobytes as well.
#[repr(align(64))]
struct Aside {
    stack: UnsafeCell<[u8; SIZE]>,
    here: UnsafeCell<MaybeUninit<ucontext_t>>,
    there: UnsafeCell<MaybeUninit<ucontext_t>>,
}

// SAFETY: `run` alone uses it, for whoever has the turn.
unsafe impl Sync for Aside {}

static ASIDE: Aside = Aside {
    stack: UnsafeCell::new([0; SIZE]),
    here: UnsafeCell::new(MaybeUninit::uninit()),
    there: UnsafeCell::new(MaybeUninit::uninit()),
};

/// A piece of work, at a thin address.
struct Job<'a>(&'a mut dyn FnMut());

/// Does some work on that stack, unless the system refuses. It may not take any of ours. No signal comes meanwhile:
/// its handler would find less room than it may count on.
pub(super) fn run(_turn: &Turn, mut work: impl FnMut()) {
    let mut job = Job(&mut work);
    let (here, there) = (ASIDE.here.get().cast::<ucontext_t>(), ASIDE.there.get().cast::<ucontext_t>());
    // SAFETY: whoever has the turn uses both alone, and there is room for what is written.
    if unsafe { libc::getcontext(there) } != 0 {
        return;
    }
    // SAFETY: it was written just now, and nobody else looks at it.
    let context = unsafe { &mut *there };
    context.uc_stack.ss_sp = ASIDE.stack.get().cast();
    context.uc_stack.ss_size = SIZE;
    context.uc_link = here;
    // SAFETY: the mask is one.
    unsafe { libc::sigfillset(&mut context.uc_sigmask) };
    let entry: extern "C" fn(*mut Job<'_>) = entry;
    // SAFETY: the function is called with the arguments that stand here.
    let entry = unsafe { std::mem::transmute::<extern "C" fn(*mut Job<'_>), extern "C" fn()>(entry) };
    // SAFETY: the context has a stack and a way back; on x86_64 an argument may be a pointer.
    unsafe { libc::makecontext(there, entry, 1, &raw mut job) };
    // SAFETY: both are valid. It returns when the work is done, as `uc_link` says, or with an error and the work left.
    unsafe { libc::swapcontext(here, there) };
}

extern "C" fn entry(job: *mut Job<'_>) {
    // SAFETY: `run` passes its own, and waits.
    let Job(work) = unsafe { &mut *job };
    work();
}
