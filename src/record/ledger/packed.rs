//! A bit-packed record of an alloc or a free. It has 32 bytes in the table of live blocks, and 32 or 40 in the log.
//!
//! ```text
//!        63                                         0
//! word 0 │ time, 48                    │ thread, 16 │
//! word 1 │ address, 53 │ seq, upper 6 │ memory, 4 │ kind, 1
//! word 2 │ size, 44                   │ context, 20 │
//! word 3 │ stack of the alloc, 32 │ seq, lower 32     │
//! word 4 │ stack of the free, 32  │ stream, 32        │   only where there may be any
//! ```
//! A record that does not fit (the fourth day of a recording, the 65,536th thread) is kept unpacked elsewhere, so
//! nothing depends on the widths. A live block is the packed record of its alloc. The record of its free differs in two
//! words.

use std::num::NonZeroU64;

use memtrace_core::snapshot::{ContextId, MemoryKind, Record, RecordKind, StackId, ThreadId};

use super::super::event_site::EventSite;

pub(crate) type Packed<const WORDS: usize> = [u64; WORDS];

const TIME: u32 = 48;
const THREAD: u32 = 16;
const ADDRESS: u32 = 53;
const SEQ_UPPER: u32 = 6;
const MEMORY: u32 = 4;
const SIZE: u32 = 44;
const CONTEXT: u32 = 20;

/// Marks a [`reference`], in place of a kind of memory.
const ELSEWHERE: u64 = (1 << MEMORY) - 1;

/// Packs a record; `None` if a field does not fit.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn pack<const WORDS: usize>(record: &Record) -> Option<Packed<WORDS>> {
    let free = record.kind == RecordKind::Free;
    let beside = if free { u64::from(record.stack.0) << 32 } else { 0 } | u64::from(record.stream);
    let too_much = record.time_ns >> TIME
        | u64::from(record.thread.0) >> THREAD
        | record.address >> ADDRESS
        | record.raw_seq() >> (32 + SEQ_UPPER)
        | record.size >> SIZE
        | u64::from(record.context.0) >> CONTEXT;
    if too_much != 0 || (WORDS < 5 && beside != 0) {
        return None;
    }
    Some(widened([
        record.time_ns << THREAD | u64::from(record.thread.0),
        record.address << (64 - ADDRESS)
            | record.raw_seq() >> 32 << (MEMORY + 1)
            | (record.memory as u64) << 1
            | u64::from(free),
        record.size << CONTEXT | u64::from(record.context.0),
        u64::from(record.alloc_stack.0) << 32 | record.raw_seq() & u64::from(u32::MAX),
        beside,
    ]))
}

/// Copies the record of an alloc, with or without its stack.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn alloc_again<const WORDS: usize>(alloc: &Packed<4>, with_stack: bool) -> Packed<WORDS> {
    let [first, second, third, fourth] = *alloc;
    widened([first, second, third, kept_of(fourth, with_stack), 0])
}

/// The record of a block's free, made from the record of its alloc. `None` if a field does not fit.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) fn free_of<const WORDS: usize>(
    alloc: &Packed<4>,
    time_ns: u64,
    site: &EventSite,
    with_stack: bool,
) -> Option<Packed<WORDS>> {
    let [_, second, third, fourth] = *alloc;
    let stack = if with_stack { u64::from(site.stack.0) << 32 } else { 0 };
    let thread = u64::from(site.thread.0);
    if time_ns >> TIME | thread >> THREAD != 0 || (WORDS < 5 && stack != 0) {
        return None;
    }
    Some(widened([time_ns << THREAD | thread, second | 1, third, kept_of(fourth, with_stack), stack]))
}

#[cfg_attr(not(debug_assertions), inline(always))]
fn kept_of(fourth: u64, with_stack: bool) -> u64 {
    if with_stack { fourth } else { fourth & u64::from(u32::MAX) }
}

/// The first `WORDS` of five words.
#[cfg_attr(not(debug_assertions), inline(always))]
fn widened<const WORDS: usize>(all: [u64; 5]) -> Packed<WORDS> {
    let mut words = [0; WORDS];
    words.iter_mut().zip(all).for_each(|(word, value)| *word = value);
    words
}

/// A placeholder for the record that is kept elsewhere under this number.
pub(crate) fn reference<const WORDS: usize>(number: u64) -> Packed<WORDS> {
    widened([number, ELSEWHERE << 1, 0, 0, 0])
}

/// The record, or the number of a [`reference`].
#[inline]
pub(crate) fn unpack<const WORDS: usize>(words: &Packed<WORDS>) -> Result<Record, u64> {
    match (words.first(), words.get(1)) {
        (Some(number), Some(second)) if low(second >> 1, MEMORY) == ELSEWHERE => Err(*number),
        _ => Ok(record_of(words)),
    }
}

fn low(word: u64, bits: u32) -> u64 {
    word & ((1 << bits) - 1)
}

/// Decodes words that are not a reference.
#[inline]
pub(crate) fn record_of<const WORDS: usize>(words: &Packed<WORDS>) -> Record {
    let word = |n: usize| words.get(n).copied().unwrap_or(0);
    let (first, second, third, fourth, beside) = (word(0), word(1), word(2), word(3), word(4));
    let memory = low(second >> 1, MEMORY);
    let alloc_stack = StackId((fourth >> 32) as u32);
    let kind = if second & 1 == 0 { RecordKind::Alloc } else { RecordKind::Free };
    Record {
        time_ns: first >> THREAD,
        address: second >> (64 - ADDRESS),
        size: third >> CONTEXT,
        stack: if kind == RecordKind::Alloc { alloc_stack } else { StackId((beside >> 32) as u32) },
        alloc_stack,
        context: ContextId(low(third, CONTEXT) as u32),
        thread: ThreadId(low(first, THREAD) as u32),
        alloc_seq: NonZeroU64::new(low(second >> (MEMORY + 1), SEQ_UPPER) << 32 | low(fourth, 32)),
        stream: low(beside, 32) as u32,
        kind,
        memory: MemoryKind::ALL.get(memory as usize).copied().unwrap_or_default(),
    }
}

#[inline]
pub(crate) fn address_of(words: &Packed<4>) -> u64 {
    words[1] >> (64 - ADDRESS)
}

#[inline]
pub(crate) fn size_of_block(words: &Packed<4>) -> u64 {
    words[2] >> CONTEXT
}

#[inline]
pub(crate) fn context_of(words: &Packed<4>) -> ContextId {
    ContextId((words[2] & ((1 << CONTEXT) - 1)) as u32)
}

#[inline]
pub(crate) fn seq_of(words: &Packed<4>) -> u64 {
    (words[1] >> (MEMORY + 1) & ((1 << SEQ_UPPER) - 1)) << 32 | words[3] & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Numbers of every bit length.
    fn number(bits: u32) -> impl Strategy<Value = u64> {
        (0..=bits, any::<u64>()).prop_map(|(bits, n)| n.checked_shr(64 - bits).unwrap_or(0))
    }

    fn records() -> impl Strategy<Value = Record> {
        let numbers = (number(64), number(64), number(64), number(64), 0..10usize, any::<bool>());
        let small = (number(32), number(32), number(32), number(32), number(32));
        (numbers, small).prop_map(
            |((time_ns, address, size, alloc_seq, memory, free), (a, b, context, thread, stream))| {
                let (stack, alloc_stack) = (StackId(a as u32), StackId(b as u32));
                Record {
                    time_ns,
                    address,
                    size,
                    stack: if free { stack } else { alloc_stack },
                    alloc_stack,
                    context: ContextId(context as u32),
                    thread: ThreadId(thread as u32),
                    alloc_seq: NonZeroU64::new(alloc_seq),
                    stream: stream as u32,
                    kind: if free { RecordKind::Free } else { RecordKind::Alloc },
                    memory: MemoryKind::ALL[memory],
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_out_as_it_was(record in records()) {
            let fits_five = record.time_ns < 1 << 48
                && record.address < 1 << 53
                && record.size < 1 << 44
                && record.raw_seq() < 1 << 38
                && record.context.0 < 1 << 20
                && record.thread.0 < 1 << 16;
            let fits_four = fits_five && record.stream == 0 && (record.kind == RecordKind::Alloc || record.stack.0 == 0);
            prop_assert_eq!(pack::<4>(&record).is_some(), fits_four);
            prop_assert_eq!(pack::<5>(&record).is_some(), fits_five);
            prop_assert!(pack::<4>(&record).is_none_or(|words| unpack(&words) == Ok(record)));
            prop_assert!(pack::<5>(&record).is_none_or(|words| unpack(&words) == Ok(record)));
        }

        #[test]
        fn a_free_is_made_from_its_alloc(alloc in records(), free in records(), with_stack in any::<bool>()) {
            let alloc = Record {
                kind: RecordKind::Alloc,
                time_ns: alloc.time_ns >> 16,
                address: alloc.address >> 11,
                size: alloc.size >> 20,
                alloc_seq: NonZeroU64::new(alloc.raw_seq() >> 26),
                context: ContextId(alloc.context.0 >> 12),
                thread: ThreadId(alloc.thread.0 >> 16),
                stack: alloc.alloc_stack,
                stream: 0,
                ..alloc
            };
            let words = pack::<4>(&alloc).unwrap();
            let of = |stack: StackId| if with_stack { stack } else { StackId::NONE };
            let kept = Record { stack: of(alloc.stack), alloc_stack: of(alloc.stack), ..alloc };
            prop_assert_eq!(unpack(&alloc_again::<4>(&words, with_stack)), Ok(kept));
            prop_assert_eq!(unpack(&alloc_again::<5>(&words, with_stack)), Ok(kept));
            let Record { time_ns, thread, stack, .. } = free;
            let site = EventSite { stack, thread, ..EventSite::default() };
            let freed = Record { kind: RecordKind::Free, time_ns, thread, stack: of(stack), ..kept };
            let (four, five) = (free_of::<4>(&words, time_ns, &site, with_stack), free_of(&words, time_ns, &site, with_stack));
            prop_assert_eq!(four, pack::<4>(&freed));
            prop_assert_eq!(five, pack::<5>(&freed));
            prop_assert_eq!(
                (address_of(&words), size_of_block(&words), context_of(&words), seq_of(&words)),
                (alloc.address, alloc.size, alloc.context, alloc.raw_seq())
            );
        }

        #[test]
        fn a_reference_is_no_record(number in any::<u64>()) {
            prop_assert_eq!(unpack(&reference::<4>(number)), Err(number));
            prop_assert_eq!(unpack(&reference::<5>(number)), Err(number));
        }
    }

    #[test]
    fn no_kind_of_memory_has_the_number_of_what_is_elsewhere() {
        assert!((MemoryKind::ALL.len() as u64) <= ELSEWHERE);
    }
}
