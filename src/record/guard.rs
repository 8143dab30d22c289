//! What this thread is doing, in one thread-local byte that the hot path reads once.

use std::cell::Cell;

use crate::snapshot::ContextId;

/// memtrace's own code is running: its allocations are its own.
pub(crate) const OWN: u8 = 1;
/// A measurement is in force on this thread.
pub(crate) const MEASURING: u8 = 2;
/// Somebody asks whether the allocator is installed; the first allocation answers by clearing this.
pub(crate) const PROBING: u8 = 4;
/// The thread has neither allocated nor freed anything yet.
pub(crate) const NEW: u8 = 8;

thread_local! {
    // Const and without a destructor: readable before main, in thread-local destructors and after.
    static STATE: Cell<u8> = const { Cell::new(NEW) };
    static CONTEXT: Cell<ContextId> = const { Cell::new(ContextId::ROOT) };
    static MEASURE: Cell<u64> = const { Cell::new(0) };
    static INHERITED: Cell<u64> = const { Cell::new(0) };
}

#[inline]
pub(crate) fn state() -> u8 {
    STATE.with(Cell::get)
}

pub(crate) fn set(bit: u8, on: bool) {
    STATE.with(|state| state.set(if on { state.get() | bit } else { state.get() & !bit }));
}

/// The innermost open scope of this thread.
#[inline]
pub(crate) fn context() -> ContextId {
    CONTEXT.with(Cell::get)
}

pub(crate) fn set_context(context: ContextId) {
    CONTEXT.with(|cell| cell.set(context));
}

/// The number of the measurement in force on this thread; 0 is none.
pub(crate) fn measure() -> u64 {
    MEASURE.with(Cell::get)
}

pub(crate) fn set_measure(measure: u64) {
    MEASURE.with(|cell| cell.set(measure));
    set(MEASURING, measure != 0);
}

/// The measurement that this thread was begun in, which is in force wherever no other is; 0 is none.
pub(crate) fn inherited() -> u64 {
    INHERITED.with(Cell::get)
}

/// This thread, which has no measurement yet, goes on with the work of one.
pub(crate) fn inherit(measure: u64) {
    INHERITED.with(|cell| cell.set(measure));
    if self::measure() == 0 {
        set_measure(measure);
    }
}

/// While this lives, allocations of this thread are memtrace's own: not recorded, counted apart.
/// What is allocated under it must be freed under it.
#[must_use]
#[derive(Debug)]
pub(crate) struct OwnWork {
    /// The state before, so that nesting works.
    before: u8,
}

#[inline]
pub(crate) fn own_work() -> OwnWork {
    STATE.with(|state| {
        let before = state.get();
        state.set(before | OWN);
        OwnWork { before }
    })
}

impl Drop for OwnWork {
    #[inline]
    fn drop(&mut self) {
        STATE.with(|state| state.set(state.get() & !OWN | self.before & OWN));
    }
}

/// Does an allocation of this thread reach memtrace's allocator?
pub(crate) fn allocator_is_installed() -> bool {
    let _own = own_work();
    set(PROBING, true);
    drop(std::hint::black_box(Box::new(0u8)));
    let answered = state() & PROBING == 0;
    set(PROBING, false);
    answered
}

/// A value whose memory is memtrace's own, wherever and whenever it is dropped.
#[derive(Debug)]
pub(crate) struct Own<T> {
    value: T,
    /// Set while `value` is being dropped; fields drop in this order.
    work: Option<OwnWork>,
}

impl<T> Own<T> {
    /// Of a value that was made as memtrace's own work.
    pub(crate) const fn new(value: T) -> Self {
        Self { value, work: None }
    }

    /// Makes a value as memtrace's own work.
    pub(crate) fn make(f: impl FnOnce() -> T) -> Self {
        let _work = own_work();
        Self::new(f())
    }

    /// The same if it can be made; the error is the caller's.
    pub(crate) fn try_make<E: Clone>(f: impl FnOnce() -> Result<T, E>) -> Result<Self, E> {
        let work = own_work();
        let made = f();
        drop(work);
        made.map(|value| Self { value, work: None }).map_err(|error| {
            let theirs = error.clone();
            let _work = own_work();
            drop(error);
            theirs
        })
    }
}

impl<T> std::ops::Deref for Own<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

/// To be changed as own work alone.
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
