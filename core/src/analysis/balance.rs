//! Balance of a device: the used memory that the driver reports, split into rows that add up to it. For the CPU, the
//! total is the resident memory of the process.

use std::collections::BTreeMap;

use super::fit::{NeedRow, of_recorded};
use super::fragmentation::{by_address, with_blocks};
use super::pool::pool_balance;
use crate::attribute::library;
use crate::recording::DeviceView;
use crate::snapshot::{DeviceSnapshot, MemoryKind, ResidentMemory, UnifiedMemory};

/// What a row of a balance counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BalanceItem {
    /// The program's live recorded blocks.
    Live(MemoryKind),
    /// Live recorded blocks that a native library allocated itself.
    Library(String),
    /// Live memory from before the recording.
    Before,
    /// Rounding of blocks by pools.
    Rounding,
    /// Memory that pools report as in use, beyond the recorded blocks, the memory from before the recording, and
    /// rounding; negative if more was recorded than the pools report.
    NotSeen,
    /// Memory that pools reserved and do not use.
    PoolSlack,
    /// Memory that is reserved for graphs and unused.
    GraphSlack,
    /// Unused parts of segments of `cuMemAlloc`.
    ClassicSlack,
    /// Page cache that Linux gives back to programs that need memory. Integrated GPUs only.
    PageCache,
    /// This process's own resident memory. Integrated GPUs only.
    Process,
    /// Live heap blocks that are smaller than the threshold.
    Smaller,
    /// Parts of live heap blocks that are not in physical memory; negative.
    Untouched,
    /// What allocators hold besides live blocks: freed memory, and the data that they store around each block.
    Kept,
    /// Mapped data files.
    Files,
    /// The program and its libraries.
    Code,
    /// Thread stacks.
    Stacks,
    /// memtrace's own memory.
    Own,
    /// Memory without a file that the program mapped itself.
    Anonymous,
    /// Everything else; negative if more was recorded than the driver reports as used.
    Unexplained,
}

/// A row of a balance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalanceRow {
    /// What the row counts.
    pub item: BalanceItem,
    /// Its bytes.
    pub bytes: i64,
}

/// A device's memory when the snapshot was taken, or the process's memory at the reading with the most resident memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Balance {
    /// Total bytes of the device; `None` for the process.
    pub total: Option<u64>,
    /// Bytes that are not free, of all processes (`cuMemGetInfo`). For the process: its resident bytes.
    pub used: u64,
    /// Bytes that programs can get, including the page cache that Linux gives back (`MemAvailable`). `None` except for
    /// integrated GPUs.
    pub available: Option<u64>,
    /// The rows; they add up to `used`.
    pub rows: Vec<BalanceRow>,
    /// What may be in the row [`BalanceItem::Unexplained`]: parts, each with a range of bytes. The last part is what is
    /// left, such as the memory of other processes. Empty if the device's number of threads is not known, or if less is
    /// unexplained than CUDA is assumed to take, as on most simulated GPUs.
    pub unexplained: Vec<NeedRow>,
}

/// The balance of a CUDA device; `None` if the query failed.
pub(super) fn device_balance(device: &DeviceView<'_>) -> Option<Balance> {
    let memory = device.memory?;
    let used = memory.total.saturating_sub(memory.free);
    let mut rows = live_rows(device);
    rows.extend(pool_rows(device));
    let graph_blocks = bytes_of(device, MemoryKind::Graph);
    let graphs = memory.graphs.map_or(0, |graphs| i128::from(graphs.reserved) - i128::from(graph_blocks));
    rows.push(row(BalanceItem::GraphSlack, graphs));
    rows.push(row(BalanceItem::ClassicSlack, classic_slack(device).into()));
    let left = |rows: &[BalanceRow]| i128::from(used) - rows.iter().map(|row| i128::from(row.bytes)).sum::<i128>();
    if let Some(unified) = memory.unified {
        let [page_cache, process] = shares(unified, memory.free, left(&rows));
        rows.extend([row(BalanceItem::PageCache, page_cache), row(BalanceItem::Process, process)]);
    }
    rows.retain(|row| row.bytes != 0);
    let left = left(&rows);
    rows.push(row(BalanceItem::Unexplained, left));
    let available = memory.unified.and_then(|unified| unified.system).map(|system| system.available);
    let unexplained = parts(device, u64::try_from(left).unwrap_or(0));
    Some(Balance { total: Some(memory.total), used, available, rows, unexplained })
}

/// Splits the unexplained bytes into the parts that [`Balance::unexplained`] describes.
fn parts(device: &DeviceView<'_>, unexplained: u64) -> Vec<NeedRow> {
    let mut parts = of_recorded(device);
    let sum = |of: fn(&NeedRow) -> u64| parts.iter().map(of).fold(0, u64::saturating_add);
    let (low, high) = (sum(|part| part.low), sum(|part| part.high));
    if parts.is_empty() || unexplained < low {
        return Vec::new();
    }
    let (least, most) = (unexplained.saturating_sub(high), unexplained - low);
    parts.push(NeedRow::new("what is left", least, most, "for example other processes, the display, graphs, NCCL"));
    parts
}

pub(super) fn row(item: BalanceItem, bytes: i128) -> BalanceRow {
    BalanceRow { item, bytes: i64::try_from(bytes).unwrap_or(i64::MAX) }
}

fn bytes_of(device: &DeviceSnapshot, kind: MemoryKind) -> u64 {
    device.live.iter().filter(|block| block.memory == kind).map(|block| block.size).sum()
}

/// Live blocks: first those of the program, by kind of memory, then those of libraries, by library. Each list begins
/// with the largest row.
fn live_rows(device: &DeviceView<'_>) -> Vec<BalanceRow> {
    let (mut kinds, mut libraries) = (BTreeMap::<MemoryKind, u64>::new(), BTreeMap::<&str, u64>::new());
    for block in &device.live {
        match library(device.data(), block.stack) {
            Some(name) => *libraries.entry(name).or_default() += block.size,
            None => *kinds.entry(block.memory).or_default() += block.size,
        }
    }
    let kinds = kinds.into_iter().map(|(kind, bytes)| row(BalanceItem::Live(kind), bytes.into()));
    let libraries = libraries.into_iter().map(|(name, bytes)| row(BalanceItem::Library(name.to_owned()), bytes.into()));
    let (mut rows, mut others): (Vec<_>, Vec<_>) = (kinds.collect(), libraries.collect());
    rows.sort_by_key(|row| -row.bytes);
    others.sort_by_key(|row| -row.bytes);
    rows.append(&mut others);
    rows
}

/// The rows for memory of pools that is in no recorded block, from the pools' statistics.
fn pool_rows(device: &DeviceSnapshot) -> Vec<BalanceRow> {
    let (Some(pool), Some(balance)) = (device.pool, pool_balance(device)) else { return Vec::new() };
    let memory = device.memory.unwrap_or_default();
    let rounding = balance.rest.clamp(0, i64::try_from(balance.rounding).unwrap_or(i64::MAX));
    let reserved = i128::from(pool.reserved) + i128::from(memory.own_pools_reserved);
    vec![
        row(BalanceItem::Before, device.not_recorded.into()),
        row(BalanceItem::Rounding, rounding.into()),
        row(BalanceItem::NotSeen, i128::from(balance.rest) - i128::from(rounding)),
        row(BalanceItem::PoolSlack, reserved - i128::from(balance.used)),
    ]
}

/// Unused bytes in the segments that contain only blocks of `cuMemAlloc`.
fn classic_slack(device: &DeviceSnapshot) -> u64 {
    let told = device.segments.iter().filter(|segment| !segment.estimated);
    let blocks = by_address(&device.live);
    let slack = with_blocks(told, &blocks).filter_map(|(segment, inside)| {
        let is_classic = !inside.is_empty() && inside.iter().all(|block| block.memory == MemoryKind::Classic);
        let bytes: u64 = inside.iter().map(|block| block.size).sum();
        is_classic.then(|| segment.size.saturating_sub(bytes))
    });
    slack.sum()
}

/// Two shares of the `left` bytes that no other row has: the page cache that Linux gives back, and the process's own
/// memory. Files that the process mapped are in the page cache.
fn shares(unified: UnifiedMemory, free: u64, left: i128) -> [i128; 2] {
    let left = left.max(0);
    let given_back = unified.system.map_or(0, |system| system.available.saturating_sub(free));
    let page_cache = i128::from(given_back).min(left);
    let process = i128::from(unified.process.map_or(0, ResidentMemory::own)).min(left - page_cache);
    [page_cache, process]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fit::STACKS;
    use crate::snapshot::testing::Story;
    use crate::snapshot::{DeviceMemory, DeviceThreads, GpuWork, GraphMemory, LocalMemory, Pool, SystemMemory};

    fn item(balance: &Balance, item: &BalanceItem) -> i64 {
        balance.rows.iter().find(|row| row.item == *item).map_or(0, |row| row.bytes)
    }

    fn balance_of(trace: &Story) -> Balance {
        device_balance(&DeviceView::of(&trace.build(), &trace.device())).unwrap()
    }

    #[test]
    fn rows_add_up_to_what_is_used_whatever_the_driver_says() {
        let mut trace = Story::cuda(0);
        trace.alloc("pooled", 1000).memory(MemoryKind::Pool);
        trace.segment_alloc(1 << 20, 1 << 20).alloc("in a segment", 600).address(1 << 20).memory(MemoryKind::Classic);
        trace.alloc("a graph's", 50).memory(MemoryKind::Graph);
        trace.pool(Pool { used: 1024 + 512, reserved: 4096, used_before: Some(0), ..Pool::default() });
        let graphs = Some(GraphMemory { used: 50, reserved: 2048, ..GraphMemory::default() });
        let memory = DeviceMemory { free: 1 << 30, total: 2 << 30, graphs, ..DeviceMemory::default() };
        let own = DeviceMemory { own_pools: 1, own_pools_used: 100, own_pools_reserved: 300, ..memory };
        for memory in [memory, own, DeviceMemory { free: (2 << 30) - 100, ..memory }] {
            let balance = balance_of(trace.memory_of_device(memory));
            assert_eq!(balance.rows.iter().map(|row| row.bytes).sum::<i64>(), (memory.total - memory.free) as i64);
            assert_eq!(item(&balance, &BalanceItem::Live(MemoryKind::Pool)), 1000);
            assert_eq!(item(&balance, &BalanceItem::Rounding), 24);
            assert_eq!(item(&balance, &BalanceItem::NotSeen), 512 + memory.own_pools_used as i64);
            assert_eq!(item(&balance, &BalanceItem::GraphSlack), 1998);
            assert_eq!(item(&balance, &BalanceItem::ClassicSlack), (1 << 20) - 600);
        }
        let balance = balance_of(&trace);
        assert!(item(&balance, &BalanceItem::Unexplained) < 0, "more was recorded than is used: {balance:?}");
    }

    #[test]
    fn segments_that_were_estimated_are_no_slack() {
        for (is_told, slack) in [(true, 2000), (false, 0)] {
            let mut trace = Story::cuda(0);
            if is_told {
                trace.segment_alloc(0x1000, 4000);
            }
            trace.alloc("kept", 2000).address(0x1000).memory(MemoryKind::Classic);
            trace.alloc("behind it", 2000).address(0x1000 + 2000).memory(MemoryKind::Classic).free("behind it");
            let device = trace.device();
            let segments: Vec<_> = device.segments.iter().map(|s| (s.address, s.size, s.estimated)).collect();
            assert_eq!((segments, classic_slack(&device)), (vec![(0x1000, 4000, !is_told)], slack));
        }
    }

    const GIB: u64 = 1 << 30;

    /// An integrated device of 100 GiB with a block of 10 GiB. The driver reports `free` bytes as free.
    fn integrated(free: u64, system: Option<SystemMemory>, process: Option<ResidentMemory>) -> Balance {
        let mut trace = Story::cuda(0);
        trace.alloc("a block", 10 * GIB).memory(MemoryKind::Classic);
        let unified = Some(UnifiedMemory { system, process });
        balance_of(trace.memory_of_device(DeviceMemory { free, total: 100 * GIB, unified, ..DeviceMemory::default() }))
    }

    #[test]
    fn an_integrated_devices_page_cache_and_process_are_not_unexplained() {
        let system = SystemMemory { total: 100 * GIB, available: 70 * GIB, free: 2 * GIB };
        let process = Some(ResidentMemory { resident: 7 * GIB, files: 2 * GIB });
        let of = |balance: &Balance| {
            let items = [BalanceItem::PageCache, BalanceItem::Process, BalanceItem::Unexplained];
            items.map(|of| item(balance, &of) / GIB as i64)
        };
        // 98 GiB used: 10 live, 68 given back, 5 of the process (its 2 of files are page cache). 15 are left.
        let balance = integrated(2 * GIB, Some(system), process);
        assert_eq!((of(&balance), balance.available), ([68, 5, 15], Some(70 * GIB)));
        // 14 GiB used: 4 are left for page cache, and none for the process.
        assert_eq!(of(&integrated(86 * GIB, Some(SystemMemory { available: 99 * GIB, ..system }), process)), [4, 0, 0]);
        // The driver reports more free bytes than are available.
        assert_eq!(of(&integrated(71 * GIB, Some(system), process)), [0, 5, 14]);
        // More was recorded than is used.
        assert_eq!(of(&integrated(95 * GIB, Some(system), process)), [0, 0, -5]);
        // No memory reading is available.
        let unknown = integrated(2 * GIB, None, None);
        assert_eq!((of(&unknown), unknown.available), ([0, 0, 88], None));
    }

    fn with_threads(unexplained: u64, threads: Option<DeviceThreads>, local: Option<u64>) -> Balance {
        let mut trace = Story::cuda(0);
        trace.alloc("a block", GIB).memory(MemoryKind::Classic);
        let memory = DeviceMemory { free: 0, total: GIB + unexplained, threads, ..DeviceMemory::default() };
        let mut data = trace.memory_of_device(memory).build();
        let work = |bytes| GpuWork {
            kernels: vec!["k".into()],
            local: vec![LocalMemory { bytes, ..LocalMemory::default() }],
            ..GpuWork::default()
        };
        data.gpu_work = local.map(work);
        device_balance(&DeviceView::of(&data, &trace.device())).unwrap()
    }

    /// The low and the high end of a part, in MiB.
    fn part(balance: &Balance, what: &str) -> Option<(u64, u64)> {
        let part = balance.unexplained.iter().find(|part| part.what == what)?;
        Some((part.low >> 20, part.high >> 20))
    }

    #[test]
    fn the_unexplained_bytes_are_split_into_ranges_that_hold_them() {
        // 2^18 threads: 256 MiB at 1 KiB each.
        let threads = |stack| Some(DeviceThreads { count: 1 << 18, stack });
        let of = |local| with_threads(GIB, threads(1024), local);
        assert_eq!(part(&of(None), STACKS), Some((256, 512)), "launches were not seen");
        assert_eq!(part(&of(Some(8)), STACKS), Some((256, 256)));
        assert_eq!(part(&of(Some(4096)), STACKS), Some((256, 1024)), "on whichever device it was launched");
        let balance = with_threads(4 * GIB, threads(1024), Some(4096));
        assert_eq!(part(&balance, STACKS), Some((256, 1024)));
        assert_eq!(part(&with_threads(4 * GIB, threads(8192), None), STACKS), Some((2048, 2048)));
        // The rest of the context has 0.9 to 1.3 KiB a thread, modules up to 64 MiB.
        assert_eq!(part(&of(Some(8)), "what is left"), Some((1024 - 256 - 332 - 64 - 1, 1024 - 256 - 230 - 1)));
        for (unexplained, threads) in [(GIB, None), (256 << 20, threads(1024)), (0, threads(1024))] {
            assert_eq!(with_threads(unexplained, threads, None).unexplained, []);
        }
        let huge = Some(DeviceThreads { count: u64::MAX, stack: u64::MAX });
        assert_eq!(with_threads(GIB, huge, Some(u64::MAX)).unexplained, []);
    }

    /// Contexts without libraries, in MiB, and the threads of each card: see `docs/fit.md` for where they were published.
    const CONTEXTS: [(u64, u64); 5] =
        [(107, 34 * 1536), (256, 82 * 1536), (426, 142 * 1536), (555, 188 * 1536), (612, 148 * 2048)];

    #[test]
    fn each_published_context_is_within_the_range_that_the_others_give() {
        for (left_out, (mib, count)) in CONTEXTS.iter().enumerate() {
            let others = CONTEXTS.iter().enumerate().filter(|(at, _)| *at != left_out);
            // Bytes for each thread beyond the stacks of 1 KiB.
            let rest = others.map(|(_, (mib, count))| (mib << 20) as f64 / *count as f64 - 1024.0);
            let (low, high) = rest.fold((f64::MAX, 0.0_f64), |(low, high), rest| (low.min(rest), high.max(rest)));
            // As wide as the rule: 0.9 to 1.3 KiB, from readings of 0.97 to 1.1 KiB.
            let (low, high) = ((low * 0.93 + 1024.0) * *count as f64, (high * 1.18 + 1024.0) * *count as f64);
            let bytes = (mib << 20) as f64;
            assert!((low..high).contains(&bytes), "{mib} MiB: {low} to {high}");
            let with_local = |local| with_threads(mib << 20, Some(DeviceThreads { count: *count, stack: 1024 }), local);
            let balance = with_local(Some(8));
            let wide = |balance: &Balance| -> u64 {
                let parts = balance.unexplained.iter().filter(|part| part.what != "what is left");
                parts.map(|part| part.high - part.low).sum::<u64>() >> 20
            };
            println!("{mib} MiB: {} MiB wide, {} without uses", wide(&balance), wide(&with_local(None)));
            assert_eq!(part(&balance, "what is left").map(|(least, _)| least), Some(0), "{mib} MiB");
        }
    }

    /// Assigns the remaining bytes one by one, for small numbers.
    fn naive(used: u64, live: u64, [available, free, own]: [u64; 3]) -> [i64; 4] {
        let mut rows = [live as i64, 0, 0, 0];
        for byte in live..used {
            let is_cache = free + (byte - live) < available;
            let is_own = !is_cache && rows[2] < own as i64;
            rows[if is_cache {
                1
            } else if is_own {
                2
            } else {
                3
            }] += 1;
        }
        rows[3] -= live.saturating_sub(used) as i64;
        rows
    }

    #[test]
    fn whatever_the_numbers_rows_add_up_and_none_takes_more_than_is_left() {
        for seed in 0..20_000_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut draw = |below: u64| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let (total, live) = (1 + draw(60), draw(40));
            let (free, available, resident, files) = (draw(70), draw(70), draw(50), draw(50));
            let mut trace = Story::cuda(0);
            if live > 0 {
                trace.alloc("live", live).memory(MemoryKind::Classic);
            }
            let unified = Some(UnifiedMemory {
                system: Some(SystemMemory { total, available, free }),
                process: Some(ResidentMemory { resident, files }),
            });
            let balance =
                balance_of(trace.memory_of_device(DeviceMemory { free, total, unified, ..DeviceMemory::default() }));
            let own = resident.saturating_sub(files);
            let used = total.saturating_sub(free);
            let items = [
                BalanceItem::Live(MemoryKind::Classic),
                BalanceItem::PageCache,
                BalanceItem::Process,
                BalanceItem::Unexplained,
            ];
            assert_eq!(items.map(|of| item(&balance, &of)), naive(used, live, [available, free, own]), "{seed}");
            assert_eq!(balance.rows.iter().map(|row| row.bytes).sum::<i64>(), used as i64, "{seed}");
        }
    }

    #[test]
    fn the_largest_numbers_of_a_file_do_not_overflow() {
        let most = UnifiedMemory {
            system: Some(SystemMemory { total: u64::MAX, available: u64::MAX, free: 0 }),
            process: Some(ResidentMemory { resident: u64::MAX, files: 0 }),
        };
        assert_eq!(shares(most, 0, i128::from(u64::MAX)), [i128::from(u64::MAX), 0]);
    }
}
