//! The words in a thread's registers and on its stack: evidence that shows whose work the thread does.
#![expect(unsafe_code, reason = "reads registers and the thread's own stack")]

use super::bounds;
use crate::record::kept::{PerThread, Place, Pool};
use crate::record::own_pages::page_size;
use crate::record::unwind::arch::{self, KeptRegisters, kept_registers};
use crate::record::unwind::registers::Registers;
use crate::record::unwind::stack::StackPart;

/// Number of bytes that are searched at each end of a large stack.
const MOST: u64 = 128 << 10;
/// Words that are remembered from a thread's start.
const FIRST: usize = 64;

/// The words that a thread has at its start. Its registers come from its parent, and are then saved on its stack for
/// good. Words and addresses are stored as their complements: static memory is searched for addresses of blocks, and a
/// block may lie where an ended thread's stack was.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    registers: KeptRegisters,
    /// (address, word) pairs of its stack.
    words: [(u64, u64); FIRST],
}

thread_local! {
    // Const and without a destructor.
    static BEGINNING: Place<Beginning> = const { Place::new() };
}

static BEGINNINGS: Pool<Beginning> = Pool::new();

impl PerThread for Beginning {
    const EMPTY: &'static Self = &Self { registers: [0; size_of::<KeptRegisters>() / 8], words: [(0, 0); FIRST] };
    const POOL: &'static Pool<Self> = &BEGINNINGS;
}

/// Notes the words that a new thread already has, as they do not show whose work it does.
#[inline(never)]
pub(in crate::record) fn on_thread_start() {
    let here = Registers::here().sp & !7;
    let end = own_variables() & !7;
    // The main thread's variables are elsewhere, and a signal handler may run on another stack.
    if end.wrapping_sub(here) > MOST || !bounds::of_this_thread().contain(here) {
        return;
    }
    // Stacks lie in one part of the address space, the program's code in another.
    let may_be_stack = |word: u64| word >> 40 == here >> 40 && !(here..end).contains(&word);
    // The outermost words come first: they were given to the thread.
    let places = (1..=(end - here) / 8).map(|words| end - 8 * words);
    let outside = places.map(|at| (at, word(at))).filter(|(_, word)| may_be_stack(*word));
    with_beginning(|Beginning { registers, words }| {
        *registers = kept_registers().map(|word| !word);
        words.iter_mut().zip(outside).for_each(|(place, (at, word))| *place = (!at, !word));
    });
}

/// Clears what an earlier thread left in the memory of this new thread's stack.
#[inline(never)]
pub(in crate::record) fn clear_unused_stack() {
    const PAGES: usize = 64;
    /// Room below this frame for the functions called here.
    const ROOM: u64 = 256;
    let (here, bounds) = (Registers::here().sp, bounds::of_this_thread());
    if !bounds.contain(here) {
        return;
    }
    let page_size = page_size() as u64;
    let end = (here - ROOM) & !7;
    let last_page = end & !(page_size - 1);
    let first = last_page.saturating_sub(page_size * (PAGES as u64 - 1)).max(bounds.start.next_multiple_of(page_size));
    let mut resident = [0u8; PAGES];
    let length = end.next_multiple_of(page_size).saturating_sub(first);
    // SAFETY: `resident` has a byte per page. The kernel only reports on pages of this thread's stack.
    if unsafe { libc::mincore(first as *mut _, length as usize, resident.as_mut_ptr()) } != 0 {
        return;
    }
    // Untouched pages stay untouched.
    for (page, _) in (first..end).step_by(page_size as usize).zip(resident).filter(|(_, resident)| resident & 1 != 0) {
        let words = (end.min(page + page_size) - page) / 8;
        // SAFETY: this memory belongs to this thread's stack and is below all its frames. A signal handler that uses it
        // ends before this code continues.
        unsafe { arch::clear(page, words) };
    }
}

/// Whether this thread had this word at this address when it started. With `of_parent`, the address does not matter,
/// because functions that spill registers save words of the parent elsewhere.
pub(in crate::record) fn was_held_at_start(word: u64, at: u64, of_parent: bool) -> bool {
    let held = with_beginning(|Beginning { registers, words }| {
        let (word, at) = (!word, !at);
        registers.contains(&word) || words.iter().any(|(place, first)| *first == word && (of_parent || *place == at))
    });
    held == Some(true)
}

/// Calls `work` with this thread's beginning. `None` if there is no memory for it; then no word counts as one from the
/// start.
fn with_beginning<T>(work: impl FnOnce(&mut Beginning) -> T) -> Option<T> {
    BEGINNING.with(|place| place.with(|beginning| beginning.map(work)))
}

/// Calls `each` with each word that this thread has and the word's address (0 for a register). Only the stack that the
/// system gave the thread is searched.
#[inline(never)]
pub(in crate::record) fn each_word(mut each: impl FnMut(u64, u64)) {
    kept_registers().into_iter().for_each(|word| each(word, 0));
    let (here, bounds) = (Registers::here().sp & !7, bounds::of_this_thread());
    if !bounds.contain(here) {
        return;
    }
    // Computes no address beyond this stack. Such an address might be in another thread's stack, and this frame is
    // searched, too.
    let length = (bounds.end - here).min(MOST);
    let rest = (bounds.end - here - length).min(MOST);
    for part in [here..here + length, bounds.end - rest..bounds.end] {
        part.step_by(8).for_each(|at| each(word(at), at));
    }
}

#[inline(always)]
fn word(address: u64) -> u64 {
    // SAFETY: callers pass aligned addresses between this thread's stack pointer and its stack's end.
    unsafe { arch::word(address) }
}

/// Start of this thread's thread-local variables on its stack, outside all frames. Other threads know addresses in
/// them.
fn own_variables() -> u64 {
    // SAFETY: no preconditions.
    let errno = unsafe { libc::__errno_location() }.addr() as u64;
    let ours = BEGINNING.with(|ours| std::ptr::from_ref(ours).addr() as u64);
    // The variables of a library that was loaded later are elsewhere.
    arch::variables_begin(if errno.wrapping_sub(ours) < MOST { ours } else { errno })
}

/// This thread's stack without its thread-local variables.
pub(in crate::record) fn whole_stack() -> Option<StackPart> {
    let (bounds, end) = (bounds::of_this_thread(), own_variables());
    let end = if bounds.contain(end) { end } else { bounds.end };
    bounds.contain(Registers::here().sp).then_some(StackPart { start: bounds.start, end })
}

/// The part of the stack that the caller's frame and the functions called from here use.
pub(in crate::record) fn part_from_here() -> Option<StackPart> {
    /// Larger than the frames of a test function.
    const CALLER: u64 = 32 << 10;
    /// Larger than what the measured code uses before it hands work over.
    const CALLED: u64 = 256 << 10;
    let (whole, here) = (whole_stack()?, Registers::here().sp);
    Some(StackPart { start: whole.start.max(here - CALLED), end: whole.end.min(here + CALLER) })
}
