//! Use of the program's own stack by a recorded block: paints the stack below, and looks for the paint afterwards.

use std::alloc::Layout;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use memtrace::StackContext;

use crate::child::in_child;
use crate::support::Raw;

/// A thread may have as little as 16 KiB.
const LIMIT: usize = if cfg!(debug_assertions) { 8 << 10 } else { 4 << 10 };

const AREA: usize = 64 << 10;
const PAINT: u8 = 0xa5;

/// The start of the painted area, just below the caller's frame.
#[inline(never)]
fn paint() -> *const u8 {
    let mut area = [PAINT; AREA];
    black_box(&mut area).as_ptr()
}

/// Bytes of the stack that some work uses.
#[inline(never)]
fn taken_by(work: impl FnOnce()) -> usize {
    let low = paint();
    work();
    // SAFETY: the range is this thread's stack, and nothing there is live.
    let is_painted = |at: &usize| unsafe { low.wrapping_add(*at).read_volatile() } == PAINT;
    AREA - (0..AREA).take_while(is_painted).count()
}

#[inline(never)]
fn block() {
    black_box(Raw::new(64));
}

/// Calls itself to this depth, and then does the work.
#[inline(never)]
fn at_depth(levels: usize, work: &mut dyn FnMut()) {
    match levels {
        0 => work(),
        _ => black_box(at_depth as fn(usize, &mut dyn FnMut()))(levels - 1, work),
    }
    black_box(levels);
}

/// Each kind of work, and its use of the stack.
fn all_kinds() -> Vec<(String, usize)> {
    // Before any other work of this thread.
    let first = taken_by(block);
    let mut list = vec![("the first block".to_owned(), first)];
    let mut say = |what: &str, bytes: usize| list.push((what.to_owned(), bytes));
    say("the same once more", taken_by(block));
    say("code that is new", taken_by(|| drop(black_box(Raw::zeroed(100)))));
    say("an aligned one", taken_by(|| drop(black_box(Raw::with(Layout::from_size_align(100, 64).unwrap())))));
    let mut raw = Raw::new(10);
    say("a reallocation", taken_by(|| raw.resize(1000)));
    say("a free", taken_by(|| drop(raw)));
    let mut raws = Vec::with_capacity(100_000);
    say("tables that grow", taken_by(|| (0..100_000).for_each(|n| raws.push(Raw::new(n % 100 + 1)))));
    say("lists of what was freed", taken_by(|| raws.clear()));
    for levels in [5, 50, 100, 120, 130, 200, 400, 2000] {
        let mut most = 0;
        (0..3).for_each(|_| at_depth(levels, &mut || most = most.max(taken_by(block))));
        say(&format!("{levels} frames"), most);
    }
    list
}

#[track_caller]
fn assert_within_limit(work: impl FnOnce() -> Vec<(String, usize)> + Send) {
    let list = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(4 << 20);
        thread.spawn_scoped(scope, work).unwrap().join().unwrap()
    });
    list.iter().for_each(|(what, bytes)| println!("{bytes:>6} bytes: {what}"));
    assert!(list.iter().all(|(_, bytes)| *bytes <= LIMIT), "more than {LIMIT}: {list:?}");
}

/// The additional limit on a stack that does not belong to a thread: libgcc unwinds calls from there.
const LIMIT_ELSEWHERE: usize = if cfg!(debug_assertions) { 11 << 10 } else { 6 << 10 };

static ON_SIGNAL: AtomicUsize = AtomicUsize::new(0);

extern "C" fn on_signal(_signal: i32) {
    ON_SIGNAL.fetch_max(taken_by(block), Relaxed);
}

#[test]
fn a_block_on_a_signal_stack_is_limited_and_takes_more_the_first_time() {
    in_child(&[], || {
        let _session = memtrace::builder().min_size(0).start().unwrap();
        let mut stack = vec![0u8; 4 * AREA];
        let own = libc::stack_t { ss_sp: stack.as_mut_ptr().cast(), ss_flags: 0, ss_size: stack.len() };
        // SAFETY: the memory lives as long as this process.
        assert_eq!(unsafe { libc::sigaltstack(&raw const own, std::ptr::null_mut()) }, 0);
        // SAFETY: zeros are valid: no mask, and only the flag that follows.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        // SAFETY: the handler may allocate: the signal arrives at a known call, never inside the allocator.
        assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) }, 0);
        for _ in 0..3 {
            // SAFETY: the signal has a handler.
            unsafe { libc::raise(libc::SIGUSR1) };
        }
        let taken = ON_SIGNAL.load(Relaxed);
        println!("{taken:>6} bytes: on a signal's stack");
        assert!((1..=LIMIT_ELSEWHERE).contains(&taken), "{taken}");
        std::mem::forget(stack);
    });
}

#[test]
fn a_recorded_block_takes_little_of_the_programs_stack() {
    in_child(&[], || {
        let _session = memtrace::builder().min_size(0).start().unwrap();
        assert_within_limit(all_kinds);
    });
}

#[test]
fn a_free_with_a_stack_takes_little_of_the_programs_own() {
    in_child(&[], || {
        let _session = memtrace::builder().min_size(0).context(StackContext::All).start().unwrap();
        assert_within_limit(all_kinds);
    });
}

#[test]
fn a_measured_block_takes_little_of_the_programs_stack() {
    in_child(&[], || {
        assert_within_limit(|| memtrace::measure(all_kinds).value);
    });
}
