//! Operands of operator calls, from recorded uses: the blocks from which a call computed its result.

use std::num::NonZeroU64;

use super::super::{Attribution, operator};
use super::kinds;
use crate::hashed::HashMap;
use crate::snapshot::{DeviceSnapshot, Lifetime, Lifetimes, LogPosition, StackId};

/// The most blocks that are examined to find the operands of a call behind its temporaries. In candle's convolutions,
/// there are five.
const MOST_LOOKED_AT: usize = 32;

/// The origin of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Birth {
    /// A call of the operator of this arm, outside of backward passes; `None` if there is no such arm, as for data.
    Forward(Option<&'static str>),
    Backward,
    Unknown,
}

pub(super) struct Operands<'a> {
    data: &'a Attribution<'a>,
    device: &'a DeviceSnapshot,
    lifetimes: &'a Lifetimes,
    births: HashMap<StackId, Birth>,
    /// Calls by each operand and by their result. Calls whose result is freed are removed during lookups.
    users: HashMap<NonZeroU64, Vec<NonZeroU64>>,
    /// Calls whose operands are not known, by arm.
    unknown: HashMap<&'static str, Vec<NonZeroU64>>,
    /// Number of blocks, in the order of their allocation, that the two maps already take into account.
    indexed: usize,
}

impl<'a> Operands<'a> {
    pub(super) fn of(data: &'a Attribution<'a>, device: &'a DeviceSnapshot, lifetimes: &'a Lifetimes) -> Self {
        let (births, users, unknown) = (HashMap::default(), HashMap::default(), HashMap::default());
        Self { data, device, lifetimes, births, users, unknown, indexed: 0 }
    }

    pub(super) fn life(&self, block: NonZeroU64) -> Option<&'a Lifetime> {
        self.lifetimes.get(block)
    }

    pub(super) fn birth(&mut self, stack: StackId) -> Birth {
        let data = self.data;
        *self.births.entry(stack).or_insert_with(|| match operator(data, stack) {
            _ if stack == StackId::NONE => Birth::Unknown,
            Some(operator) if operator.is_backward => Birth::Backward,
            found => Birth::Forward(found.and_then(|operator| kinds::arm_of(operator.leaf))),
        })
    }

    /// The blocks from which a block was computed; `None` if they are unknown. The list is empty if the block was
    /// filled with a constant or copied from the host.
    pub(super) fn direct(&self, block: NonZeroU64) -> Option<Vec<NonZeroU64>> {
        let uses = self.device.uses_of(Some(block));
        let uses = uses.filter(|uses| uses.known_first().is_some() || uses.is_unused())?;
        Some(uses.operands.of(block)?.collect())
    }

    /// The operands of a forward call, in the order of its kernel's arguments. A block that is already freed was a
    /// temporary of the call (the graph keeps operands), so the operands of this temporary are used instead.
    pub(super) fn of_call(&self, call: NonZeroU64, now: LogPosition) -> Option<Vec<NonZeroU64>> {
        let (mut found, mut open) = (Vec::new(), vec![call]);
        for _ in 0..MOST_LOOKED_AT {
            let Some(block) = open.pop() else { return Some(found).filter(|found| !found.is_empty()) };
            if block != call && self.life(block)?.to > now {
                if !found.contains(&block) {
                    found.push(block);
                }
                continue;
            }
            let operands = self.direct(block)?;
            open.extend(operands.into_iter().rev());
        }
        None
    }

    /// The only live call of this arm and size that has all these blocks as operands or as its result. Also `None` if
    /// there is another such call whose operands are not known.
    pub(super) fn only_call(
        &mut self,
        (arm, bytes): (&str, u64),
        blocks: &[NonZeroU64],
        now: LogPosition,
    ) -> Option<NonZeroU64> {
        self.index_until(now);
        let lifetimes = self.lifetimes;
        let is_live = |call: &NonZeroU64| lifetimes.get(*call).is_some_and(|life| life.to > now);
        let has_size = |call: &NonZeroU64| lifetimes.get(*call).is_some_and(|life| life.block.size == bytes);
        if let Some(unknown) = self.unknown.get_mut(arm) {
            unknown.retain(is_live);
            if unknown.iter().any(has_size) {
                return None;
            }
        }
        let rarest = blocks.iter().min_by_key(|block| self.users.get(block).map_or(0, Vec::len))?;
        let users = self.users.get_mut(rarest)?;
        users.retain(is_live);
        let fits = |call: &&NonZeroU64| has_size(call) && self.is_call(**call, arm, blocks, now);
        let users = self.users.get(rarest)?;
        let mut fitting = users.iter().filter(fits);
        fitting.next().copied().filter(|_| fitting.next().is_none())
    }

    fn is_call(&self, call: NonZeroU64, arm: &str, blocks: &[NonZeroU64], now: LogPosition) -> bool {
        let birth = self.life(call).and_then(|life| self.births.get(&life.block.stack));
        let has = |operands: Vec<NonZeroU64>| blocks.iter().all(|block| *block == call || operands.contains(block));
        matches!(birth, Some(Birth::Forward(Some(of))) if *of == arm) && self.of_call(call, now).is_some_and(has)
    }

    /// Adds the forward calls before this position.
    fn index_until(&mut self, now: LogPosition) {
        let lifetimes = self.lifetimes;
        let rest = lifetimes.iter().skip(self.indexed).take_while(|life| life.from < now);
        for life in rest {
            self.indexed += 1;
            let Birth::Forward(Some(arm)) = self.birth(life.block.stack) else { continue };
            if life.to <= now {
                continue;
            }
            match self.of_call(life.seq, now) {
                Some(operands) => operands
                    .into_iter()
                    .chain([life.seq])
                    .for_each(|operand| self.users.entry(operand).or_default().push(life.seq)),
                None => self.unknown.entry(arm).or_default().push(life.seq),
            }
        }
    }
}
