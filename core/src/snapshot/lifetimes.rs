//! Lifetimes: each block that a device's recording knows, from its alloc to its free.

use std::num::NonZeroU64;

use super::{Block, DeviceSnapshot, Record, RecordKind};
use crate::hashed::HashMap;

/// A position in the log, from 1; 0 means before the log. Records beyond the largest position are ignored.
pub type LogPosition = u32;

/// The end of a lifetime whose block is still live, or whose free is unknown.
pub const NEVER: LogPosition = LogPosition::MAX;

/// A block from its alloc to its free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// The block's number.
    pub seq: NonZeroU64,
    /// The block, with what is known of it.
    pub block: Block,
    /// The position of its alloc; 0 if the log no longer has it.
    pub from: LogPosition,
    /// The position of its free.
    pub to: LogPosition,
    /// The block is known only from the peak: it was freed before the log begins.
    pub is_gone: bool,
}

impl Lifetime {
    /// Its alloc, if the log has it.
    pub fn alloc<'a>(&self, device: &'a DeviceSnapshot) -> Option<&'a Record> {
        device.records.get(self.from.checked_sub(1)? as usize)
    }

    /// Its free, if the log has it.
    pub fn free<'a>(&self, device: &'a DeviceSnapshot) -> Option<&'a Record> {
        device.records.get(self.to.checked_sub(1)? as usize).filter(|_| self.to != NEVER)
    }
}

/// The blocks of the log and of the peak, and the live blocks at the end. Each block occurs once, in the order of
/// allocation. Blocks without a number are left out.
#[derive(Clone, Debug, Default)]
pub struct Lifetimes(Vec<Lifetime>);

impl Lifetimes {
    /// All blocks that the device's recording knows.
    pub fn of(device: &DeviceSnapshot) -> Self {
        let mut found = LifetimeTable::of(device);
        let first = device.records.iter().find(|record| record.kind == RecordKind::Alloc);
        let first = first.and_then(|record| record.alloc_seq);
        let live = device.live.iter().map(|block| (block, false));
        let known = || live.clone().chain(device.peak.blocks.iter().map(|block| (block, true)));
        // Blocks older than the log are added first, so nearly all lifetimes are in order, and the last sort is
        // cheap.
        let mut older: Vec<(&Block, bool)> =
            known().filter(|(block, _)| first.is_none_or(|first| block.seq < Some(first))).collect();
        older.sort_by_key(|(block, _)| block.seq);
        older.into_iter().for_each(|(block, is_gone)| found.older(block, is_gone));
        for (position, record) in (1..NEVER - 16).zip(&device.records) {
            let (Some(seq), block) = (record.alloc_seq, record.block()) else { continue };
            let life = Lifetime { seq, block, from: 0, to: NEVER, is_gone: false };
            match record.kind {
                RecordKind::Alloc => *found.or_insert(life) = Lifetime { from: position, ..life },
                RecordKind::Free => {
                    let life = found.or_insert(life);
                    (life.to, life.is_gone) = (position, false);
                }
            }
        }
        known().for_each(|(block, is_gone)| found.older(block, is_gone));
        let mut lives = found.lives;
        lives.sort_by_key(|life| life.seq);
        Self(lives)
    }

    /// The block with this number.
    pub fn get(&self, seq: NonZeroU64) -> Option<&Lifetime> {
        self.0.binary_search_by_key(&seq, |life| life.seq).ok().and_then(|at| self.0.get(at))
    }

    /// All lifetimes.
    pub fn iter(&self) -> std::slice::Iter<'_, Lifetime> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Lifetimes {
    type Item = &'a Lifetime;
    type IntoIter = std::slice::Iter<'a, Lifetime>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Lifetimes by block number. The numbers of a log are dense, so a table finds most lifetimes. A hash map holds the
/// others, because the numbers of a hostile capture need not be dense.
struct LifetimeTable {
    lives: Vec<Lifetime>,
    first: u64,
    /// For each block number from `first` on: the index into `lives` plus one, or 0 if the block has no lifetime
    /// here.
    table: Vec<u32>,
    others: HashMap<NonZeroU64, usize>,
}

impl LifetimeTable {
    fn of(device: &DeviceSnapshot) -> Self {
        let last = device.records.iter().rfind(|record| record.kind == RecordKind::Alloc).map_or(0, Record::raw_seq);
        // Only the pages of the table that are used take memory.
        let length = last.min(4 * device.records.len() as u64 + 1024);
        let (first, table) = (last + 1 - length, vec![0; length as usize]);
        Self { lives: Vec::with_capacity(device.records.len() / 2), first, table, others: HashMap::default() }
    }

    /// Adds a block whose alloc is older than the log.
    fn older(&mut self, block: &Block, is_gone: bool) {
        if let Some(seq) = block.seq {
            self.or_insert(Lifetime { seq, block: *block, from: 0, to: NEVER, is_gone });
        }
    }

    fn or_insert(&mut self, life: Lifetime) -> &mut Lifetime {
        let Self { lives, first, table, others } = self;
        let place = life.seq.get().checked_sub(*first).and_then(|at| table.get_mut(usize::try_from(at).ok()?));
        let next = lives.len();
        let at = match place {
            Some(0) | None if next >= u32::MAX as usize => *others.entry(life.seq).or_insert(next),
            Some(place) => {
                if *place == 0 {
                    *place = next as u32 + 1;
                }
                *place as usize - 1
            }
            None => *others.entry(life.seq).or_insert(next),
        };
        if at == next {
            lives.push(life);
        }
        &mut lives[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::Story;

    #[test]
    fn a_block_is_known_once_from_its_alloc_to_its_free_as_far_as_the_log_reaches() {
        let mut story = Story::cpu();
        story.at(1).alloc("gone", 100).at(2).alloc("older", 2).at(3).alloc("stays", 4);
        story.at(4).free("gone").at(5).alloc("new", 3).at(6).free("older").at(7).alloc("last", 1).at(8).free("new");
        let data = story.overwritten(4).build();
        let device = &data.devices[0];
        let found: Vec<_> = Lifetimes::of(device).iter().map(|life| (life.seq.get(), life.from, life.to)).collect();
        assert_eq!(found, [(1, 0, NEVER), (2, 0, 2), (3, 0, NEVER), (4, 1, 4), (5, 3, NEVER)]);
        let gone: Vec<_> =
            Lifetimes::of(device).iter().filter(|life| life.is_gone).map(|life| life.seq.get()).collect();
        assert_eq!(gone, [1], "the peak alone knows it");
    }
}
