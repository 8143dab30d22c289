//! Property test: compares the stacks of random programs of calls with libgcc's.
#![expect(unsafe_code, reason = "calls functions written in assembly, and C")]

use std::cell::RefCell;
use std::ffi::c_void;
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::ptr::null_mut;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::frames::{memtrace_alloca, memtrace_cfa_from_another, memtrace_fp_is_a_number, memtrace_realigned};
use super::libraries::{Library, build};
use super::{note, seen_in};

#[derive(Clone, Debug)]
enum Call {
    Words(u8),
    Aligned,
    Boxed,
    Alloca(u8),
    RealignedByC,
    NumberInRbp,
    FromRbx,
    Sorted,
    InDrop,
    Caught,
    /// Calls through a library that is loaded for this call, after another one at the same addresses.
    Loaded(u8),
    /// Takes a stack and continues.
    Look,
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        3 => any::<u8>().prop_map(Call::Words),
        2 => Just(Call::Aligned),
        2 => Just(Call::Boxed),
        2 => any::<u8>().prop_map(Call::Alloca),
        2 => Just(Call::RealignedByC),
        2 => Just(Call::NumberInRbp),
        1 => Just(Call::FromRbx),
        2 => Just(Call::Sorted),
        1 => Just(Call::InDrop),
        1 => Just(Call::Caught),
        2 => any::<u8>().prop_map(Call::Loaded),
        2 => Just(Call::Look),
    ]
}

#[repr(align(128))]
struct Aligned([u64; 16]);

struct RunsWhenDropped<'a>(&'a [Call]);

impl Drop for RunsWhenDropped<'_> {
    fn drop(&mut self) {
        run(self.0);
    }
}

thread_local!(static LIBRARIES: RefCell<Vec<PathBuf>> = const { RefCell::new(Vec::new()) });
thread_local!(static REST: std::cell::Cell<*const [Call]> = const { std::cell::Cell::new(&[]) });

extern "C" fn go_on(rest: *mut c_void) {
    // SAFETY: `run` passes a list that lives until it returns.
    run(unsafe { *rest.cast::<&[Call]>() });
}

extern "C" fn compare(_: *const c_void, _: *const c_void) -> i32 {
    let rest = REST.replace(&[]);
    // SAFETY: the list that `sorted` put there lives until it returns; otherwise it is empty.
    run(unsafe { &*rest });
    0
}

#[inline(never)]
fn sorted(rest: &[Call]) {
    REST.set(rest);
    // SAFETY: an array of two one-byte numbers.
    unsafe { libc::qsort([1u8, 2].as_mut_ptr().cast(), 2, 1, Some(compare)) };
}

#[inline(never)]
fn words<const N: usize>(rest: &[Call]) {
    let words = black_box([7u64; N]);
    run(rest);
    black_box(words);
}

#[inline(never)]
fn aligned(rest: &[Call]) {
    let words = black_box(Aligned([7; 16]));
    run(rest);
    black_box(words.0);
}

/// Runs the rest of the program inside its first call.
#[inline(never)]
fn run(program: &[Call]) {
    let Some((first, mut rest)) = program.split_first() else { return note(null_mut()) };
    let data: *mut c_void = (&raw mut rest).cast();
    match first {
        Call::Words(n @ 0..64) => black_box(words::<1> as fn(&[Call]))(&rest[usize::from(*n) % 2 % (rest.len() + 1)..]),
        Call::Words(64..128) => words::<50>(rest),
        Call::Words(_) => words::<700>(rest),
        Call::Aligned => aligned(rest),
        Call::Boxed => black_box(Box::new(|| run(rest)) as Box<dyn Fn()>)(),
        // SAFETY: keeps the ABI; the size is a multiple of 16.
        Call::Alloca(n) => unsafe { memtrace_alloca(go_on, data, usize::from(*n) * 16) },
        // SAFETY: keeps the ABI.
        Call::RealignedByC => unsafe { memtrace_realigned(go_on, data) },
        // SAFETY: keeps the ABI.
        Call::NumberInRbp => unsafe { memtrace_fp_is_a_number(go_on, data) },
        // SAFETY: keeps the ABI.
        Call::FromRbx => unsafe { memtrace_cfa_from_another(go_on, data) },
        Call::Sorted => sorted(rest),
        Call::InDrop => drop(RunsWhenDropped(rest)),
        Call::Caught => in_flight(rest),
        Call::Loaded(n) => loaded(usize::from(*n), data),
        Call::Look => {
            note(null_mut());
            run(rest);
        }
    }
    black_box(rest);
}

/// Continues from a library that is unloaded afterwards.
#[inline(never)]
fn loaded(n: usize, data: *mut c_void) {
    let path = LIBRARIES.with_borrow(|all| all[n % all.len()].clone());
    let library = Library::open(&path);
    // SAFETY: the library is open, and keeps the ABI.
    unsafe { library.call_back()(go_on, data) };
}

#[inline(never)]
fn in_flight(rest: &[Call]) {
    let unwind = || {
        let _runs = RunsWhenDropped(rest);
        resume_unwind(Box::new(()))
    };
    assert!(catch_unwind(AssertUnwindSafe(unwind)).is_err());
}

#[test]
fn stacks_of_random_programs_are_libgccs() {
    let folder = tempfile::tempdir().unwrap();
    LIBRARIES.set([24, 40, 56].map(|frame| build(folder.path(), frame)).to_vec());
    let config = crate::random::programs(300);
    let mut runner = TestRunner::new(config);
    runner.run(&prop::collection::vec(call(), 0..40), holds_for).unwrap();
}

fn holds_for(program: Vec<Call>) -> Result<(), TestCaseError> {
    let seen = seen_in(|| run(&program));
    prop_assert!(!seen.is_empty());
    let provable = !program.iter().any(|call| matches!(call, Call::FromRbx));
    for both in seen {
        prop_assert!(both.libgccs.len() > 3);
        match both.ours {
            Some(ours) => prop_assert_eq!(ours, both.libgccs),
            None => prop_assert!(!provable),
        }
    }
    Ok(())
}
