//! Incremental unwinder for Linux with glibc: one cache look-up per step. It reports when it cannot prove a step.
//!
//! A step is proven if its rule comes from the object's own CFI and has one of three forms, and the step leads upwards
//! within the stack that the system gave this thread.
#![expect(unsafe_code, reason = "reads registers and the thread's own stack")]

mod aside;
mod bounds;
mod cache;
mod cfi;
mod deep;
mod held;
mod known;
mod last;
mod lookup;
mod rule;
mod scratch;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use self::aside::Turn;
use self::cache::{ADDRESS_BITS, Cache};
pub(super) use self::deep::DeepStack;
pub(in crate::record) use self::held::{
    clear_unused_stack, each_word, on_thread_start, part_from_here, was_held_at_start, whole_stack,
};
use self::last::{LastStack, MOST};
use self::rule::{Rule, UnwindStep};
pub(super) use self::scratch::with_scratch;
use super::collector::Collector;
use super::registers::Registers;
use super::stack::{FoundStack, KnownStack, PredictStack, Stack};
use super::{arch, objects};
use crate::record::kept::{PerThread, Place, Pool};

static LASTS: Pool<LastStack> = Pool::new();

impl PerThread for LastStack<MOST> {
    const EMPTY: &'static Self = &Self::new();
    const POOL: &'static Pool<Self> = &LASTS;
}

static CACHE: Cache = Cache::new();
/// The count of unloads when the cache last dropped rules.
static UNLOADS: AtomicU64 = AtomicU64::new(0);
/// The permission to change the cache. Nobody waits for it: a second thread leaves its stack to libgcc.
static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    // Both are const and have no destructors, so they are usable before main, in thread-local destructors and at exit.
    static LAST: Place<LastStack> = const { Place::new() };
    /// A stack whose innermost frame is below this address is likely to have more frames than `LAST` keeps.
    static DEEP_BELOW: Cell<u64> = const { Cell::new(0) };
}

/// Calls `work` with the stack outside the frame with these registers, which must be live until this function returns.
/// If the stack has more than `depth` frames, or a step cannot be proven, returns `work` instead.
#[inline(always)]
pub(super) fn with_taken<'a, T, F: FnOnce(FoundStack<'_>) -> T>(
    start: Registers,
    depth: usize,
    prediction: impl PredictStack<'a>,
    work: F,
) -> Result<T, F> {
    let Some((first, end)) = first(start) else { return Err(work) };
    match right(first.to, end, depth, prediction) {
        Some(known) => Ok(work(FoundStack::Guessed(known))),
        None => with_last_from(first, end, depth, |taken| match taken {
            Some(stack) => Ok(work(FoundStack::Walked(stack))),
            None => Err(work),
        }),
    }
}

/// The stack outside the frame with these registers, if it is the predicted one.
pub(super) fn predicted<'a>(
    start: Registers,
    depth: usize,
    prediction: impl PredictStack<'a>,
) -> Option<KnownStack<'a>> {
    let (first, end) = first(start)?;
    right(first.to, end, depth, prediction)
}

/// [`with_taken`] without a prediction.
pub(super) fn with_last<T, F: FnOnce(Stack<'_>) -> T>(start: Registers, depth: usize, work: F) -> Result<T, F> {
    let Some((first, end)) = first(start) else { return Err(work) };
    with_last_from(first, end, depth, |taken| match taken {
        Some(stack) => Ok(work(stack)),
        None => Err(work),
    })
}

/// The step out of the frame with these registers, and the end of its stack.
#[cfg_attr(not(debug_assertions), inline(always))]
fn first(start: Registers) -> Option<(UnwindStep, u64)> {
    let bounds = bounds::of_this_thread();
    if !bounds.contain(start.sp) || !start.sp.is_multiple_of(8) {
        return None;
    }
    let step = rule_for(start.ip, &mut false)?.step(start, bounds.end, read)?;
    Some((step, bounds.end))
}

/// The predicted stack, if it is this thread's current one.
#[cfg_attr(not(debug_assertions), inline(always))]
fn right<'a>(at: Registers, end: u64, depth: usize, prediction: impl PredictStack<'a>) -> Option<KnownStack<'a>> {
    let known = prediction.predict(at.ip)?;
    (known.addresses.len() <= depth && known::is_here(&known, at, end, read)).then_some(known)
}

#[cfg_attr(not(debug_assertions), inline(always))]
fn with_last_from<T>(first: UnwindStep, end: u64, depth: usize, work: impl FnOnce(Option<Stack<'_>>) -> T) -> T {
    if first.to.sp < DEEP_BELOW.get() {
        return work(None);
    }
    let mut current = false;
    LAST.with(|place| {
        place.with(|last| {
            let taken = last.and_then(|last| last.take(first, end, |ip| rule_for(ip, &mut current), read));
            work(taken.filter(|stack| stack.addresses.len() <= depth))
        })
    })
}

/// Takes the frames outside the one with these registers, which must be live until this function returns. False if a
/// step cannot be proven.
pub(super) fn walk(start: Registers, deep: &mut DeepStack, collector: &mut Collector<'_>) -> bool {
    let Some((first, end)) = first(start) else { return false };
    let mut current = false;
    let proven = deep.walk(first, end, collector, |ip| rule_for(ip, &mut current), read);
    DEEP_BELOW.set(deep.deep_below());
    proven
}

/// Reads a word of this thread's stack. Callers pass aligned addresses at or above the stack pointer of a live frame
/// and below the stack's end; see [`Rule::step`].
#[inline]
fn read(address: u64) -> u64 {
    // SAFETY: an aligned word of this thread's live stack, as promised above. Volatile, because the words belong to
    // other functions' frames and may change at any time.
    unsafe { (address as *const u64).read_volatile() }
}

/// The rule for a return address. `current` becomes true once the cache is known to have no rule of an object that was
/// unloaded before this stack was taken. Code on the stack cannot be unloaded meanwhile.
#[cfg_attr(not(debug_assertions), inline(always))]
fn rule_for(ip: u64, current: &mut bool) -> Option<Rule> {
    let key = arch::key(ip);
    match CACHE.find_at_once(key) {
        Some(rule) if key >> ADDRESS_BITS == 0 => Some(rule),
        _ => looked_for(ip, current),
    }
}

#[cold]
#[inline(never)]
fn looked_for(ip: u64, current: &mut bool) -> Option<Rule> {
    let key = arch::key(ip);
    if key >> ADDRESS_BITS != 0 {
        return None;
    }
    match CACHE.find(key) {
        Some(rule) if rule.stays() || *current => Some(rule),
        Some(_) => checked(ip, current),
        None => learn(ip),
    }
}

/// The rule for an address whose object may have been replaced by another one.
#[cold]
fn checked(ip: u64, current: &mut bool) -> Option<Rule> {
    let (_, unloads) = objects::query_counts();
    // Acquire: the rules that were dropped before this count was stored are gone for this thread, too.
    if unloads != UNLOADS.load(Ordering::Acquire) {
        forget(unloads, &TURN.try_lock().ok()?);
    }
    *current = true;
    CACHE.find(arch::key(ip)).or_else(|| learn(ip))
}

#[cold]
fn learn(ip: u64) -> Option<Rule> {
    let turn = TURN.try_lock().ok()?;
    // The address of the call itself: the instruction after it may belong to the next function.
    let (call, mut found) = (ip.checked_sub(1)?, None);
    aside::run(&turn, || found = Some(lookup::find(call)));
    let found = found?;
    objects::note_counts(found.counts);
    forget(found.counts.1, &turn);
    CACHE.insert(arch::key(ip), found.rule);
    Some(found.rule)
}

fn forget(unloads: u64, _turn: &Turn) {
    if UNLOADS.load(Ordering::Relaxed) != unloads {
        CACHE.forget_what_does_not_stay();
        UNLOADS.store(unloads, Ordering::Release);
    }
}
