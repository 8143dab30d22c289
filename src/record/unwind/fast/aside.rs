//! A separate stack (`ucontext`) for parsing CFI, because the parser needs more stack than a thread may have left.
#![expect(unsafe_code, reason = "switches stacks")]

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::MutexGuard;

use libc::ucontext_t;

/// The permission to change the rule cache and to use the separate stack.
pub(super) type Turn = MutexGuard<'static, ()>;

/// Several times the stack size that an unoptimised build needs.
const SIZE: usize = 128 << 10;

/// Static memory, which the system provides page by page. The two contexts take kilobytes, too.
#[repr(align(64))]
struct Aside {
    stack: UnsafeCell<[u8; SIZE]>,
    here: UnsafeCell<MaybeUninit<ucontext_t>>,
    there: UnsafeCell<MaybeUninit<ucontext_t>>,
}

// SAFETY: only `run` uses it, and only while its caller has the turn, so one thread at a time.
unsafe impl Sync for Aside {}

static ASIDE: Aside = Aside {
    stack: UnsafeCell::new([0; SIZE]),
    here: UnsafeCell::new(MaybeUninit::uninit()),
    there: UnsafeCell::new(MaybeUninit::uninit()),
};

/// The work. A pointer to this type has one word, unlike a pointer to a `dyn FnMut()`.
struct Job<'a>(&'a mut dyn FnMut());

/// Runs `work` on the separate stack, unless the system refuses. `work` must not take memtrace's locks. Signals are
/// blocked, because their handlers may need more room than this stack has.
pub(super) fn run(_turn: &Turn, mut work: impl FnMut()) {
    let mut job = Job(&mut work);
    let (here, there) = (ASIDE.here.get().cast::<ucontext_t>(), ASIDE.there.get().cast::<ucontext_t>());
    // SAFETY: the turn gives exclusive use; the pointer is valid for writes.
    if unsafe { libc::getcontext(there) } != 0 {
        return;
    }
    // SAFETY: initialised by `getcontext`; exclusive because of the turn.
    let context = unsafe { &mut *there };
    context.uc_stack.ss_sp = ASIDE.stack.get().cast();
    context.uc_stack.ss_size = SIZE;
    context.uc_link = here;
    // SAFETY: the signal set is valid for writes.
    unsafe { libc::sigfillset(&mut context.uc_sigmask) };
    let entry: extern "C" fn(*mut Job<'_>) = entry;
    // SAFETY: `makecontext` calls the function with the one argument that it is given.
    let entry = unsafe { std::mem::transmute::<extern "C" fn(*mut Job<'_>), extern "C" fn()>(entry) };
    // SAFETY: the context has a stack and a successor. glibc passes a pointer argument unchanged on x86_64 and aarch64.
    unsafe { libc::makecontext(there, entry, 1, &raw mut job) };
    // SAFETY: both contexts are valid. The call returns when `entry` returns (`uc_link`), or at once with an error.
    unsafe { libc::swapcontext(here, there) };
}

extern "C" fn entry(job: *mut Job<'_>) {
    // SAFETY: `run` passes its own job, and waits until this function has returned.
    let Job(work) = unsafe { &mut *job };
    work();
}
