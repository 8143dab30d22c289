//! Pool balance: the CUDA driver's pool statistics compared with the recorded blocks.

use crate::snapshot::{DeviceSnapshot, MemoryKind};

/// As far as is known, the driver allocates multiples of this size, so rounding adds fewer bytes than this to a
/// block.
const GRANULE: u64 = 512;

/// A device's pools (its own and those of the program) and the recorded blocks from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolBalance {
    /// Bytes in use, as the driver reports them.
    pub used: u64,
    /// Requested bytes of live recorded blocks from a pool.
    pub recorded: u64,
    /// Bytes in use from before the recording, if known.
    pub before: Option<u64>,
    /// `used` minus `recorded` and `before`.
    pub rest: i64,
    /// The part of `rest` that rounding can explain.
    pub rounding: u64,
}

impl PoolBalance {
    /// Whether rounding can explain the rest, or memory from before the recording whose bytes are not known.
    pub fn is_explained(&self) -> bool {
        let most = if self.before.is_some() { self.rounding } else { u64::MAX };
        u64::try_from(self.rest).is_ok_and(|rest| rest <= most)
    }
}

/// The pool balance of a device; `None` if it has no pool, or the query failed.
pub fn pool_balance(device: &DeviceSnapshot) -> Option<PoolBalance> {
    let pool = device.pool?;
    let used = pool.used.saturating_add(device.memory.map_or(0, |memory| memory.own_pools_used));
    let before = pool.used_before.map(|_| device.not_recorded);
    let blocks = || device.live.iter().filter(|block| block.memory == MemoryKind::Pool);
    let recorded: u64 = blocks().map(|block| block.size).sum();
    let rounding = blocks().map(|block| block.size.next_multiple_of(GRANULE) - block.size).sum();
    let known = i128::from(recorded) + i128::from(before.unwrap_or(0));
    let rest = i64::try_from(i128::from(used) - known).unwrap_or(i64::MAX);
    Some(PoolBalance { used, recorded, before, rest, rounding })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Pool;
    use crate::snapshot::testing::Story;

    fn device(used: u64, before: Option<u64>, blocks: &[(u64, MemoryKind)]) -> DeviceSnapshot {
        let mut trace = Story::cuda(0);
        trace.before(before.unwrap_or(0)).pool(Pool { used, used_before: before, ..Pool::default() });
        for (number, &(size, memory)) in blocks.iter().enumerate() {
            trace.alloc(number, size).memory(memory);
        }
        trace.device()
    }

    #[test]
    fn the_rest_is_what_was_there_before_and_rounding_or_it_is_not_explained() {
        let blocks = [(1000, MemoryKind::Pool), (512, MemoryKind::Pool), (4096, MemoryKind::Classic)];
        let balance = pool_balance(&device(1536, Some(0), &blocks)).unwrap();
        assert_eq!((balance.recorded, balance.rest, balance.rounding), (1512, 24, 24));
        assert!(balance.is_explained());
        assert!(!pool_balance(&device(1537, Some(0), &blocks)).unwrap().is_explained());
        let before = pool_balance(&device(1537, Some(1), &blocks)).unwrap();
        assert_eq!((before.before, before.rest, before.is_explained()), (Some(1), 24, true));
        assert!(pool_balance(&device(9999, None, &blocks)).unwrap().is_explained());
        assert!(!pool_balance(&device(1511, None, &blocks)).unwrap().is_explained());
        assert_eq!(pool_balance(&Story::cpu().alloc("a block", 1000).device()), None);
    }
}
