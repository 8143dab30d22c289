//! The table of uses, tested without a driver.

use std::num::NonZeroU64;
use std::time::Instant;

use memtrace_core::snapshot::{Block, BlockIdle, BlockUses, Device, MemoryKind};
use proptest::prelude::*;

use super::copy::UseCursor;
use super::index::AddressIndex;
use super::{OperationKind, Touched, UseAccess, UseTable};
use crate::record::event_site::EventSite;

const GPU: Device = Device::Cuda(0);

fn block(address: u64, size: u64, seq: u64) -> Block {
    Block { address, size, seq: NonZeroU64::new(seq), memory: MemoryKind::Pool, ..Block::default() }
}

fn table() -> UseTable {
    UseTable::new(Instant::now(), 1)
}

fn operate(table: &mut UseTable, work: OperationKind, words: &[(u64, UseAccess)]) {
    let kernel = table.kernels.id(format!("{work:?}").as_bytes());
    table.begin();
    let mut touched = Touched::new();
    words.iter().for_each(|(word, access)| table.collect(*word, *access, &mut touched));
    table.apply(kernel, &touched, EventSite::default());
    table.count(work, kernel);
}

fn launch(table: &mut UseTable, words: &[u64]) {
    let words: Vec<_> = words.iter().map(|word| (*word, UseAccess::Unknown)).collect();
    operate(table, OperationKind::Kernel, &words);
}

fn uses(table: &UseTable, seq: u64) -> BlockUses {
    let all = table.copy(GPU, UseCursor::default()).blocks;
    all.into_iter().rfind(|uses| uses.seq.get() == seq).unwrap()
}

/// (first use, last use, number of uses), with operations as numbers.
fn span(table: &UseTable, seq: u64) -> (u64, u64, u64) {
    let uses = uses(table, seq);
    let number = |used: Option<memtrace_core::snapshot::BlockUse>| used.map_or(0, |used| used.operation);
    (number(uses.first), number(uses.last), uses.count)
}

/// Numbers of a block's operands.
fn operands(table: &UseTable, seq: u64) -> Option<Vec<u64>> {
    let uses = uses(table, seq);
    Some(uses.operands.of(uses.seq)?.map(NonZeroU64::get).collect())
}

#[test]
fn operands_are_what_is_used_beside_a_block_from_its_first_use_to_the_next_alloc() {
    let mut table = table();
    let mut next = 0;
    let mut made_of = |table: &mut UseTable, launches: &[&[u64]]| {
        next += 1;
        table.alloc(GPU, &block(next << 12, 0x100, next));
        launches.iter().for_each(|words| launch(table, &words.iter().map(|seq| seq << 12).collect::<Vec<_>>()));
        operands(table, next)
    };
    assert_eq!(made_of(&mut table, &[&[1]]), Some(vec![]), "a constant");
    assert_eq!(made_of(&mut table, &[&[2, 1, 2]]), Some(vec![1]));
    assert_eq!(made_of(&mut table, &[&[3], &[2, 1, 3], &[1, 3]]), Some(vec![2, 1]), "in the order of the arguments");
    assert_eq!(made_of(&mut table, &[&[3, 4], &[4, 1]]), Some(vec![3, 1]), "several copies");
    assert_eq!(operands(&table, 3), Some(vec![2, 1]), "it was made before");
    assert_eq!(made_of(&mut table, &[]), Some(vec![]));
    assert_eq!(made_of(&mut table, &[&[1, 6, 5]]), Some(vec![1]));
    assert_eq!(operands(&table, 5), Some(vec![1]), "made together");
    assert_eq!(made_of(&mut table, &[&[6, 5, 4, 3, 2, 1, 7]]), Some(vec![6, 5, 4, 3, 2, 1]));
    assert_eq!(made_of(&mut table, &[&[7, 6, 5, 4, 3, 2, 1, 8], &[1, 8]]), None, "too many");
    // Another block at the same address.
    table.free(GPU, 8 << 12, 8);
    table.alloc(GPU, &block(8 << 12, 0x100, 9));
    launch(&mut table, &[8 << 12, 0x1000]);
    assert_eq!(operands(&table, 9), Some(vec![1]));
}

#[test]
fn pointers_into_a_block_are_uses_of_it_until_it_is_freed() {
    let mut table = table();
    table.alloc(GPU, &block(0x1000, 0x100, 1));
    table.alloc(GPU, &block(0x1100, 0x100, 2));
    launch(&mut table, &[0x10ff, 5, 0x1200, 0x0fff]);
    launch(&mut table, &[0x1100, 0x11ff, 0x1100]);
    launch(&mut table, &[0x1000, 0x1100]);
    table.free(GPU, 0x1000, 9);
    assert!(table.has(0x1000), "another block has this number");
    table.free(GPU, 0x1000, 1);
    launch(&mut table, &[0x1000]);
    assert_eq!((span(&table, 1), span(&table, 2)), ((1, 3, 2), (2, 3, 2)));
    assert_eq!((uses(&table, 1).freed_at, uses(&table, 2).freed_at), (Some(3), None));
    table.alloc(GPU, &block(0x1000, 0x100, 3));
    assert!(uses(&table, 3).is_unused() && uses(&table, 3).allocated_at == 4);
}

#[test]
fn after_an_opaque_operation_nothing_is_certain_until_the_next_use() {
    let mut table = table();
    table.alloc(GPU, &block(0x1000, 0x100, 1));
    table.alloc(GPU, &block(0x2000, 0x100, 2));
    launch(&mut table, &[0x1000]);
    operate(&mut table, OperationKind::Opaque, &[]);
    let one = uses(&table, 1);
    assert!(one.known_last().is_none() && one.known_first().is_some());
    assert!(!uses(&table, 2).is_unused());
    launch(&mut table, &[0x1000, 0x2000]);
    assert_eq!(uses(&table, 1).known_last().unwrap().operation, 3);
    assert!(uses(&table, 2).known_first().is_none() && uses(&table, 2).known_last().is_some());
    assert_eq!(uses(&table, 1).idle, None, "it may have been used in between");
    table.alloc(GPU, &block(0x3000, 0x100, 3));
    assert!(uses(&table, 3).is_unused(), "it came later");
    table.escape(0x30ff);
    assert!(!uses(&table, 3).is_unused());
}

#[test]
fn a_use_of_a_table_is_one_of_what_it_points_to() {
    let mut table = table();
    (1..=4).for_each(|n| table.alloc(GPU, &block(n << 12, 0x100, n)));
    table.hold(0x1000, 0x2010);
    table.hold(0x2000, 0x3000);
    launch(&mut table, &[0x1008]);
    assert_eq!([1, 2, 3, 4].map(|seq| span(&table, seq).2), [1, 1, 1, 0]);
    table.copy_held(0x1000, 0x4000);
    launch(&mut table, &[0x4000]);
    assert_eq!([1, 2, 3, 4].map(|seq| span(&table, seq).2), [1, 2, 2, 1]);
    table.overwritten(0x4000, 0x100);
    launch(&mut table, &[0x4000]);
    assert_eq!([1, 2, 3, 4].map(|seq| span(&table, seq).2), [1, 2, 2, 2]);
    table.hold(0x9000, 0x3000);
    assert!(uses(&table, 3).escaped, "the holder is unknown");
}

#[test]
fn a_write_that_nothing_reads_before_the_next_is_dead() {
    let fill = (OperationKind::Fill, UseAccess::Write(0x1000, 0x100));
    let case = |steps: &[(OperationKind, UseAccess)]| {
        let mut table = table();
        table.alloc(GPU, &block(0x1000, 0x100, 1));
        steps.iter().for_each(|(work, access)| operate(&mut table, *work, &[(0x1000, *access)]));
        uses(&table, 1).dead_write.map(|dead| dead.bytes)
    };
    assert_eq!(case(&[fill, (OperationKind::Copy, UseAccess::Write(0x1000, 0x100))]), Some(0x100));
    assert_eq!(case(&[(OperationKind::Fill, UseAccess::Write(0x1000, 8)), fill]), Some(8));
    assert_eq!(case(&[fill, (OperationKind::Copy, UseAccess::Write(0x1000, 8))]), None, "the rest is left");
    assert_eq!(case(&[fill, (OperationKind::Kernel, UseAccess::Unknown), fill]), None);
    assert_eq!(case(&[fill, (OperationKind::Copy, UseAccess::Read), fill]), None);
    let of_graph = (OperationKind::Opaque, UseAccess::Write(0x1000, 0x100));
    assert_eq!(case(&[of_graph, fill]), None, "another part of the same graph may have read it");
}

#[test]
fn an_operation_on_many_blocks_counts_once_for_each() {
    let mut table = table();
    (1..=50).for_each(|n| table.alloc(GPU, &block(n << 12, 0x100, n)));
    let words: Vec<u64> = (1..=50).chain(1..=50).map(|n| n << 12).collect();
    launch(&mut table, &words);
    assert!((1..=50).all(|seq| span(&table, seq) == (1, 1, 1)));
}

proptest! {
    /// Every long time between two uses of a large block is kept, unless something unknown may have used it meanwhile.
    #[test]
    fn the_long_times_between_uses_are_those_of_the_list_of_operations(
        steps in prop::collection::vec((0..40u32, 0..12u8), 1..40), split in 0..40usize
    ) {
        let mut table = table();
        table.alloc(GPU, &block(0x1000, BlockIdle::LEAST_SIZE - 1, 1));
        table.alloc(GPU, &block(1 << 30, BlockIdle::LEAST_SIZE, 2));
        let (mut operation, mut last, mut expected) = (0u64, None, Vec::new());
        let mut found = Vec::new();
        let mut cursor = UseCursor::default();
        for (number, (others, what)) in steps.into_iter().enumerate() {
            (0..others).for_each(|_| launch(&mut table, &[0x1000]));
            operation += u64::from(others);
            if what == 0 {
                operate(&mut table, OperationKind::Opaque, &[]);
                (operation, last) = (operation + 1, None);
            }
            launch(&mut table, &[0x1000, 1 << 30]);
            operation += 1;
            expected.extend(last.map(|last| operation - last - 1).filter(|between| *between >= 16));
            last = Some(operation);
            if number == split {
                found.extend(table.copy(GPU, cursor).idle);
                cursor = table.end();
            }
        }
        found.extend(table.copy(GPU, cursor).idle);
        prop_assert!(found.iter().all(|idle| idle.seq.get() == 2));
        prop_assert_eq!(found.iter().map(|idle| idle.time.operations).collect::<Vec<_>>(), expected.clone());
        let longest = uses(&table, 2).idle.map_or(0, |idle| idle.operations);
        prop_assert!(longest < 16 && expected.is_empty() || Some(&longest) == expected.iter().max());
    }
}

#[test]
fn a_reader_gets_what_changed_since() {
    let mut table = table();
    (1..=3).for_each(|n| table.alloc(GPU, &block(n << 12, 0x100, n)));
    launch(&mut table, &[0x1000]);
    let cursor = table.end();
    launch(&mut table, &[0x2000]);
    table.free(GPU, 0x3000, 3);
    let mut changed: Vec<u64> = table.copy(GPU, cursor).blocks.iter().map(|uses| uses.seq.get()).collect();
    changed.sort_unstable();
    assert_eq!(changed, [2, 3]);
    assert_eq!(table.copy(Device::Cuda(1), UseCursor::default()).blocks.len(), 0);
}

proptest! {
    #[test]
    fn the_index_finds_what_a_list_would(
        steps in prop::collection::vec((0..200u64, 0..3u32, 0..4000u64), 0..400)
    ) {
        let (mut index, mut list) = (AddressIndex::new(), Vec::<(u64, u64, u32)>::new());
        for (number, (place, step, word)) in (0..).zip(steps) {
            let (start, size) = (place * 20, 1 + place % 20);
            let known = list.iter().position(|(known, ..)| *known == start);
            match (step, known) {
                (0, Some(at)) => prop_assert_eq!(index.remove(start), Some(list.remove(at).2)),
                (0, None) => prop_assert_eq!(index.remove(start), None),
                (_, Some(_)) => {}
                (_, None) => {
                    prop_assert!(index.insert(start, size, number));
                    list.push((start, start + size, number));
                }
            }
            let expected = list.iter().find(|(start, end, _)| (*start..*end).contains(&word)).map(|(.., slot)| *slot);
            prop_assert_eq!(index.find(word), expected);
        }
    }
}
