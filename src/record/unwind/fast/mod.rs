//! The unwinder for x86_64 Linux with glibc: a step from one frame to the next is a look into a cache.
//!
//! It says that a stack is over or that it could not prove a step; then libgcc takes the whole stack.
//! Proven is a step whose rule comes from the module's own call frame information, is one of three
//! forms, and leads upwards within the stack that the system gave this thread. So signal frames,
//! coroutines, generated code and frames with stranger rules are libgcc's.
#![expect(unsafe_code, reason = "reads registers and the thread's own stack")]

mod aside;
mod bounds;
mod cache;
mod cfi;
mod deep;
mod held;
mod known;
mod last;
mod modules;
mod room;
mod rule;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use self::aside::Turn;
use self::cache::{ADDRESS_BITS, Cache};
pub(super) use self::deep::DeepStack;
pub(in crate::record) use self::held::{
    clear_unused_stack, each_word, part_from_here, thread_begins, was_held_at_first, whole_stack,
};
use self::last::LastStack;
pub(super) use self::room::with_room;
use self::rule::{Rule, Step};
use super::collector::Collector;
use super::modules as loaded;
use super::registers::Registers;
use super::stack::{Known, Stack, Taken};

static CACHE: Cache = Cache::new();
/// How many modules had been unloaded when the cache last forgot what does not stay.
static UNLOADS: AtomicU64 = AtomicU64::new(0);
/// Whoever has it may change the cache. Nobody waits for it: who comes second lets libgcc do it.
static TURN: Mutex<()> = Mutex::new(());

thread_local! {
    // Const and without a destructor: there before main, in thread-local destructors and after.
    static LAST: RefCell<LastStack> = const { RefCell::new(LastStack::new()) };
    /// Where a stack's innermost frame lies below this address, it is likely to be deeper than that.
    static DEEP_BELOW: Cell<u64> = const { Cell::new(0) };
}

/// Does something with the stack outside of the frame that has these registers, if it has at most so many frames and
/// each step can be proven; otherwise gives `work` back. That frame must be live until this returns.
#[inline(always)]
pub(super) fn with_taken<'a, T, F: FnOnce(Taken<'_>) -> T>(
    start: Registers,
    depth: usize,
    guess: impl FnOnce(u64) -> Option<Known<'a>>,
    work: F,
) -> Result<T, F> {
    let Some((first, end)) = first(start) else { return Err(work) };
    match right(first.to, end, depth, guess) {
        Some(known) => Ok(work(Taken::Guessed(known))),
        None => with_last_from(first, end, depth, |taken| match taken {
            Some(stack) => Ok(work(Taken::Walked(stack))),
            None => Err(work),
        }),
    }
}

/// The stack outside of the frame that has these registers, if it is the one that is guessed.
pub(super) fn guessed<'a>(
    start: Registers,
    depth: usize,
    guess: impl FnOnce(u64) -> Option<Known<'a>>,
) -> Option<Known<'a>> {
    let (first, end) = first(start)?;
    right(first.to, end, depth, guess)
}

/// The same as [`with_taken`] without a guess.
pub(super) fn with_last<T, F: FnOnce(Stack<'_>) -> T>(start: Registers, depth: usize, work: F) -> Result<T, F> {
    let Some((first, end)) = first(start) else { return Err(work) };
    with_last_from(first, end, depth, |taken| match taken {
        Some(stack) => Ok(work(stack)),
        None => Err(work),
    })
}

/// The step out of the frame with these registers, and the end of its stack.
#[cfg_attr(not(debug_assertions), inline(always))]
fn first(start: Registers) -> Option<(Step, u64)> {
    let bounds = bounds::of_this_thread();
    if !bounds.contain(start.sp) || !start.sp.is_multiple_of(8) {
        return None;
    }
    let step = rule_for(start.ip, &mut false)?.step(start, bounds.end, read)?;
    Some((step, bounds.end))
}

/// The stack that is guessed, if it is the right one.
#[cfg_attr(not(debug_assertions), inline(always))]
fn right<'a>(at: Registers, end: u64, depth: usize, guess: impl FnOnce(u64) -> Option<Known<'a>>) -> Option<Known<'a>> {
    guess(at.ip).filter(|known| known.addresses.len() <= depth && known::is_here(known, at, end, read))
}

#[cfg_attr(not(debug_assertions), inline(always))]
fn with_last_from<T>(first: Step, end: u64, depth: usize, work: impl FnOnce(Option<Stack<'_>>) -> T) -> T {
    if first.to.sp < DEEP_BELOW.get() {
        return work(None);
    }
    LAST.with(|last| {
        // Somebody's signal handler, at worst, finds it taken.
        let Ok(mut last) = last.try_borrow_mut() else { return work(None) };
        let mut current = false;
        let taken = last.take(first, end, |ip| rule_for(ip, &mut current), read);
        work(taken.filter(|stack| stack.addresses.len() <= depth))
    })
}

/// Takes the frames outside of the one that has these registers; false if a step could not be proven.
/// That frame must be live until this returns.
pub(super) fn walk(start: Registers, mut deep: DeepStack<'_>, collector: &mut Collector<'_>) -> bool {
    let Some((first, end)) = first(start) else { return false };
    let mut current = false;
    let proven = deep.walk(first, end, collector, |ip| rule_for(ip, &mut current), read);
    DEEP_BELOW.set(deep.deep_below());
    proven
}

/// A word of this thread's stack. [`Rule::step`] asks for nothing else: aligned, at or above the stack
/// pointer of a live frame, below the stack's end.
#[inline]
fn read(address: u64) -> u64 {
    // SAFETY: see above. Volatile, because the frames up there belong to others, who may have written
    // to them since anything was read last.
    unsafe { (address as *const u64).read_volatile() }
}

/// `current` is set once the cache is known to hold nothing of modules that were gone before this stack
/// was taken. Code that is on the stack is not unloaded meanwhile.
#[cfg_attr(not(debug_assertions), inline(always))]
fn rule_for(ip: u64, current: &mut bool) -> Option<Rule> {
    match CACHE.find_at_once(ip) {
        Some(rule) if ip >> ADDRESS_BITS == 0 => Some(rule),
        _ => looked_for(ip, current),
    }
}

#[cold]
#[inline(never)]
fn looked_for(ip: u64, current: &mut bool) -> Option<Rule> {
    if ip >> ADDRESS_BITS != 0 {
        return None;
    }
    match CACHE.find(ip) {
        Some(rule) if rule.stays() || *current => Some(rule),
        Some(_) => checked(ip, current),
        None => learn(ip),
    }
}

/// The rule for an address of a module that may have come after another one at the same place.
#[cold]
fn checked(ip: u64, current: &mut bool) -> Option<Rule> {
    let (_, unloads) = loaded::ask();
    // Acquire: what was forgotten before this number was stored is forgotten for us.
    if unloads != UNLOADS.load(Ordering::Acquire) {
        forget(unloads, &TURN.try_lock().ok()?);
    }
    *current = true;
    CACHE.find(ip).or_else(|| learn(ip))
}

#[cold]
fn learn(ip: u64) -> Option<Rule> {
    let turn = TURN.try_lock().ok()?;
    // The call itself: the instruction after it may belong to something else.
    let (call, mut found) = (ip.checked_sub(1)?, None);
    aside::run(&turn, || found = Some(modules::find(call)));
    let found = found?;
    loaded::told(found.counts);
    forget(found.counts.1, &turn);
    CACHE.insert(ip, found.rule);
    Some(found.rule)
}

fn forget(unloads: u64, _turn: &Turn) {
    if UNLOADS.load(Ordering::Relaxed) != unloads {
        CACHE.forget_what_does_not_stay();
        UNLOADS.store(unloads, Ordering::Release);
    }
}
