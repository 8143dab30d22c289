//! Requests to an allocator: first those for the blocks that are live when the log begins, by block number, then those
//! of the log.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::slice;

use super::super::log;
use crate::error::Error;
use crate::recording::DeviceView;
use crate::snapshot::{Block, Device, DeviceSnapshot, MemoryKind, Record, RecordKind, Replay, SegmentRecord};

/// A request, or an event outside the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Allocates this block.
    Alloc(Block),
    /// Frees the block with this number.
    Free(u64),
    /// A change of other memory: mapped memory, arrays, graphs, and what was allocated before the recording.
    Besides(i64),
    /// The driver released a segment, as it does when the program waits for the GPU.
    Synchronise,
    /// The program had PyTorch's allocator release what is free (`torch.cuda.empty_cache`).
    EmptyCache,
}

/// Whether programs request memory of this kind from an allocator that another one could replace.
pub(super) fn is_asked_for(kind: MemoryKind) -> bool {
    matches!(kind, MemoryKind::Heap | MemoryKind::Pool | MemoryKind::Classic)
}

/// Returns an error if the device's requests are not known.
pub(super) fn check(device: &DeviceSnapshot) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::allocator(format!("cannot replay {}: {why}", device.device)));
    match device.device {
        Device::Cuda(_) | Device::Cpu if device.is_sample() => {
            refuse("small blocks were sampled; record without a sampling interval")
        }
        Device::Cuda(_) | Device::Cpu => Ok(()),
        _ => refuse("only the memory of a GPU and the heap have an allocator; name another --device"),
    }
}

/// Calls `ask` with each request: the number of records before it (`None` before the log), its time, and the request.
/// Stops when `ask` returns false.
pub(super) fn requests(device: &DeviceView<'_>, mut ask: impl FnMut(Option<usize>, u64, Request) -> bool) {
    let start_ns = log::start_ns(device);
    let start = Replay::at_log_start(device);
    let unknown = log::allocated_at_start(device).saturating_sub(start.bytes());
    let mut first = [Request::Besides(signed(unknown))].into_iter().chain(start.blocks().into_iter().map(came));
    if !first.all(|request| ask(None, start_ns, request)) {
        return;
    }
    let mut releases = Releases::of(device);
    for (at, record) in device.records.iter().enumerate() {
        while let Some((time_ns, release)) = releases.next_before(record) {
            ask(Some(at), time_ns, release);
        }
        let request = match record.kind {
            RecordKind::Alloc => came(record.block()),
            RecordKind::Free if is_asked_for(record.memory) && record.alloc_seq.is_some() => {
                Request::Free(record.raw_seq())
            }
            RecordKind::Free => Request::Besides(-signed(record.size)),
        };
        if !ask(Some(at), record.time_ns, request) {
            return;
        }
    }
}

/// The released segments, in the order of the log.
struct Releases<'d> {
    next: Peekable<slice::Iter<'d, SegmentRecord>>,
    is_pytorchs: bool,
}

impl<'d> Releases<'d> {
    fn of(device: &DeviceView<'d>) -> Self {
        let data = device.snapshot();
        Self { next: data.segment_records.iter().peekable(), is_pytorchs: device.data().is_python() }
    }

    /// The next release before a record. If PyTorch's allocator released a segment to serve this record itself, the
    /// release is no request. Such a release has the record's stack, and often its time.
    fn next_before(&mut self, record: &Record) -> Option<(u64, Request)> {
        let is_own = |segment: &SegmentRecord| {
            self.is_pytorchs && record.kind == RecordKind::Alloc && segment.stack == record.stack
        };
        let is_before = |segment: &&SegmentRecord| match segment.time_ns.cmp(&record.time_ns) {
            Ordering::Less => true,
            Ordering::Equal => is_own(segment),
            Ordering::Greater => false,
        };
        while let Some(segment) = self.next.next_if(is_before) {
            match segment.kind {
                RecordKind::Free if !self.is_pytorchs => return Some((segment.time_ns, Request::Synchronise)),
                RecordKind::Free if !is_own(segment) => return Some((segment.time_ns, Request::EmptyCache)),
                RecordKind::Alloc | RecordKind::Free => {}
            }
        }
        None
    }
}

fn came(block: Block) -> Request {
    if is_asked_for(block.memory) { Request::Alloc(block) } else { Request::Besides(signed(block.size)) }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::StackId;
    use crate::snapshot::testing::{Story, frame, stacks};

    const MIB: u64 = 1 << 20;

    /// The releases among the requests, and the number of records before each.
    fn releases(story: &mut Story, file: &str) -> Vec<(usize, Request)> {
        let frames = vec![frame("step", file, 1), frame("empty_cache", file, 2)];
        story.stacks(stacks(frames, [&[0][..], &[1][..]]));
        let (data, mut found) = (story.build(), Vec::new());
        requests(&DeviceView::of(&data, &data.devices[0]), |at, _, request| {
            if matches!(request, Request::Synchronise | Request::EmptyCache) {
                found.push((at.unwrap(), request));
            }
            true
        });
        found
    }

    /// A block in a segment that is released after the block's free: by the call of the next alloc, or by another one.
    fn story(released_by: u32) -> Story {
        let [step, released_by] = [1, released_by].map(StackId);
        let mut story = Story::cuda(0);
        story.at(1_000).segment_alloc(32 * MIB, 20 * MIB).on(step);
        story.alloc("a", 20 * MIB).address(32 * MIB).on(step).at(2_000).free("a");
        story.at(3_000).segment_free(32 * MIB).on(released_by).alloc("b", 30 * MIB).address(96 * MIB).on(step);
        story.at(4_000).alloc("c", MIB).on(step);
        story
    }

    #[test]
    fn what_pytorchs_program_releases_is_a_request_and_what_its_allocator_releases_is_none() {
        assert_eq!(releases(&mut story(2), "train.py"), [(3, Request::EmptyCache)]);
        assert_eq!(releases(&mut story(1), "train.py"), []);
        assert_eq!(releases(&mut story(2), "train.rs"), [(3, Request::Synchronise)]);
    }
}
