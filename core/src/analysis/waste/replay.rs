//! Replays the log with moved allocs and frees.

use std::num::NonZeroU64;
use std::rc::Rc;

use crate::analysis::absence::{Absence, LogChange, changes_of};
use crate::analysis::log;
use crate::snapshot::{BlockUse, BlockUses, DeviceSnapshot, IdleTime, Lifetimes, NEVER, Record, RecordKind};

/// A site's row, the reduction of the peak in addition to the rows before it, and the resulting peak.
pub(super) type ChosenRow<T> = (T, u64, u64);

/// The most sites that are tried.
const MOST_SITES: usize = 24;

pub(super) fn merged(one: &[LogChange], other: &[LogChange]) -> Vec<LogChange> {
    let mut all = [one, other].concat();
    all.sort_unstable();
    all
}

/// Changes of the total of live bytes at one record of the log, made one after the other.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    at: usize,
    when: When,
    changes: Vec<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum When {
    First,
    Before,
    With,
}

impl Stop {
    /// Changes before the record.
    pub(super) fn before(at: usize, changes: Vec<i64>) -> Self {
        Self { at, when: When::Before, changes }
    }

    /// The same changes, but made before those of all other stops at the record.
    pub(super) fn first(self) -> Self {
        Self { when: When::First, ..self }
    }

    /// A correction that is added to the record's own change.
    pub(super) fn with(at: usize, change: i64) -> Self {
        Self { at, when: When::With, changes: vec![change] }
    }
}

/// The log, to be replayed with changes of its totals.
#[derive(Debug)]
pub(in crate::analysis) struct LogReplay {
    at_start: i64,
    steps: Vec<i64>,
    lives: Rc<Lifetimes>,
    pub(super) times: Vec<u64>,
}

impl LogReplay {
    /// `None` if the log does not reproduce the peak.
    pub(super) fn with(device: &DeviceSnapshot, lives: &Rc<Lifetimes>) -> Option<Self> {
        if device.overwritten > 0 || !device.gaps.is_empty() || device.is_sample() {
            return None;
        }
        Self::unchecked(device, lives).filter(|log| u64::try_from(log.peak(&[])) == Ok(device.peak.bytes))
    }

    /// A log that may not reproduce the peak. `None` if its totals are too large.
    pub(in crate::analysis) fn unchecked(device: &DeviceSnapshot, lives: &Rc<Lifetimes>) -> Option<Self> {
        let at_start = i64::try_from(log::allocated_at_start(device)).ok()?;
        let steps = device.records.iter().map(|record| log::change(device, record)).collect();
        let times = device.records.iter().map(|record| record.time_ns).collect();
        Some(Self { at_start, steps, lives: lives.clone(), times })
    }

    /// Chooses sites greedily: each is the one that reduces the peak most after the sites chosen before it are applied.
    /// Only the first [`MOST_SITES`] are tried. Returns at most `most` rows that save at least `least` bytes each, and
    /// `changes` with those of the chosen sites.
    pub(super) fn greedy<T>(
        &self,
        mut changes: Vec<LogChange>,
        sites: Vec<(T, Vec<Absence>)>,
        (least, most): (u64, usize),
    ) -> (Vec<ChosenRow<T>>, Vec<LogChange>) {
        let sites = sites.into_iter().take(MOST_SITES);
        let mut sites: Vec<_> = sites.map(|(row, absences)| (row, changes_of(&absences))).collect();
        let (mut peak, mut rows) = (self.peak(&changes), Vec::new());
        while rows.len() < most {
            let with = |own: &[LogChange]| self.peak(&merged(&changes, own));
            let best = sites.iter().enumerate().map(|(at, (_, own))| (with(own), at)).min();
            let is_enough = |without: i64| peak - without >= (least as i64).max(1);
            let Some((without, at)) = best.filter(|(without, _)| is_enough(*without)) else { break };
            let (row, own) = sites.remove(at);
            changes = merged(&changes, &own);
            rows.push((row, (peak - without) as u64, without.max(0) as u64));
            peak = without;
        }
        (rows, changes)
    }

    /// The highest total with these changes, which are sorted by record.
    pub(in crate::analysis) fn peak(&self, changes: &[LogChange]) -> i64 {
        self.totals(changes).max().map_or(self.at_start, |peak| peak.max(self.at_start))
    }

    /// The total after each record with these changes, which are sorted by record.
    pub(super) fn totals<'a>(&'a self, changes: &'a [LogChange]) -> impl Iterator<Item = i64> + 'a {
        let (mut total, mut changes) = (self.at_start, changes.iter().peekable());
        self.steps.iter().enumerate().map(move |(at, step)| {
            total += step;
            while let Some((_, change)) = changes.next_if(|(from, _)| *from <= at) {
                total += change;
            }
            total
        })
    }

    /// The highest total in bytes, with changes in any order.
    pub(super) fn peak_with(&self, changes: impl Iterator<Item = LogChange>) -> u64 {
        let mut changes: Vec<LogChange> = changes.collect();
        changes.sort_unstable();
        u64::try_from(self.peak(&changes)).unwrap_or(0)
    }

    /// The highest total in bytes with these stops. It may lie between two changes of one stop.
    pub(super) fn peak_with_stops(&self, mut stops: Vec<Stop>) -> u64 {
        stops.sort_by_key(|stop| (stop.at, stop.when));
        let (mut total, mut peak, mut stops) = (self.at_start, self.at_start, stops.into_iter().peekable());
        for at in 0..=self.steps.len() {
            let mut step = self.steps.get(at).copied().unwrap_or(0);
            while let Some(stop) = stops.next_if(|stop| stop.at <= at) {
                if stop.when == When::With {
                    step += stop.changes.iter().sum::<i64>();
                    continue;
                }
                for change in stop.changes {
                    total += change;
                    peak = peak.max(total);
                }
            }
            total += step;
            peak = peak.max(total);
        }
        u64::try_from(peak).unwrap_or(0)
    }

    /// The position of a block's alloc in the log, from 0.
    pub(super) fn allocated_at(&self, seq: NonZeroU64) -> Option<usize> {
        self.lives.get(seq).and_then(|life| life.from.checked_sub(1)).map(|at| at as usize)
    }

    pub(super) fn freed_at(&self, seq: NonZeroU64) -> Option<usize> {
        self.lives.get(seq).filter(|life| life.to != NEVER).map(|life| life.to as usize - 1)
    }

    /// The number and the size of each block that is live before a record. Blocks from before the log have no number.
    pub(super) fn live_before(
        &self,
        device: &DeviceSnapshot,
        at: usize,
    ) -> impl Iterator<Item = (Option<NonZeroU64>, u64)> {
        let of_log = device.records.iter().take(at).filter(|record| record.kind == RecordKind::Alloc);
        let lives =
            move |record: &&Record| record.alloc_seq.and_then(|seq| self.freed_at(seq)).is_none_or(|freed| freed >= at);
        let older = device.records.iter().skip(at).filter(|record| {
            let is_of_log = record.alloc_seq.is_some_and(|seq| self.allocated_at(seq).is_some());
            record.kind == RecordKind::Free && !is_of_log
        });
        let still = device.live.iter().filter(|block| block.seq.is_none_or(|seq| self.allocated_at(seq).is_none()));
        let (of_log, older) = (of_log.filter(lives), older.map(|record| (None, record.size)));
        of_log.map(|record| (record.alloc_seq, record.size)).chain(older).chain(still.map(|block| (None, block.size)))
    }

    /// The first record after a use.
    pub(super) fn after(&self, used: &BlockUse) -> Option<usize> {
        Some(self.before(used)? + 1)
    }

    /// The last record before a use.
    fn before(&self, used: &BlockUse) -> Option<usize> {
        let alloc = self.allocated_at(NonZeroU64::new(used.after_alloc)?)?;
        Some(alloc + used.frees_after as usize)
    }

    /// Records between which the block is absent if it is freed right after its last use.
    pub(super) fn past_last_use(&self, uses: &BlockUses) -> Option<(usize, Option<usize>)> {
        let freed = self.freed_at(uses.seq)?;
        let from = self.after(uses.known_last()?)?;
        (from < freed).then_some((from, Some(freed)))
    }

    pub(super) fn never_used(&self, uses: &BlockUses) -> Option<(usize, Option<usize>)> {
        let from = self.allocated_at(uses.seq).filter(|_| uses.is_unused())?;
        Some((from, self.freed_at(uses.seq)))
    }

    /// Records between which the block is absent if it is allocated right before its first use.
    pub(super) fn early(&self, uses: &BlockUses) -> Option<(usize, Option<usize>)> {
        let from = self.allocated_at(uses.seq)?;
        let until = self.before(uses.known_first()?)?;
        (from < until).then_some((from, Some(until)))
    }

    /// Records between which the block is absent if it is removed after the use that begins a gap and restored before
    /// the use that ends it. Of a use, only the last alloc before it is known, so the block is absent from right after
    /// the first use's alloc to the alloc of the second use.
    pub(super) fn while_idle(&self, idle: &IdleTime) -> Option<(usize, usize)> {
        let at = |alloc: u64| self.allocated_at(NonZeroU64::new(alloc)?);
        let (from, until) = (at(idle.from_alloc)? + 1, at(idle.to_alloc)?);
        (from < until).then_some((from, until))
    }
}
