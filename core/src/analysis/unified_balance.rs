//! The rows of an integrated device's balance for the host's programs. Such a device has no memory of its own.

use crate::snapshot::{ResidentMemory, UnifiedMemory};

/// Splits the `left` bytes that no other row has: page cache that Linux gives back, and the process's own memory.
/// Mapped files are page cache.
pub(super) fn shares(unified: UnifiedMemory, free: u64, left: i128) -> [i128; 2] {
    let left = left.max(0);
    let given_back = unified.system.map_or(0, |system| system.available.saturating_sub(free));
    let page_cache = i128::from(given_back).min(left);
    let process = i128::from(unified.process.map_or(0, ResidentMemory::own)).min(left - page_cache);
    [page_cache, process]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::{Balance, BalanceItem, balance};
    use crate::recording::DeviceView;
    use crate::snapshot::testing::Story;
    use crate::snapshot::{DeviceMemory, MemoryKind, SystemMemory};

    fn item(balance: &Balance, item: &BalanceItem) -> i64 {
        balance.rows.iter().find(|row| row.item == *item).map_or(0, |row| row.bytes)
    }

    fn balance_of(trace: &Story) -> Balance {
        balance(&DeviceView::of(&trace.build(), &trace.device())).unwrap()
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
