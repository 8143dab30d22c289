//! Large per-thread state in memtrace's own memory. Every thread's stack must have room for its thread-local variables,
//! so these only point to the state. A thread that ends leaves its memory to the next one. No operation waits, so
//! signal handlers may interrupt any of them.
#![expect(unsafe_code, reason = "memory that threads take over from each other")]

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use allocator_api2::boxed::Box;

use super::memory::System;
use super::{guard, thread_end};
use crate::errno::KeepErrno;

/// State of which each thread has a value of its own, from the thread's first use on.
pub(crate) trait PerThread: Copy + 'static {
    const EMPTY: &'static Self;
    const POOL: &'static Pool<Self>;
}

/// The entries of all threads. They are never freed.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    newest: AtomicPtr<Entry<T>>,
    /// At least the number of entries that no thread has taken.
    free: AtomicUsize,
}

/// The thread-local variable. It is const and has no destructor, so it is usable before main and at exit.
#[derive(Debug)]
pub(crate) struct Place<T>(AtomicPtr<Entry<T>>);

#[derive(Debug)]
struct Entry<T> {
    link: Link,
    older: *mut Self,
    /// Written whenever a thread takes the entry.
    value: UnsafeCell<MaybeUninit<T>>,
}

/// The part of an entry that does not depend on `T`. Only the thread that has taken the entry uses the cells.
#[derive(Debug)]
struct Link {
    is_taken: AtomicBool,
    free: &'static AtomicUsize,
    /// The thread-local variable that points here.
    place: Cell<*const AtomicPtr<()>>,
    next_of_thread: Cell<Option<&'static Self>>,
    /// Code on this thread is using the value; a signal may have interrupted it.
    is_used: Cell<bool>,
}

thread_local! {
    static OWNED: Cell<Option<&'static Link>> = const { Cell::new(None) };
    /// Set at the thread's end. An entry taken afterwards would never be left to another thread.
    static HAS_ENDED: Cell<bool> = const { Cell::new(false) };
}

impl<T: PerThread> Place<T> {
    pub(crate) const fn new() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Runs `work` with this thread's value. Passes `None` if there is no memory, if the thread has ended, or in a
    /// signal handler that interrupted such work. The place must be a thread-local variable.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn with<R>(&self, work: impl FnOnce(Option<&mut T>) -> R) -> R {
        let known = NonNull::new(self.0.load(Ordering::Relaxed));
        let Some(entry) = known.or_else(|| self.first_time()) else { return work(None) };
        // SAFETY: entries live for ever.
        let entry = unsafe { entry.as_ref() };
        if entry.link.is_used.replace(true) {
            return work(None);
        }
        // SAFETY: only this thread has the entry, and `is_used` allows one use at a time.
        let value = unsafe { &mut *entry.value.get() };
        // SAFETY: the value was written when the thread took the entry.
        let done = work(Some(unsafe { value.assume_init_mut() }));
        entry.link.is_used.set(false);
        done
    }

    #[cold]
    #[inline(never)]
    fn first_time(&self) -> Option<NonNull<Entry<T>>> {
        let (_own, _errno) = (guard::own_work(), KeepErrno::new());
        if HAS_ENDED.get() || !thread_end::watch(on_thread_end) {
            return None;
        }
        let entry = T::POOL.take()?;
        // A signal handler may have taken an entry meanwhile.
        let before = self.0.compare_exchange(null_mut(), entry.as_ptr(), Ordering::Relaxed, Ordering::Relaxed);
        // SAFETY: entries live for ever.
        let link: &'static Link = unsafe { &entry.as_ref().link };
        match before {
            Ok(_) => link.join((&raw const self.0).cast()),
            Err(_) => link.leave(),
        }
        before.map_or_else(NonNull::new, |_| Some(entry))
    }
}

impl<T: PerThread> Pool<T> {
    pub(crate) const fn new() -> Self {
        Self { newest: AtomicPtr::new(null_mut()), free: AtomicUsize::new(0) }
    }

    /// Takes an entry for this thread and resets its value to the empty one.
    fn take(&'static self) -> Option<NonNull<Entry<T>>> {
        let entry = self.free_one().or_else(|| self.make())?;
        // SAFETY: entries live for ever, and only this thread has this one.
        let Entry { link, value, .. } = unsafe { entry.as_ref() };
        link.is_used.set(false);
        // SAFETY: nobody else has the value, and `EMPTY` is valid for reads. Copied like this, it is never on the
        // stack.
        unsafe { value.get().cast::<T>().copy_from_nonoverlapping(T::EMPTY, 1) };
        Some(entry)
    }

    fn free_one(&self) -> Option<NonNull<Entry<T>>> {
        if self.free.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut next = NonNull::new(self.newest.load(Ordering::Acquire));
        while let Some(entry) = next {
            // SAFETY: entries live for ever.
            let Entry { link, older, .. } = unsafe { entry.as_ref() };
            // Acquire: the previous thread wrote to the entry before it released the entry.
            if !link.is_taken.swap(true, Ordering::Acquire) {
                self.free.fetch_sub(1, Ordering::Relaxed);
                return Some(entry);
            }
            next = NonNull::new(*older);
        }
        None
    }

    fn make(&'static self) -> Option<NonNull<Entry<T>>> {
        let memory = Box::<Entry<T>, System>::try_new_uninit_in(System).ok()?;
        let entry: *mut Entry<T> = Box::into_raw_with_allocator(memory).0.cast();
        // SAFETY: within the new memory.
        let link = unsafe { &raw mut (*entry).link };
        // SAFETY: within the new memory.
        let older = unsafe { &raw mut (*entry).older };
        // SAFETY: nobody else knows the memory.
        unsafe { link.write(Link::new(&self.free)) };
        let put = |newest| {
            // SAFETY: until the exchange succeeds, nobody else knows the memory.
            unsafe { older.write(newest) };
            Some(entry)
        };
        // Release: a thread that finds the entry sees what was written to it.
        let _ = self.newest.fetch_update(Ordering::Release, Ordering::Relaxed, put);
        NonNull::new(entry)
    }
}

impl Link {
    fn new(free: &'static AtomicUsize) -> Self {
        let is_taken = AtomicBool::new(true);
        Self { is_taken, free, place: Cell::new(null()), next_of_thread: Cell::new(None), is_used: Cell::new(false) }
    }

    fn join(&'static self, place: *const AtomicPtr<()>) {
        self.place.set(place);
        self.next_of_thread.set(OWNED.replace(Some(self)));
    }

    fn leave(&self) {
        // Incremented first, so that the number is never too low.
        self.free.fetch_add(1, Ordering::Relaxed);
        // Release: the next thread writes to the entry, too.
        self.is_taken.store(false, Ordering::Release);
    }
}

/// Runs when this thread ends: releases its entries for other threads.
fn on_thread_end() {
    HAS_ENDED.set(true);
    let mut next = OWNED.take();
    while let Some(link) = next {
        next = link.next_of_thread.get();
        // SAFETY: `place` is a thread-local variable of this thread, which lives as long as the thread's stack.
        unsafe { &*link.place.get() }.store(null_mut(), Ordering::Relaxed);
        link.leave();
    }
}

// SAFETY: `is_taken` and the exchange of `newest` hand entries from thread to thread.
unsafe impl<T: PerThread + Send> Sync for Pool<T> {}
