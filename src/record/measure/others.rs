//! Threads that carry no measurement while one is open, and what tells whose work they do.

use super::registry::Id;
use crate::record::ledger::Site;
use crate::record::lineage::Family;
use crate::record::memory::{OwnMap, OwnVec, System, own_map, try_push};
use crate::snapshot::{StackId, ThreadId};

/// Whose work a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// That of no measurement, as far as can be seen.
    Nobody,
    One(Id),
    /// What the thread holds is of several: so many of these.
    Several([Id; MOST], usize),
}

/// Measurements that are told apart where a thread holds memory of several.
pub(super) const MOST: usize = 4;

impl Whose {
    /// One more whose memory the thread holds. Of two inside each other it is the inner one's.
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

/// What a thread that carries no measurement allocated while one was open.
#[derive(Debug)]
pub(super) struct Other {
    family: Family,
    live: u64,
    most: u64,
    allocations: u64,
    largest: (u64, StackId),
    /// Measurements with whose threads it shares memory.
    shares: OwnVec<Id>,
}

/// Of those of them that may have worked for a measurement, as they are related to its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Helpers {
    /// The most that they held at once, each by itself.
    pub(crate) bytes: u64,
    pub(crate) allocations: u64,
    pub(crate) threads: u64,
    /// The thread that held most, its largest block and where that was allocated.
    pub(crate) first: ThreadId,
    pub(crate) largest: u64,
    pub(crate) stack: StackId,
}

#[derive(Debug)]
pub(super) struct Others {
    threads: OwnMap<ThreadId, Other>,
}

impl Others {
    pub(super) const fn new() -> Self {
        Self { threads: own_map() }
    }

    fn of(&mut self, thread: ThreadId, family: Family) -> Option<&mut Other> {
        if !self.threads.contains_key(&thread) {
            self.threads.try_reserve(1).ok()?;
            let (shares, largest) = (OwnVec::new_in(System), (0, StackId::NONE));
            self.threads.insert(thread, Other { family, live: 0, most: 0, allocations: 0, largest, shares });
        }
        self.threads.get_mut(&thread)
    }

    pub(super) fn alloc(&mut self, size: u64, site: Site, family: Family) {
        let Some(other) = self.of(site.thread, family) else { return };
        other.live += size;
        other.most = other.most.max(other.live);
        other.allocations += 1;
        if size > other.largest.0 {
            other.largest = (size, site.stack);
        }
    }

    pub(super) fn free(&mut self, thread: ThreadId, size: u64) {
        if let Some(other) = self.threads.get_mut(&thread) {
            other.live = other.live.saturating_sub(size);
        }
    }

    /// The thread has memory in common with code that is measured: what it does may be done for that.
    pub(super) fn shares(&mut self, thread: ThreadId, family: Option<Family>, id: Id) {
        let other = match family {
            Some(family) => self.of(thread, family),
            None => self.threads.get_mut(&thread),
        };
        if let Some(other) = other.filter(|other| !other.shares.contains(&id)) {
            try_push(&mut other.shares, id);
        }
    }

    pub(super) fn does_share(&self, thread: ThreadId, is_meant: impl Fn(Id) -> bool) -> bool {
        self.threads.get(&thread).is_some_and(|other| other.shares.iter().any(|id| is_meant(*id)))
    }

    /// Those that share memory with it, or those that do not.
    pub(super) fn helpers(&self, whose: Family, shares: bool, is_meant: impl Fn(Id) -> bool) -> Helpers {
        let (mut sum, mut most) = (Helpers::default(), 0);
        let may = |other: &Other| other.allocations > 0 && other.family.may_work_for(whose);
        let does = |other: &Other| other.shares.iter().any(|id| is_meant(*id)) == shares;
        for (thread, other) in self.threads.iter().filter(|(_, other)| may(other) && does(other)) {
            sum.bytes += other.most;
            sum.allocations += other.allocations;
            sum.threads += 1;
            if other.most > most {
                most = other.most;
                (sum.first, sum.largest, sum.stack) = (*thread, other.largest.0, other.largest.1);
            }
        }
        sum
    }

    pub(super) fn clear(&mut self) {
        self.threads = own_map();
    }
}
