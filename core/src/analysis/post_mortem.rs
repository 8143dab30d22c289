//! Post-mortem of a refused allocation: why it failed, and what would have made it fit.

use super::fragmentation::{Fragmentation, fragmentation};
use super::rows::{Breakdown, Key};
use super::temporaries::{TemporaryRow, temporaries};
use crate::recording::DeviceView;
use crate::snapshot::OutOfMemory;

/// A device's state at its last refused allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostMortem {
    /// The last allocation that was refused.
    pub refused: OutOfMemory,
    /// Bytes that the driver's pool has reserved and that the program does not use, if the query succeeded.
    pub reserved_unused: Option<u64>,
    /// Segments and holes.
    pub holes: Fragmentation,
    /// The line with the largest temporary.
    pub temporaries: Option<TemporaryRow>,
    /// Live memory by line when the snapshot was taken. It may differ from the live memory at the refusal.
    pub lines: Breakdown,
    /// Live memory by scope when the snapshot was taken.
    pub scopes: Breakdown,
    /// Bytes that the refused request needs beyond the device's free memory and `reserved_unused`.
    pub missing: u64,
    /// Number of lines, largest first, that hold the missing bytes; `None` if all lines together hold fewer.
    pub lines_to_drop: Option<usize>,
}

/// The post-mortem of the device's last refusal, if there was one.
pub fn post_mortem(device: &DeviceView<'_>) -> Option<PostMortem> {
    let refused = *device.ooms.last()?;
    let reserved_unused = device.pool.map(|pool| pool.reserved.saturating_sub(pool.used));
    let lines = device.at_end().by(Key::Line).into_owned();
    let at_hand = reserved_unused.unwrap_or(0).saturating_add(refused.device_free.unwrap_or(0));
    let missing = refused.size.saturating_sub(at_hand);
    let lines_to_drop = rows_for(&lines, missing);
    let scopes = device.at_end().by(Key::Scope).into_owned();
    Some(PostMortem {
        refused,
        reserved_unused,
        holes: fragmentation(device),
        temporaries: temporaries(device).into_iter().max_by_key(|row| row.largest),
        lines,
        scopes,
        missing,
        lines_to_drop,
    })
}

/// Number of rows, largest first, that hold this many bytes; `None` if all rows together hold fewer.
fn rows_for(lines: &Breakdown, bytes: u64) -> Option<usize> {
    let mut sum = 0;
    let enough = |(_, row): &(usize, &super::Row)| {
        sum += row.bytes;
        sum >= bytes
    };
    if bytes == 0 { Some(0) } else { lines.rows.iter().enumerate().find(enough).map(|(index, _)| index + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{LINE_7, Story, WORKER};
    use crate::snapshot::{Pool, SnapshotData};

    /// A device with a block of a line and a block of a worker without a line. It refuses an allocation.
    fn refused(size: u64, free: u64, unused: u64) -> (SnapshotData, PostMortem) {
        let mut trace = Story::cuda(0);
        trace.before(1024).below_threshold(128);
        trace.enter("forward").alloc("input", 2000).on(LINE_7).leave("forward");
        trace.alloc("worker's", 500).on(WORKER);
        trace.refused(size, Some(free)).pool(Pool { reserved: 1000 + unused, used: 1000, ..Pool::default() });
        let data = trace.build();
        let post_mortem = post_mortem(&DeviceView::of(&data, &data.devices[0])).unwrap();
        (data, post_mortem)
    }

    #[test]
    fn what_is_missing_is_what_neither_the_pool_nor_the_device_has() {
        assert_eq!((refused(500, 100, 400).1.missing, refused(500, 100, 400).1.lines_to_drop), (0, Some(0)));
        let (_, short) = refused(501, 100, 400);
        assert_eq!((short.missing, short.lines_to_drop), (1, Some(1)));
        let (data, most) = refused(1 << 40, 0, 0);
        assert_eq!(most.lines_to_drop, None);
        let device = &data.devices[0];
        let live = device.live.iter().map(|block| block.size).sum::<u64>();
        assert_eq!(most.lines.total, live + device.not_recorded + device.below_threshold);
        assert_eq!(most.scopes.total, most.lines.total);
        let none = Story::cpu().alloc("a block", 1000).build();
        assert_eq!(post_mortem(&DeviceView::of(&none, &none.devices[0])), None);
    }
}
