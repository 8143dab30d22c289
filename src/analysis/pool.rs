//! What the CUDA driver says of its pool, held against what was recorded.

use crate::snapshot::DeviceSnapshot;

/// The driver hands out whole multiples of this, as far as is known: a recorded block may take up to one
/// byte less than it more than was asked for.
const GRANULE: u64 = 512;

/// A device's pool and the recorded blocks that came from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolBalance {
    /// Bytes that the driver says are in use.
    pub used: u64,
    /// Bytes asked for in recorded blocks that are live and came from a stream-ordered allocation. Those of
    /// pools that the program made for itself are among them, and not in `used`.
    pub recorded: u64,
    /// `used` less `recorded`.
    pub rest: i64,
    /// As much of the rest was in use when the recording began, if that is known; it may have been freed.
    pub before: Option<u64>,
    /// As much of the rest may be rounding.
    pub rounding: u64,
}

impl PoolBalance {
    /// Can the rest be what was there before, and rounding?
    pub fn is_explained(&self) -> bool {
        let most = self.before.unwrap_or(u64::MAX).saturating_add(self.rounding);
        u64::try_from(self.rest).is_ok_and(|rest| rest <= most)
    }
}

/// Compares; `None` for what has no pool, or whose pool could not be asked.
pub fn pool_balance(device: &DeviceSnapshot) -> Option<PoolBalance> {
    let pool = device.pool?;
    // Stream 0 is that of blocks which are in the order of none.
    let blocks = || device.live.iter().filter(|block| block.stream != 0);
    let recorded: u64 = blocks().map(|block| block.size).sum();
    let rounding = blocks().map(|block| block.size.next_multiple_of(GRANULE) - block.size).sum();
    let rest = i64::try_from(i128::from(pool.used) - i128::from(recorded)).unwrap_or(i64::MAX);
    Some(PoolBalance { used: pool.used, recorded, rest, before: pool.used_before, rounding })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{Block, Device, Pool, testing};

    fn device(used: u64, before: Option<u64>, blocks: &[(u64, u32)]) -> DeviceSnapshot {
        let mut device = testing::two_lines_and_a_temporary().devices.remove(0);
        let block = |(size, stream): &(u64, u32)| Block { size: *size, stream: *stream, ..device.live[0] };
        let live = blocks.iter().map(block).collect();
        (device.device, device.live) = (Device::Cuda(0), live);
        device.pool = Some(Pool { used, used_before: before, ..Pool::default() });
        device
    }

    #[test]
    fn the_rest_is_what_was_there_before_and_rounding_or_it_is_not_explained() {
        let blocks = [(1000, 1), (512, 2), (4096, 0)];
        let balance = pool_balance(&device(1536, Some(0), &blocks)).unwrap();
        assert_eq!((balance.recorded, balance.rest, balance.rounding), (1512, 24, 24));
        assert!(balance.is_explained());
        assert!(!pool_balance(&device(1537, Some(0), &blocks)).unwrap().is_explained());
        assert!(pool_balance(&device(1537, Some(1), &blocks)).unwrap().is_explained());
        assert!(pool_balance(&device(9999, None, &blocks)).unwrap().is_explained());
        assert!(!pool_balance(&device(1511, None, &blocks)).unwrap().is_explained());
        assert_eq!(pool_balance(&testing::two_lines_and_a_temporary().devices[0]), None);
    }
}
