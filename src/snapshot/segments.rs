//! Segments of a device whose allocator does not tell them: runs of neighbouring addresses.

use super::record::{Block, Record};

/// Memory that the allocator took from the system in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its first byte.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// True if it was derived from the addresses of blocks, not told by the driver.
    pub estimated: bool,
}

/// Addresses at most this far apart count as one segment: a C heap's own headers and padding lie
/// between blocks that belong together.
const NEIGHBOURS: u64 = 4096;

/// The runs of neighbouring addresses that cover every block of the records and every live block.
pub(crate) fn estimate(records: &[Record], live: &[Block]) -> Vec<Segment> {
    let recorded = records.iter().map(|r| (r.address, r.size));
    let living = live.iter().map(|b| (b.address, b.size));
    let mut ranges: Vec<(u64, u64)> =
        recorded.chain(living).map(|(address, size)| (address, address.saturating_add(size.max(1)))).collect();
    ranges.sort_unstable();
    ranges.dedup();
    merge(&ranges)
}

fn merge(sorted: &[(u64, u64)]) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for &(start, end) in sorted {
        match segments.last_mut() {
            Some(last) if start <= last.address.saturating_add(last.size).saturating_add(NEIGHBOURS) => {
                last.size = last.size.max(end - last.address);
            }
            _ => segments.push(Segment { address: start, size: end - start, estimated: true }),
        }
    }
    segments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_share_a_segment_and_strangers_do_not() {
        let segments = merge(&[(0x1000, 0x2000), (0x1800, 0x1900), (0x2fff, 0x4000), (0x6000, 0x7000)]);
        let expected =
            [(0x1000, 0x3000), (0x6000, 0x1000)].map(|(address, size)| Segment { address, size, estimated: true });
        assert_eq!(segments, expected);
    }
}
