//! The words that a thread holds, in its registers and on its stack: evidence for whose work it does.
#![expect(unsafe_code, reason = "reads registers and the thread's own stack")]

use std::arch::asm;

use super::bounds;
use crate::record::kept::{PerThread, Place, Pool};
use crate::record::unwind::registers::Registers;
use crate::record::unwind::stack::StackPart;

/// Of a larger stack, this much of each end is searched.
const MOST: u64 = 128 << 10;
/// Words that are remembered from a thread's start.
const FIRST: usize = 64;

/// What a thread holds at its start: its registers come from its parent, and are then saved on its stack for good. Words
/// and addresses are stored as their complements: static memory is searched for addresses of blocks, and a block may lie
/// where an ended thread's stack was.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    registers: [u64; 6],
    /// (address, word) of its stack.
    words: [(u64, u64); FIRST],
}

thread_local! {
    // Const and without a destructor.
    static BEGINNING: Place<Beginning> = const { Place::new() };
}

static BEGINNINGS: Pool<Beginning> = Pool::new();

impl PerThread for Beginning {
    const EMPTY: &'static Self = &Self { registers: [0; 6], words: [(0, 0); FIRST] };
    const POOL: &'static Pool<Self> = &BEGINNINGS;
}

/// Notes what a new thread holds already, as that is no evidence.
#[inline(never)]
pub(in crate::record) fn on_thread_start() {
    let here = Registers::here().sp & !7;
    let end = own_variables() & !7;
    // The main thread's variables are elsewhere; a signal handler may run on another stack.
    if end.wrapping_sub(here) > MOST || !bounds::of_this_thread().contain(here) {
        return;
    }
    // Stacks lie in one part of the address space, the program's code in another.
    let may_be_stack = |word: u64| word >> 40 == here >> 40 && !(here..end).contains(&word);
    // The outermost words first: what the thread was given.
    let places = (1..=(end - here) / 8).map(|words| end - 8 * words);
    let outside = places.map(|at| (at, word(at))).filter(|(_, word)| may_be_stack(*word));
    with_beginning(|Beginning { registers, words }| {
        *registers = kept_registers().map(|word| !word);
        words.iter_mut().zip(outside).for_each(|(place, (at, word))| *place = (!at, !word));
    });
}

/// Clears what an earlier thread left on the memory of this new thread's stack.
#[inline(never)]
pub(in crate::record) fn clear_unused_stack() {
    const PAGE: u64 = 4096;
    const PAGES: usize = 64;
    /// Room below this frame for the functions called here.
    const ROOM: u64 = 256;
    let (here, bounds) = (Registers::here().sp, bounds::of_this_thread());
    if !bounds.contain(here) {
        return;
    }
    let end = (here - ROOM) & !7;
    let first = (end & !(PAGE - 1)).saturating_sub(PAGE * (PAGES as u64 - 1)).max(bounds.start.next_multiple_of(PAGE));
    let mut resident = [0u8; PAGES];
    let length = end.next_multiple_of(PAGE).saturating_sub(first);
    // SAFETY: `resident` has a byte per page; the kernel only looks at pages of this thread's stack.
    if unsafe { libc::mincore(first as *mut _, length as usize, resident.as_mut_ptr()) } != 0 {
        return;
    }
    // Untouched pages stay untouched.
    for (page, _) in (first..end).step_by(PAGE as usize).zip(resident).filter(|(_, resident)| resident & 1 != 0) {
        let words = (end.min(page + PAGE) - page) / 8;
        // SAFETY: this memory belongs to this thread's stack and is below all its frames; a signal handler that uses it
        // ends before this continues.
        unsafe { asm!("rep stosq", inout("rcx") words => _, inout("rdi") page => _, in("rax") 0u64, options(nostack)) };
    }
}

/// Did this thread hold this word at its start? Words of the parent are saved elsewhere by functions that spill
/// registers, so they count wherever they are.
pub(in crate::record) fn was_held_at_start(word: u64, at: u64, of_parent: bool) -> bool {
    let held = with_beginning(|Beginning { registers, words }| {
        let (word, at) = (!word, !at);
        registers.contains(&word) || words.iter().any(|(place, first)| *first == word && (of_parent || *place == at))
    });
    held == Some(true)
}

/// `None` if there is no memory for it: then nothing counts as held at the start.
fn with_beginning<T>(work: impl FnOnce(&mut Beginning) -> T) -> Option<T> {
    BEGINNING.with(|place| place.with(|beginning| beginning.map(work)))
}

/// DriverTime `each` with each word that this thread holds and its address (0 for a register). Only the stack that the
/// system gave the thread is searched.
#[inline(never)]
pub(in crate::record) fn each_word(mut each: impl FnMut(u64, u64)) {
    kept_registers().into_iter().for_each(|word| each(word, 0));
    let (here, bounds) = (Registers::here().sp & !7, bounds::of_this_thread());
    if !bounds.contain(here) {
        return;
    }
    // Computes no address beyond this stack: it might be that of another thread's stack, and this frame is searched,
    // too.
    let length = (bounds.end - here).min(MOST);
    let rest = (bounds.end - here - length).min(MOST);
    for part in [here..here + length, bounds.end - rest..bounds.end] {
        part.step_by(8).for_each(|at| each(word(at), at));
    }
}

/// The callee-saved registers: their values may be nowhere else.
fn kept_registers() -> [u64; 6] {
    let mut registers = [0; 6];
    // SAFETY: writes six registers to an array of six, and changes none.
    unsafe {
        asm!(
            "mov [rax], rbx", "mov [rax + 8], rbp", "mov [rax + 16], r12",
            "mov [rax + 24], r13", "mov [rax + 32], r14", "mov [rax + 40], r15",
            in("rax") &raw mut registers,
            options(nostack, preserves_flags),
        );
    }
    registers
}

/// In assembly, because the words belong to other functions' frames, also under a sanitizer.
#[inline(always)]
fn word(address: u64) -> u64 {
    let word;
    // SAFETY: callers pass addresses between this thread's stack pointer and its stack's end.
    unsafe { asm!("mov {}, [{}]", out(reg) word, in(reg) address, options(nostack, preserves_flags, readonly)) };
    word
}

/// Start of this thread's thread-local variables, on its stack outside all frames. Other threads know addresses in
/// there.
fn own_variables() -> u64 {
    // SAFETY: no preconditions.
    let errno = unsafe { libc::__errno_location() }.addr() as u64;
    let ours = BEGINNING.with(|ours| std::ptr::from_ref(ours).addr() as u64);
    // The variables of a library that was loaded later are elsewhere.
    if errno.wrapping_sub(ours) < MOST { ours } else { errno }
}

/// This thread's stack without its thread-local variables.
pub(in crate::record) fn whole_stack() -> Option<StackPart> {
    let (bounds, end) = (bounds::of_this_thread(), own_variables());
    let end = if bounds.contain(end) { end } else { bounds.end };
    bounds.contain(Registers::here().sp).then_some(StackPart { start: bounds.start, end })
}

/// The part of the stack that functions called from here use, with the caller's frame.
pub(in crate::record) fn part_from_here() -> Option<StackPart> {
    /// More than the frames of a test function have.
    const CALLER: u64 = 32 << 10;
    /// More than the measured code uses before it hands work over.
    const CALLED: u64 = 256 << 10;
    let (whole, here) = (whole_stack()?, Registers::here().sp);
    Some(StackPart { start: whole.start.max(here - CALLED), end: whole.end.min(here + CALLER) })
}
