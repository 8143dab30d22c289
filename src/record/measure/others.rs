//! Threads without a measurement while one is open, and the evidence for whose work they do.

use super::id::Id;
use crate::record::lineage::Family;
use crate::record::memory::{OwnMap, OwnVec, System, own_map, try_push};
use crate::record::site::EventSite;
use crate::record::thread_name;
use crate::snapshot::{Device, StackId, ThreadId};

/// Whose work a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkOwner {
    /// No measurement's, as far as can be seen.
    Nobody,
    One(Id),
    /// Several candidates; the number says how many of the ids are used.
    Several([Id; MOST], usize),
}

/// Most candidates that are told apart.
pub(super) const MOST: usize = 4;

impl WorkOwner {
    /// Adds a measurement work_owner memory the thread holds. Of two nested ones, the inner one counts.
    pub(super) fn and(self, id: Id, contains: impl Fn(Id, Id) -> bool) -> Self {
        match self {
            Self::Nobody => Self::One(id),
            Self::One(before) if contains(id, before) => Self::One(before),
            Self::One(before) if contains(before, id) => Self::One(id),
            Self::One(before) => Self::Several([before, id, 0, 0], 2),
            Self::Several(mut ids, count) => {
                let known = ids.iter().take(count).any(|known| contains(id, *known));
                match ids.get_mut(count).filter(|_| !known) {
                    Some(slot) => {
                        *slot = id;
                        Self::Several(ids, count + 1)
                    }
                    None => self,
                }
            }
        }
    }

    pub(super) fn each_of_several(self, each: impl FnMut(Id)) {
        if let Self::Several(ids, count) = self {
            ids.into_iter().take(count).for_each(each);
        }
    }
}

/// What a thread without a measurement allocated on a device while one was open.
#[derive(Clone, Copy, Debug)]
struct Other {
    family: Family,
    name: [u8; thread_name::LENGTH],
    live: u64,
    most: u64,
    allocations: u64,
    largest: (u64, StackId),
}

/// A thread that may have worked for a measurement (it is of the same family), and what it allocated on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Helper {
    pub(crate) thread: ThreadId,
    /// The first 15 bytes of its name.
    pub(crate) name: [u8; thread_name::LENGTH],
    pub(crate) device: Device,
    /// It shares memory with the measured code.
    pub(crate) shares: bool,
    /// Its peak.
    pub(crate) bytes: u64,
    pub(crate) allocations: u64,
    /// Its largest block, and that block's stack.
    pub(crate) largest: u64,
    pub(crate) stack: StackId,
}

impl Helper {
    pub(crate) fn name(&self) -> String {
        thread_name::text(self.name)
    }
}

#[derive(Debug)]
pub(super) struct Others {
    held: OwnMap<(ThreadId, Device), Other>,
    /// Threads that share memory with a measurement.
    shares: OwnVec<(ThreadId, Id)>,
}

impl Others {
    pub(super) const fn new() -> Self {
        Self { held: own_map(), shares: OwnVec::new_in(System) }
    }

    pub(super) fn alloc(&mut self, device: Device, size: u64, site: EventSite, family: Family) {
        if self.held.try_reserve(1).is_err() {
            return;
        }
        let other = self.held.entry((site.thread, device)).or_insert_with(|| {
            let name = thread_name::of_this_thread();
            Other { family, name, live: 0, most: 0, allocations: 0, largest: (0, StackId::NONE) }
        });
        other.live += size;
        other.most = other.most.max(other.live);
        other.allocations += 1;
        if size > other.largest.0 {
            other.largest = (size, site.stack);
        }
    }

    pub(super) fn free(&mut self, thread: ThreadId, device: Device, size: u64) {
        if let Some(other) = self.held.get_mut(&(thread, device)) {
            other.live = other.live.saturating_sub(size);
        }
    }

    /// Notes that the thread shares memory with the measurement.
    pub(super) fn shares(&mut self, thread: ThreadId, id: Id) {
        if !self.shares.contains(&(thread, id)) {
            try_push(&mut self.shares, (thread, id));
        }
    }

    pub(super) fn does_share(&self, thread: ThreadId, is_meant: impl Fn(Id) -> bool) -> bool {
        self.shares.iter().any(|(of, id)| *of == thread && is_meant(*id))
    }

    pub(super) fn helpers(&self, work_owner: Family, is_meant: impl Fn(Id) -> bool) -> Vec<Helper> {
        let helper = |(&(thread, device), other): (&(ThreadId, Device), &Other)| {
            let Other { family, name, most: bytes, allocations, largest: (largest, stack), .. } = *other;
            let shares = self.does_share(thread, &is_meant);
            family.may_work_for(work_owner).then_some(Helper {
                thread,
                name,
                device,
                shares,
                bytes,
                allocations,
                largest,
                stack,
            })
        };
        self.held.iter().filter_map(helper).collect()
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }
}
