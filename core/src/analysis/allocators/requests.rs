//! Requests to an allocator: first the blocks that are live when the log begins, by number, then the log's.

use super::super::log;
use crate::error::Error;
use crate::snapshot::{Block, Device, DeviceSnapshot, MemoryKind, RecordKind, Replay};

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
}

/// Whether memory of this kind could come from another allocator.
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
pub(super) fn requests(device: &DeviceSnapshot, mut ask: impl FnMut(Option<usize>, u64, Request) -> bool) {
    let start_ns = log::start_ns(device);
    let start = Replay::at_log_start(device);
    let unknown = log::allocated_at_start(device).saturating_sub(start.bytes());
    let mut first = [Request::Besides(signed(unknown))].into_iter().chain(start.blocks().into_iter().map(came));
    if !first.all(|request| ask(None, start_ns, request)) {
        return;
    }
    let released = device.segment_records.iter().filter(|segment| segment.kind == RecordKind::Free);
    let mut released = released.map(|segment| segment.time_ns).peekable();
    for (at, record) in device.records.iter().enumerate() {
        while let Some(time_ns) = released.next_if(|time_ns| *time_ns < record.time_ns) {
            ask(Some(at), time_ns, Request::Synchronise);
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

fn came(block: Block) -> Request {
    if is_asked_for(block.memory) { Request::Alloc(block) } else { Request::Besides(signed(block.size)) }
}

fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
