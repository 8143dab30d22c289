//! Several copies of this library in one process: a library or a preloaded one beside the program's own.
//! The first puts the hooks in place and tells the others, so that each has its own recorder and every call is
//! seen once by each.
#![expect(unsafe_code, reason = "copies call one another through C")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::attention::Reason;
use super::bulk::{self, Before};
use super::events::{self, Free, Outcome, Release};
use super::{lookup, patch};
use crate::record::{gates, guard};

/// What a copy wants to be told, and by which functions.
#[repr(C)]
pub(super) struct Listener {
    watching: extern "C" fn() -> bool,
    after_alloc: extern "C" fn(&Outcome),
    before_free: extern "C" fn(&Release),
    /// Of several frees by one call the last is the first.
    after_free: extern "C" fn(c_int, u64),
    before_end: extern "C" fn(),
    after_end: extern "C" fn(c_int),
}

impl Listener {
    pub(super) fn after_alloc(&self, outcome: &Outcome) {
        (self.after_alloc)(outcome);
    }

    pub(super) fn before_free(&self, release: &Release) {
        (self.before_free)(release);
    }

    pub(super) fn after_free(&self, result: c_int, took: u64) {
        (self.after_free)(result, took);
    }

    pub(super) fn before_end(&self) {
        (self.before_end)();
    }

    pub(super) fn after_end(&self, result: c_int) {
        (self.after_end)(result);
    }
}

/// How many imports lead past the copy that has the hooks, and so on.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) imports: u64,
    pub(super) refused_imports: u64,
    pub(super) looked_up: u64,
}

/// What the copy with the hooks offers.
#[repr(C)]
struct Offer {
    /// Of what is passed: no other is understood.
    version: u64,
    listen: extern "C" fn(&'static Listener) -> bool,
    counts: extern "C" fn() -> Counts,
}

/// To be raised whenever a type that is passed changes.
const VERSION: u64 = 0x6d65_6d74_0000_0002;
static OFFER: Offer = Offer { version: VERSION, listen, counts: own_counts };
static OURSELVES: Listener = Listener { watching, after_alloc, before_free, after_free, before_end, after_end };

/// Those who listen to us.
static LISTENERS: [AtomicPtr<Listener>; 4] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 4];
static COUNT: AtomicU64 = AtomicU64::new(0);
/// They may record while we do not.
static WATCHED: Reason = Reason::new();
/// Whom we listen to.
static HEARD: AtomicPtr<Offer> = AtomicPtr::new(std::ptr::null_mut());

/// What other copies get when they ask for us.
pub(super) fn offer() -> usize {
    (&raw const OFFER).expose_provenance()
}

/// Listens to another copy; false if it speaks of other things or has too many listeners.
pub(super) fn accept(offer: *const c_void) -> bool {
    // SAFETY: every copy's offer begins with this number, and stays where it is.
    let version = unsafe { offer.cast::<u64>().read() };
    if version != VERSION {
        return false;
    }
    let offer = offer.cast::<Offer>();
    // SAFETY: it is what this version means by an offer.
    let listen = unsafe { (*offer).listen };
    HEARD.store(offer.cast_mut(), Ordering::Release);
    listen(&OURSELVES)
}

pub(super) fn counts() -> Counts {
    // SAFETY: null, or another copy's offer, which stays where it is.
    match unsafe { HEARD.load(Ordering::Acquire).as_ref() } {
        Some(offer) => (offer.counts)(),
        None => own_counts(),
    }
}

extern "C" fn own_counts() -> Counts {
    let (imports, refused_imports) = patch::counts();
    Counts { imports, refused_imports, looked_up: lookup::answered() }
}

extern "C" fn listen(listener: &'static Listener) -> bool {
    WATCHED.set(true);
    let place = LISTENERS.get(COUNT.fetch_add(1, Ordering::AcqRel) as usize);
    place.inspect(|place| place.store(std::ptr::from_ref(listener).cast_mut(), Ordering::Release)).is_some()
}

/// Does anybody else record? One relaxed load where there is nobody else.
#[inline]
pub(super) fn are_watching() -> bool {
    COUNT.load(Ordering::Relaxed) > 0 && ask()
}

#[cold]
fn ask() -> bool {
    let mut any = false;
    each(|listener| any |= (listener.watching)());
    any
}

/// Calls `tell` for everybody who listens.
#[inline]
pub(super) fn each(mut tell: impl FnMut(&Listener)) {
    if COUNT.load(Ordering::Relaxed) == 0 {
        return;
    }
    for place in &LISTENERS {
        // SAFETY: null, or a copy's static, which stays where it is: copies are never unloaded.
        if let Some(listener) = unsafe { place.load(Ordering::Acquire).as_ref() } {
            tell(listener);
        }
    }
}

thread_local! {
    // Const and without a destructor.
    /// The free under way, of several the one that was told last.
    static FREE: Cell<Option<Free>> = const { Cell::new(None) };
    /// Leaked and taken back: those that were told before it.
    static EARLIER: Cell<*mut Earlier> = const { Cell::new(std::ptr::null_mut()) };
    /// Leaked and taken back: what a context had when it was about to end.
    static ENDING: Cell<Option<*mut Before>> = const { Cell::new(None) };
}

extern "C" fn watching() -> bool {
    gates::watches_device_memory()
}

extern "C" fn after_alloc(outcome: &Outcome) {
    events::own_after_alloc(outcome);
}

/// One of several frees by one call.
struct Earlier {
    free: Free,
    before: *mut Self,
}

extern "C" fn before_free(release: &Release) {
    let free = events::own_before_free(release);
    if let Some(free) = FREE.replace(Some(free)) {
        let _own = guard::own_work();
        EARLIER.set(Box::into_raw(Box::new(Earlier { free, before: EARLIER.get() })));
    }
}

/// Of the free that was told last.
extern "C" fn after_free(result: c_int, took: u64) {
    let free = FREE.take().unwrap_or(Free::NotWatched);
    let earlier = EARLIER.get();
    if !earlier.is_null() {
        let _own = guard::own_work();
        // SAFETY: made by `before_free` on this thread, and taken once.
        let earlier = unsafe { Box::from_raw(earlier) };
        FREE.set(Some(earlier.free));
        EARLIER.set(earlier.before);
    }
    events::own_after_free(result, free, took);
}

extern "C" fn before_end() {
    if gates::watches_device_memory() {
        let _own = guard::own_work();
        ENDING.set(Some(Box::into_raw(Box::new(bulk::before()))));
    }
}

extern "C" fn after_end(result: c_int) {
    if let Some(before) = ENDING.take() {
        let _own = guard::own_work();
        // SAFETY: made by `before_end` on this thread, and taken once.
        bulk::after(result, *unsafe { Box::from_raw(before) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_of_another_version_is_not_accepted() {
        let other = Offer { version: VERSION + 1, listen, counts: own_counts };
        assert!(!accept((&raw const other).cast()));
        assert!(HEARD.load(Ordering::Acquire).is_null());
    }
}
