//! Balance of the process: its resident memory at the reading with the most resident memory, split into rows that add
//! up to it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::balance::{Balance, BalanceItem, BalanceRow, device_balance, row};
use super::fragmentation::by_address;
use crate::analysis::{LiveSet, Moment};
use crate::recording::DeviceView;
use crate::snapshot::{Block, Device, Mapping, MappingKind, Mappings, MemoryKind, Peak, StackId};

/// The largest size of an additional arena's memory in glibc, which aligns this memory to the same size.
const ARENA: u64 = 64 << 20;

/// A mapped file, or memory that a line of the program mapped itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedRow<'a> {
    /// Whether it is a file or memory without one.
    pub kind: MappingKind,
    /// The file's name.
    pub path: &'a str,
    /// The stack that mapped it, if that was recorded.
    pub stack: StackId,
    /// Bytes of the address space.
    pub size: u64,
    /// The bytes of it that are in physical memory.
    pub resident: u64,
    /// Number of mappings.
    pub count: u64,
}

/// The process's mappings, and the heap's live blocks when the mappings were read. `None` if `heap` is not the CPU or
/// is sampled, if no mappings were read, or if the log does not reach back to the reading.
pub fn at_reading<'r>(heap: &'r DeviceView<'r>) -> Option<(&'r Mappings, LiveSet<'r>)> {
    let mappings = heap.data().data().process.mappings.as_ref()?;
    let is_known = heap.device == Device::Cpu && !heap.sampling.is_on();
    is_known.then(|| heap.at(&Moment::Time(mappings.time_ns)).ok()).flatten().map(|then| (mappings, then))
}

/// The balance of a CUDA device, or of the process if the device is the CPU. `None` if the balance is not known.
pub fn balance(device: &DeviceView<'_>) -> Option<Balance> {
    device_balance(device).or_else(|| at_reading(device).map(|(mappings, then)| host_balance(mappings, &then)))
}

/// The balance of the process. `then` has the heap's live blocks when the mappings were read.
pub fn host_balance(mappings: &Mappings, then: &LiveSet<'_>) -> Balance {
    let used = mappings.resident();
    let mut rows = heap_rows(mappings, then);
    let others = [
        (MappingKind::File, BalanceItem::Files),
        (MappingKind::Code, BalanceItem::Code),
        (MappingKind::Stack, BalanceItem::Stacks),
    ];
    for (kind, item) in others {
        rows.push(row(item, sum(mappings.of(kind).map(|mapping| mapping.resident))));
    }
    let own = sum(mappings.of(MappingKind::Own).map(|mapping| mapping.resident)) + i128::from(mappings.own);
    rows.push(row(BalanceItem::Own, own));
    let anonymous = mapped(mappings, &then.blocks).filter(|row| row.kind == MappingKind::Anonymous);
    rows.push(row(BalanceItem::Anonymous, sum(anonymous.map(|row| row.resident))));
    rows.retain(|row| row.bytes != 0);
    let explained: i128 = rows.iter().map(|row| i128::from(row.bytes)).sum();
    rows.push(row(BalanceItem::Unexplained, i128::from(used) - explained));
    Balance { total: None, used, available: None, rows, unexplained: Vec::new() }
}

fn sum(bytes: impl Iterator<Item = u64>) -> i128 {
    bytes.map(i128::from).sum()
}

/// Rows of allocators: live blocks, and other memory that allocators hold.
fn heap_rows(mappings: &Mappings, then: &Peak) -> Vec<BalanceRow> {
    let (mut resident_beyond, mut untouched) = (0, 0);
    for (mapping, live) in regions(mappings, &then.blocks).filter(|(mapping, live)| is_allocators(mapping, *live)) {
        resident_beyond += i128::from(mapping.resident.saturating_sub(live));
        untouched += i128::from(live.saturating_sub(mapping.resident));
    }
    let others = [then.not_recorded, mappings.below_threshold, mappings.own];
    vec![
        row(BalanceItem::Live(MemoryKind::Heap), sum(then.blocks.iter().map(|block| block.size))),
        row(BalanceItem::Smaller, mappings.below_threshold.into()),
        row(BalanceItem::Before, then.not_recorded.into()),
        row(BalanceItem::Untouched, -untouched),
        row(BalanceItem::Kept, (resident_beyond - sum(others.into_iter())).max(0)),
    ]
}

/// Mappings without a file, each with the bytes of the live blocks in it.
pub(super) fn regions<'a>(mappings: &'a Mappings, blocks: &[Block]) -> impl Iterator<Item = (&'a Mapping, u64)> {
    let blocks = by_address(blocks);
    let mut before = vec![0u64];
    before.extend(blocks.iter().scan(0u64, |sum, block| {
        *sum = sum.saturating_add(block.size);
        Some(*sum)
    }));
    let at = move |address: u64| before[blocks.partition_point(|block| block.address < address)];
    let kinds = [MappingKind::Region, MappingKind::Anonymous];
    let all = mappings.rows.iter().filter(move |mapping| kinds.contains(&mapping.kind));
    all.map(move |mapping| (mapping, at(mapping.start.saturating_add(mapping.size)) - at(mapping.start)))
}

fn is_allocators(mapping: &Mapping, live: u64) -> bool {
    let is_arena = mapping.kind == MappingKind::Region && mapping.start > 0 && mapping.start.is_multiple_of(ARENA);
    live > 0 || is_arena || mapping.path == "[heap]"
}

/// Mapped files, and memory without a file that the program mapped itself and in which no block lies. Rows with the
/// most physical memory come first.
pub fn mapped<'a>(mappings: &'a Mappings, blocks: &[Block]) -> impl Iterator<Item = MappedRow<'a>> {
    let is_programs =
        |(mapping, live): &(&Mapping, u64)| mapping.kind == MappingKind::Anonymous && !is_allocators(mapping, *live);
    let anonymous: Vec<&Mapping> = regions(mappings, blocks).filter(is_programs).map(|(mapping, _)| mapping).collect();
    let mut rows: BTreeMap<(MappingKind, &str, StackId), MappedRow<'a>> = BTreeMap::new();
    for mapping in mappings.of(MappingKind::File).chain(anonymous) {
        let (kind, path, stack) = (mapping.kind, mapping.path.as_str(), mapping.stack);
        let new = MappedRow { kind, path, stack, size: 0, resident: 0, count: 0 };
        let row = rows.entry((kind, path, stack)).or_insert(new);
        row.size = row.size.saturating_add(mapping.size);
        row.resident = row.resident.saturating_add(mapping.resident);
        row.count = row.count.saturating_add(mapping.count);
    }
    let mut rows: Vec<MappedRow<'a>> = rows.into_values().filter(|row| row.resident > 0).collect();
    rows.sort_by_key(|row| Reverse(row.resident));
    rows.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::balance;
    use crate::snapshot::Process;
    use crate::snapshot::testing::Story;

    const MIB: u64 = 1 << 20;

    fn mapping(kind: MappingKind, start: u64, size: u64, resident: u64) -> Mapping {
        Mapping { kind, start, size, resident, count: 1, ..Mapping::default() }
    }

    fn item(balance: &Balance, item: &BalanceItem) -> i64 {
        balance.rows.iter().find(|row| row.item == *item).map_or(0, |row| row.bytes)
    }

    /// Rows of a reading, with a block of 10 MiB at 0x10_0000_0000 and one of 1 MiB in an arena.
    fn balance_with(rows: Vec<Mapping>, below_threshold: u64, own: u64) -> Balance {
        let mut story = Story::cpu();
        story.at(10).alloc("large", 10 * MIB).address(0x10_0000_0000).alloc("in an arena", MIB).address(ARENA + 4096);
        story.at(30).free("large");
        let mut data = story.build();
        data.process = Process { mappings: Some(Mappings { time_ns: 20, below_threshold, own, rows }), ..data.process };
        balance(&DeviceView::of(&data, &data.devices[0])).unwrap()
    }

    #[test]
    fn rows_add_up_and_the_rest_is_what_nobody_claims() {
        let rows = vec![
            mapping(MappingKind::Region, 0x10_0000_0000 - 4096, 10 * MIB + 8192, 7 * MIB),
            mapping(MappingKind::Region, ARENA, 8 * MIB, 4 * MIB),
            mapping(MappingKind::Region, 0x20_0000_1000, 8 * MIB, 3 * MIB),
            mapping(MappingKind::File, 0, 20 * MIB, 5 * MIB),
            mapping(MappingKind::Code, 0, 20 * MIB, 6 * MIB),
            mapping(MappingKind::Stack, 0, 16 * MIB, 100),
            mapping(MappingKind::Own, 0, 2 * MIB, 2 * MIB),
            mapping(MappingKind::Anonymous, 0x30_0000_0000, 90 * MIB, 9 * MIB),
        ];
        let used: u64 = rows.iter().map(|row| row.resident).sum();
        let found = balance_with(rows, MIB / 2, 300);
        assert_eq!((found.used, found.total), (used, None));
        assert_eq!(found.rows.iter().map(|row| row.bytes).sum::<i64>(), used as i64);
        let expected = [
            (BalanceItem::Live(MemoryKind::Heap), 11 * MIB as i64),
            (BalanceItem::Smaller, MIB as i64 / 2),
            (BalanceItem::Untouched, -3 * MIB as i64),
            (BalanceItem::Kept, (3 * MIB - MIB / 2 - 300) as i64),
            (BalanceItem::Files, 5 * MIB as i64),
            (BalanceItem::Code, 6 * MIB as i64),
            (BalanceItem::Stacks, 100),
            (BalanceItem::Own, (2 * MIB + 300) as i64),
            (BalanceItem::Anonymous, 9 * MIB as i64),
            (BalanceItem::Unexplained, 3 * MIB as i64),
        ];
        expected.iter().for_each(|(which, bytes)| assert_eq!(item(&found, which), *bytes, "{which:?}"));
    }

    #[test]
    fn what_the_program_mapped_for_an_allocator_of_its_own_counts_once() {
        let found = balance_with(vec![mapping(MappingKind::Anonymous, 0x10_0000_0000, 64 * MIB, 12 * MIB)], 0, 0);
        assert_eq!(item(&found, &BalanceItem::Anonymous), 0);
        // The arena's mapping was not read, so no row of the reading contains its block.
        assert_eq!(item(&found, &BalanceItem::Unexplained), -(MIB as i64));
        assert_eq!(item(&found, &BalanceItem::Kept), 2 * MIB as i64);
    }

    #[test]
    fn mappings_of_a_file_and_line_are_one_row() {
        let file = |path: &str, stack, resident| Mapping {
            path: path.into(),
            stack: StackId(stack),
            ..mapping(MappingKind::File, 0, 10, resident)
        };
        let rows = vec![file("/a", 1, 3), file("/a", 1, 4), file("/a", 2, 6), file("/b", 1, 0)];
        let mappings = Mappings { rows, ..Mappings::default() };
        let found: Vec<_> =
            mapped(&mappings, &[]).map(|row| (row.path, row.stack.0, row.resident, row.count)).collect();
        assert_eq!(found, [("/a", 1, 7, 2), ("/a", 2, 6, 1)]);
    }
}
