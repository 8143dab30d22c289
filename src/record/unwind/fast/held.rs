//! What a thread has in hand: the words of its registers and of its stack.
#![expect(unsafe_code, reason = "reads registers and the thread's own stack")]

use std::arch::asm;
use std::cell::Cell;

use super::bounds;
use crate::record::unwind::registers::Registers;
use crate::record::unwind::stack::StackPart;

/// Of a larger stack, so much of its inner and of its outer end is looked at.
const MOST: u64 = 128 << 10;
/// Words of a thread's beginning that are known again.
const FIRST: usize = 64;

/// What a thread holds when it begins: its registers are those of whoever began it, and lie on its stack for good.
#[derive(Clone, Copy, Debug)]
struct Beginning {
    registers: [u64; 6],
    /// Words of its stack, each with its address.
    words: [(u64, u64); FIRST],
}

thread_local! {
    // Const and without a destructor.
    static BEGINNING: Cell<Beginning> =
        const { Cell::new(Beginning { registers: [0; 6], words: [(0, 0); FIRST] }) };
}

/// A thread begins: what it holds already is none of its work.
#[inline(never)]
pub(in crate::record) fn thread_begins() {
    let here = Registers::here().sp & !7;
    let end = own_variables() & !7;
    // The main thread's variables are elsewhere; a signal's handler may have a stack of its own.
    if end.wrapping_sub(here) > MOST || !bounds::of_this_thread().contain(here) {
        return;
    }
    // Stacks are in one part of the address space, the program's own code is in another one.
    let may_be_stack = |word: u64| word >> 40 == here >> 40 && !(here..end).contains(&word);
    // The outermost first: there lies what came with the thread.
    let places = (1..=(end - here) / 8).map(|words| end - 8 * words);
    let outside = places.map(|at| (at, word(at))).filter(|(_, word)| may_be_stack(*word));
    let mut words = [(0, 0); FIRST];
    words.iter_mut().zip(outside).for_each(|(place, word)| *place = word);
    BEGINNING.set(Beginning { registers: kept_registers(), words });
}

/// A thread has just begun: what another one has left on the same stack before is taken for nothing that it holds.
#[inline(never)]
pub(in crate::record) fn clear_unused_stack() {
    const PAGE: u64 = 4096;
    const PAGES: usize = 64;
    /// What a function may use below its frame.
    const ROOM: u64 = 256;
    let (here, bounds) = (Registers::here().sp, bounds::of_this_thread());
    if !bounds.contain(here) {
        return;
    }
    let end = (here - ROOM) & !7;
    let first = (end & !(PAGE - 1)).saturating_sub(PAGE * (PAGES as u64 - 1)).max(bounds.start.next_multiple_of(PAGE));
    let mut resident = [0u8; PAGES];
    let length = end.next_multiple_of(PAGE).saturating_sub(first);
    // SAFETY: there is a byte for each page; the kernel looks at pages of this thread's stack.
    if unsafe { libc::mincore(first as *mut _, length as usize, resident.as_mut_ptr()) } != 0 {
        return;
    }
    // A page that nobody has touched is not touched here either.
    for (page, _) in (first..end).step_by(PAGE as usize).zip(resident).filter(|(_, resident)| resident & 1 != 0) {
        let words = (end.min(page + PAGE) - page) / 8;
        // SAFETY: this part of the stack is this thread's and below all its frames; a signal's handler is over before
        // this goes on.
        unsafe { asm!("rep stosq", inout("rcx") words => _, inout("rdi") page => _, in("rax") 0u64, options(nostack)) };
    }
}

/// Did this thread hold the word there when it began? What is of the thread that began it moves on from there, with the
/// registers that functions save: it is known wherever it is.
pub(in crate::record) fn was_held_at_first(word: u64, at: u64, of_parent: bool) -> bool {
    BEGINNING.with(|beginning| {
        let Beginning { registers, words } = beginning.get();
        registers.contains(&word) || words.iter().any(|(place, first)| *first == word && (of_parent || *place == at))
    })
}

/// Each word that this thread holds, with its address, which is 0 for a register; a stack other than the one that the
/// system gave it is not looked at.
#[inline(never)]
pub(in crate::record) fn each_word(mut each: impl FnMut(u64, u64)) {
    kept_registers().into_iter().for_each(|word| each(word, 0));
    let (here, bounds) = (Registers::here().sp & !7, bounds::of_this_thread());
    if !bounds.contain(here) {
        return;
    }
    // No address beyond this stack is made here: another thread's may lie there, and this frame is looked at, too.
    let length = (bounds.end - here).min(MOST);
    let rest = (bounds.end - here - length).min(MOST);
    for part in [here..here + length, bounds.end - rest..bounds.end] {
        part.step_by(8).for_each(|at| each(word(at), at));
    }
}

/// Those that a function gives back as they were: what is in them may be nowhere else.
fn kept_registers() -> [u64; 6] {
    let mut registers = [0; 6];
    // SAFETY: there is room for six registers, and none of them is changed.
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

/// By hand: these words are other functions', also where a sanitizer has put something between them.
#[inline(always)]
fn word(address: u64) -> u64 {
    let word;
    // SAFETY: the address is between this thread's stack pointer and the end of its stack.
    unsafe { asm!("mov {}, [{}]", out(reg) word, in(reg) address, options(nostack, preserves_flags, readonly)) };
    word
}

/// Where this thread's own variables begin, whose addresses others know: on its stack, outside of all frames.
fn own_variables() -> u64 {
    // SAFETY: a thread may ask for the place of its own variable.
    let errno = unsafe { libc::__errno_location() }.addr() as u64;
    let ours = BEGINNING.with(|ours| std::ptr::from_ref(ours).addr() as u64);
    // Those of a library that was loaded later lie elsewhere.
    if errno.wrapping_sub(ours) < MOST { ours } else { errno }
}

/// This thread's stack, up to its own variables.
pub(in crate::record) fn whole_stack() -> Option<StackPart> {
    let (bounds, end) = (bounds::of_this_thread(), own_variables());
    let end = if bounds.contain(end) { end } else { bounds.end };
    bounds.contain(Registers::here().sp).then_some(StackPart { start: bounds.start, end })
}

/// The part of it that code uses which is called from here: what is below this frame, and the frame of the caller and
/// some more, which may be one with it.
pub(in crate::record) fn part_from_here() -> Option<StackPart> {
    /// More than a test's function has, with what the compiler put into it.
    const CALLER: u64 = 32 << 10;
    /// More than what is called from there takes, until work is handed over.
    const CALLED: u64 = 256 << 10;
    let (whole, here) = (whole_stack()?, Registers::here().sp);
    Some(StackPart { start: whole.start.max(here - CALLED), end: whole.end.min(here + CALLER) })
}
