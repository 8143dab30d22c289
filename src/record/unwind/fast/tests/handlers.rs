//! Stacks taken in signal handlers, coroutines, destructors and panics, and before main.
#![expect(unsafe_code, reason = "signals and contexts are C functions")]

use std::cell::Cell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::null_mut;
use std::sync::Mutex;

use super::{Both, both, note, only_one, seen_in};
use crate::record::unwind::{mode, take_stack};

extern "C" fn on_signal(_: c_int) {
    note(null_mut());
}

/// The stacks taken in a handler of `signal` that was installed with `flags`.
fn seen_by_handler(signal: c_int, flags: c_int) -> Both {
    // SAFETY: all zeros is a valid value.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_signal as extern "C" fn(c_int) as usize;
    action.sa_flags = flags;
    // SAFETY: the handler takes one number and does not unwind; this thread is interrupted in `raise` only.
    assert_eq!(unsafe { libc::sigaction(signal, &action, null_mut()) }, 0);
    only_one(seen_in(|| {
        // SAFETY: a handler is installed.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
    }))
}

#[test]
fn signal_handlers_are_left_to_libgcc() {
    seen_by_handler(libc::SIGUSR1, 0).assert_not_proven();
}

#[test]
fn signal_handlers_on_a_stack_of_their_own_are_left_to_libgcc() {
    let mut memory = vec![0u8; 1 << 18];
    let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
    // SAFETY: the memory outlives its use as a stack, see below.
    assert_eq!(unsafe { libc::sigaltstack(&stack, null_mut()) }, 0);
    let seen = seen_by_handler(libc::SIGUSR2, libc::SA_ONSTACK);
    let none = libc::stack_t { ss_flags: libc::SS_DISABLE, ..stack };
    // SAFETY: the handler has returned.
    assert_eq!(unsafe { libc::sigaltstack(&none, null_mut()) }, 0);
    seen.assert_not_proven();
}

unsafe extern "C" {
    fn makecontext(context: *mut libc::ucontext_t, start: extern "C" fn(), arguments: c_int, ...);
}

extern "C" fn coroutine() {
    note(null_mut());
}

/// The stacks taken in a coroutine on this stack.
fn seen_by_coroutine(stack: &mut [u8]) -> Both {
    // SAFETY: all zeros is a valid value.
    let mut back: libc::ucontext_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: as above.
    let mut there: libc::ucontext_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: writes to the context it is given.
    assert_eq!(unsafe { libc::getcontext(&mut there) }, 0);
    there.uc_stack = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
    there.uc_link = &mut back;
    // SAFETY: the context has a stack of its own and a successor.
    unsafe { makecontext(&mut there, coroutine, 0) };
    only_one(seen_in(|| {
        // SAFETY: both contexts are valid until the coroutine ends and returns here.
        assert_eq!(unsafe { libc::swapcontext(&mut back, &there) }, 0);
    }))
}

#[test]
fn a_coroutine_on_a_stack_of_its_own_is_left_to_libgcc() {
    seen_by_coroutine(&mut vec![0; 1 << 18]).assert_not_proven();
}

#[test]
fn a_coroutine_within_the_threads_own_stack_is_right_or_left_to_libgcc() {
    let seen = seen_by_coroutine(&mut [0; 1 << 18]);
    assert!(seen.ours.is_none_or(|ours| ours == seen.libgccs));
}

struct NotesWhenDropped;

impl Drop for NotesWhenDropped {
    fn drop(&mut self) {
        note(null_mut());
    }
}

#[test]
fn a_drop_while_a_panic_is_under_way_is_proven() {
    let unwind = || {
        let _inner = NotesWhenDropped;
        resume_unwind(Box::new(1))
    };
    let seen = seen_in(|| assert!(catch_unwind(AssertUnwindSafe(unwind)).is_err()));
    only_one(seen).assert_proven();
}

#[test]
fn a_destructor_of_a_thread_local_is_proven() {
    static SEEN: Mutex<Vec<Both>> = Mutex::new(Vec::new());
    struct Local;
    impl Drop for Local {
        fn drop(&mut self) {
            SEEN.lock().unwrap().push(both());
        }
    }
    thread_local!(static LOCAL: Cell<Option<Local>> = const { Cell::new(None) });
    std::thread::spawn(|| LOCAL.set(Some(Local))).join().unwrap();
    only_one(std::mem::take(&mut SEEN.lock().unwrap())).assert_proven();
}

static BEFORE_MAIN: Mutex<Option<Both>> = Mutex::new(None);

extern "C" fn before_main() {
    *BEFORE_MAIN.lock().unwrap() = Some(both());
}

// SAFETY: the loader calls the functions in this section; this one does not unwind.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn() = before_main;

#[test]
fn a_stack_from_before_main_is_proven() {
    BEFORE_MAIN.lock().unwrap().as_ref().unwrap().assert_proven();
}

#[test]
fn a_stack_from_any_depth_is_shortened_like_libgccs() {
    fn deeper(left: usize) {
        match left {
            0 => only_one(seen_in(|| note(null_mut()))).assert_proven(),
            _ => deeper(left - 1),
        }
        std::hint::black_box(left);
    }
    [0, 100, 240, 256, 257, 300, 1000].into_iter().for_each(deeper);
}

#[test]
fn a_forked_child_leaves_its_stacks_to_libgcc() {
    crate::record::fork::watch();
    // SAFETY: the child only takes a stack and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let fine = mode::current() == mode::LIBRARY && take_stack() > 3;
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(!fine)) };
    }
    let mut status = -1;
    // SAFETY: waits for this process's own child; `status` is valid for writes.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
}
