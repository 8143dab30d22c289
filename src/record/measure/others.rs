//! Threads outside a measurement while it is open, and the evidence that shows whose work they do.

use memtrace_core::snapshot::{Device, StackId, ThreadId};

use super::id::Id;
use crate::record::event_site::EventSite;
use crate::record::memory::{OwnMap, own_map};
use crate::record::thread_name;

/// Whose work a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkOwner {
    /// The thread works for no measurement, as far as is known.
    Nobody,
    One(Id),
    Several,
}

impl WorkOwner {
    /// Adds a measurement whose memory the thread has addresses of. Of two nested measurements, only the inner one
    /// counts.
    pub(super) fn and(self, id: Id, contains: impl Fn(Id, Id) -> bool) -> Self {
        match self {
            Self::Nobody => Self::One(id),
            Self::One(before) if contains(id, before) => self,
            Self::One(before) if contains(before, id) => Self::One(id),
            Self::One(_) | Self::Several => Self::Several,
        }
    }
}

/// A thread that may have worked for a measurement, because it is of the measurement's family. Contains the thread's
/// allocations on one device since the measurement was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Helper {
    pub(crate) thread: ThreadId,
    /// The first 15 bytes of the thread's name.
    pub(crate) name: [u8; thread_name::LENGTH],
    pub(crate) device: Device,
    /// The thread's peak.
    pub(crate) bytes: u64,
    pub(crate) allocations: u64,
    /// Size of its largest block, which has this `stack` and `address`.
    pub(crate) largest: u64,
    pub(crate) stack: StackId,
    pub(crate) address: u64,
}

impl Helper {
    pub(crate) fn name(&self) -> String {
        thread_name::text(self.name)
    }
}

/// The helpers by measurement, thread and device, each with its live bytes.
#[derive(Debug)]
pub(super) struct Others(OwnMap<(Id, ThreadId, Device), (Helper, u64)>);

impl Others {
    pub(super) const fn new() -> Self {
        Self(own_map())
    }

    pub(super) fn alloc(&mut self, id: Id, (device, address, size): (Device, u64, u64), site: EventSite) {
        if self.0.try_reserve(1).is_err() {
            return;
        }
        let thread = site.thread;
        let (helper, live) = self.0.entry((id, thread, device)).or_insert_with(|| {
            let (name, stack) = (thread_name::of_this_thread(), StackId::NONE);
            (Helper { thread, name, device, bytes: 0, allocations: 0, largest: 0, stack, address: 0 }, 0)
        });
        *live += size;
        helper.bytes = helper.bytes.max(*live);
        helper.allocations += 1;
        if size > helper.largest {
            (helper.largest, helper.stack, helper.address) = (size, site.stack, address);
        }
    }

    pub(super) fn free(&mut self, id: Id, thread: ThreadId, device: Device, size: u64) {
        if let Some((_, live)) = self.0.get_mut(&(id, thread, device)) {
            *live = live.saturating_sub(size);
        }
    }

    /// Whether this thread's allocations on the device may be for this measurement.
    pub(super) fn has(&self, id: Id, thread: ThreadId, device: Device) -> bool {
        self.0.contains_key(&(id, thread, device))
    }

    pub(super) fn helpers(&self, id: Id) -> Vec<Helper> {
        self.0.iter().filter(|((of, ..), _)| *of == id).map(|(_, (helper, _))| *helper).collect()
    }

    pub(super) fn close(&mut self, id: Id) {
        self.0.retain(|(of, ..), _| *of != id);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }
}
