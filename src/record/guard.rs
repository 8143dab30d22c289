//! The reentrancy guard and other per-thread state. The hot path reads one thread-local byte once.

use std::cell::Cell;

use memtrace_core::snapshot::ContextId;

use super::answer::Answer;

/// The reentrancy guard: memtrace's own code is running, and its allocations are own memory.
pub(crate) const OWN: u8 = 1;
/// A measurement is active on this thread.
pub(crate) const MEASURING: u8 = 2;
/// Set by [`ask_the_allocator`]; the hook clears it at the next allocation.
pub(crate) const PROBING: u8 = 4;
/// The thread has neither allocated nor freed anything yet.
pub(crate) const NEW: u8 = 8;

/// The thread state that the hot path reads. It is a single thread-local variable, because computing the address of
/// each variable takes instructions.
#[derive(Debug)]
struct PerThread {
    state: Cell<u8>,
    context: Cell<ContextId>,
    /// See [`thread::number`](super::thread::number).
    number: Cell<u32>,
    measure: Cell<u64>,
    inherited: Cell<u64>,
}

thread_local! {
    // It is const and has no destructor, so it is usable before main, in thread-local destructors and at exit.
    static THREAD: PerThread = const {
        PerThread {
            state: Cell::new(NEW),
            context: Cell::new(ContextId::ROOT),
            number: Cell::new(0),
            measure: Cell::new(0),
            inherited: Cell::new(0),
        }
    };
}

#[inline]
pub(crate) fn state() -> u8 {
    THREAD.with(|thread| thread.state.get())
}

pub(crate) fn set(bit: u8, on: bool) {
    THREAD.with(|thread| {
        let state = thread.state.get();
        thread.state.set(if on { state | bit } else { state & !bit });
    });
}

/// The innermost open scope of this thread.
#[inline]
pub(crate) fn context() -> ContextId {
    THREAD.with(|thread| thread.context.get())
}

pub(crate) fn set_context(context: ContextId) {
    THREAD.with(|thread| thread.context.set(context));
}

/// The address of this thread's number, a field of `THREAD`.
pub(crate) fn local_address() -> u64 {
    THREAD.with(|thread| std::ptr::from_ref(&thread.number).addr() as u64)
}

/// This thread's number. If it has none yet, `first` assigns one.
#[inline]
pub(super) fn thread_number(first: impl FnOnce(&Cell<u32>) -> u32) -> u32 {
    THREAD.with(|thread| match thread.number.get() {
        0 => first(&thread.number),
        number => number,
    })
}

/// The measurement that is active on this thread; 0 for none.
pub(crate) fn measure() -> u64 {
    THREAD.with(|thread| thread.measure.get())
}

pub(crate) fn set_measure(measure: u64) {
    THREAD.with(|thread| thread.measure.set(measure));
    set(MEASURING, measure != 0);
}

/// The measurement that this thread inherited, which is active whenever no other is; 0 for none.
pub(crate) fn inherited() -> u64 {
    THREAD.with(|thread| thread.inherited.get())
}

/// This thread inherits a measurement from the thread that started it.
pub(crate) fn inherit(measure: u64) {
    THREAD.with(|thread| thread.inherited.set(measure));
    if self::measure() == 0 {
        set_measure(measure);
    }
}

/// While this guard lives, allocations of this thread are own memory: counted separately and not recorded. Memory that
/// is allocated under the guard must be freed under one.
#[must_use]
#[derive(Debug)]
pub(crate) struct OwnWork {
    before: u8,
}

#[inline]
pub(crate) fn own_work() -> OwnWork {
    THREAD.with(|thread| {
        let before = thread.state.get();
        thread.state.set(before | OWN);
        OwnWork { before }
    })
}

impl Drop for OwnWork {
    #[inline]
    fn drop(&mut self) {
        THREAD.with(|thread| thread.state.set(thread.state.get() & !OWN | self.before & OWN));
    }
}

/// Whether memtrace's allocator is the global one. The answer is stored, because asking uses the program's allocator,
/// which memtrace's threads must not do. There is no lock, because a forked child would inherit it; asking twice is
/// harmless.
pub(crate) fn allocator_is_installed() -> bool {
    static ANSWER: Answer = Answer::new();
    ANSWER.get_or(ask_the_allocator)
}

fn ask_the_allocator() -> bool {
    let _own = own_work();
    set(PROBING, true);
    drop(std::hint::black_box(Box::new(0u8)));
    #[cfg(all(feature = "preload", target_os = "linux", target_env = "gnu"))]
    touch_the_programs_memory();
    let answered = state() & PROBING == 0;
    set(PROBING, false);
    answered
}

/// Allocates and frees through the functions that the program calls.
#[cfg(all(feature = "preload", target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "functions of C")]
fn touch_the_programs_memory() {
    // SAFETY: no preconditions.
    let block = unsafe { libc::malloc(1) };
    // SAFETY: the new block.
    unsafe { libc::free(std::hint::black_box(block)) };
}

/// A value in own memory. Its drop is own work, too, wherever the value is dropped.
#[derive(Debug)]
pub(crate) struct Own<T> {
    value: T,
    /// Set by `drop` and dropped after `value`.
    work: Option<OwnWork>,
}

impl<T> Own<T> {
    /// Wraps a value that was created as own work.
    pub(crate) const fn new(value: T) -> Self {
        Self { value, work: None }
    }

    /// Creates a value as own work.
    pub(crate) fn make(f: impl FnOnce() -> T) -> Self {
        let _work = own_work();
        Self::new(f())
    }

    /// Like [`make`](Self::make), for a fallible function. The error is copied to the caller's memory.
    pub(crate) fn try_make<E: Clone>(f: impl FnOnce() -> Result<T, E>) -> Result<Self, E> {
        let work = own_work();
        let made = f();
        drop(work);
        made.map(Self::new).map_err(|error| Own::new(error).clone())
    }
}

impl<T> std::ops::Deref for Own<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

/// Change the value only as own work.
impl<T> std::ops::DerefMut for Own<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        self.work = Some(own_work());
    }
}
