//! The steps of backward passes, with their calls. A *step* is what a pass does for one node of the graph.

use std::collections::HashSet;
use std::num::NonZeroU64;
use std::ops::Range;

use super::details::{is_detail, is_sum};
use crate::hashed::{HashMap, by_key};
use crate::recording::DeviceView;
use crate::snapshot::Lifetime;

/// At most this many blocks are searched for a gradient before its use.
const NEAR: usize = 1024;

/// The blocks of backward passes whose forward call is known, by the positions of their allocs.
pub(super) struct Steps {
    pub(super) by_forward: HashMap<NonZeroU64, Vec<usize>>,
    /// The position of each block's alloc, with the block's forward call, in the order of the log.
    pub(super) all: Vec<(usize, NonZeroU64)>,
}

impl Steps {
    pub(super) fn of(device: &DeviceView<'_>) -> Self {
        let place = |life: &Lifetime| {
            let forward = device.pairings().get(Some(life.seq))?.forward;
            Some((life.from.checked_sub(1)? as usize, forward))
        };
        let all: Vec<(usize, NonZeroU64)> = device.lifetimes().iter().filter_map(place).collect();
        let by_forward = by_key(all.iter().map(|(at, forward)| (*forward, *at)));
        Self { by_forward, all }
    }

    /// The first and the last block of the steps of these calls, and the call of the first step. `None` if a step of
    /// another call is in between.
    pub(super) fn within(&self, calls: &HashSet<NonZeroU64>) -> Option<(usize, usize, NonZeroU64)> {
        let of = |call: &NonZeroU64| {
            let places = self.by_forward.get(call)?;
            Some((*places.first()?, *places.last()?, *call))
        };
        let (first, _, call) = calls.iter().filter_map(of).min()?;
        let last = calls.iter().filter_map(of).map(|(_, last, _)| last).max()?;
        let between = self.all.get(self.after(first)..)?.iter().take_while(|(at, _)| *at <= last);
        between.into_iter().all(|(_, forward)| calls.contains(forward)).then_some((first, last, call))
    }

    /// The gradient with which the steps in `pass` begin: the last live block of this size that earlier steps made.
    pub(super) fn gradient_before<'d>(
        &self,
        device: &'d DeviceView<'_>,
        pass: &Range<usize>,
        size: u64,
    ) -> Option<&'d Lifetime> {
        let before = self.all.get(..self.all.partition_point(|(at, _)| *at < pass.start))?.iter().rev().take(NEAR);
        let lives = before.filter_map(|(at, _)| device.lifetimes().get(device.records.get(*at)?.alloc_seq?));
        let mut of_size = lives.filter(|life| life.block.size == size && life.to as usize > pass.start);
        of_size.find(|life| is_sum(device, life) && is_detail(device, life, pass.end) != Some(false))
    }

    /// The index of the first step after this position.
    pub(super) fn after(&self, at: usize) -> usize {
        self.all.partition_point(|(place, _)| *place <= at)
    }
}
