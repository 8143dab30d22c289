//! Joined blocks whose contents are put in another order, such as the caches of beam search. A copy takes the place of
//! the joined block, and the next join reads the copy.

use std::num::NonZeroU64;

use super::hint::Hint;
use super::lifetimes::HintedLifetime;
use crate::hashed::{HashMap, HashSet};
use crate::snapshot::{LogPosition, NEVER, ThreadId};

/// A joined block is freed at most this many records after the allocation of the next block, or of its copy.
pub(super) const SOON: LogPosition = 16;

/// The joined blocks. If a block has a copy, its lifetime ends when the copy is freed.
#[derive(Debug, Default)]
pub(super) struct Reordered {
    pub(super) joined: Vec<HintedLifetime>,
    /// The copy of each joined block that has one.
    pub(super) copies: HashMap<NonZeroU64, NonZeroU64>,
}

impl Reordered {
    pub(super) fn of(lives: &[HintedLifetime], is_wanted: impl Fn(&HintedLifetime) -> bool) -> Self {
        let mut found = Self::default();
        let mut movers: HashMap<(ThreadId, u64), Vec<&HintedLifetime>> = HashMap::default();
        for life in lives.iter().filter(|life| life.from > 0) {
            match life.hint {
                Hint::Forward if life.of_stack.moves => movers.entry((life.thread, life.size)).or_default().push(life),
                Hint::Join if is_wanted(life) => found.joined.push(*life),
                _ => {}
            }
        }
        let mut taken = HashSet::default();
        for joined in &mut found.joined {
            let movers = movers.get(&(joined.thread, joined.size)).map_or(&[][..], Vec::as_slice);
            if let Some(copy) = copy_of(joined, movers, &taken) {
                taken.insert(copy.seq);
                joined.to = copy.to;
                found.copies.insert(joined.seq, copy.seq);
            }
        }
        found
    }
}

/// The first block that was copied shortly before the joined block was freed, and that outlives it.
fn copy_of<'a>(
    joined: &HintedLifetime,
    movers: &[&'a HintedLifetime],
    taken: &HashSet<NonZeroU64>,
) -> Option<&'a HintedLifetime> {
    let near = movers.get(movers.partition_point(|copy| copy.from.saturating_add(SOON) < joined.to)..)?;
    let mut before = near.iter().take_while(|copy| joined.to != NEVER && copy.from < joined.to);
    before.find(|copy| joined.from < copy.from && joined.to < copy.to && !taken.contains(&copy.seq)).copied()
}
