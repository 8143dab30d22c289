//! Every distinct stack once, as a small number.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::memory::{HASHER, OwnTable, OwnVec, System};
use super::unwind::CapturedStack;
use crate::snapshot::StackId;
use std::hash::BuildHasher;

const SHARD_BITS: u32 = 4;
pub(super) const SHARDS: usize = 1 << SHARD_BITS;
/// Addresses that one shard may hold: 16 MiB of them.
const MAX_ADDRESSES: usize = 1 << 21;

/// Process-wide and never emptied: the same program has the same few thousand stacks in every
/// recording, so a number stays good and a second recording starts warm.
#[derive(Debug)]
pub(crate) struct StackTable {
    shards: [Mutex<Shard>; SHARDS],
    refused: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Shard {
    index: OwnTable<u32>,
    /// (start, length) in `addresses`.
    stacks: OwnVec<(u32, u32)>,
    addresses: OwnVec<u64>,
}

impl StackTable {
    pub(crate) const fn new() -> Self {
        Self { shards: [const { Mutex::new(Shard::new()) }; SHARDS], refused: AtomicU64::new(0) }
    }

    /// The number of this stack; `NONE` if there is no room for a new one.
    pub(crate) fn intern(&self, stack: &CapturedStack) -> StackId {
        let addresses = stack.addresses();
        if addresses.is_empty() {
            return StackId::NONE;
        }
        let hash = HASHER.hash_one(addresses);
        let shard = hash as usize % SHARDS;
        match self.lock(shard).intern(hash, addresses) {
            Some(index) => StackId((index << SHARD_BITS | shard as u32) + 1),
            None => {
                self.refused.fetch_add(1, Relaxed);
                StackId::NONE
            }
        }
    }

    /// Copies the addresses of a stack to `out`, innermost first.
    pub(crate) fn copy_to(&self, stack: StackId, out: &mut Vec<u64>) {
        let Some(number) = stack.0.checked_sub(1) else { return };
        let shard = self.lock(number as usize % SHARDS);
        let Some(&(start, length)) = shard.stacks.get((number >> SHARD_BITS) as usize) else { return };
        let range = start as usize..(start + length) as usize;
        out.extend_from_slice(shard.addresses.get(range).unwrap_or(&[]));
    }

    pub(super) fn lock_all(&self) -> [MutexGuard<'_, Shard>; SHARDS] {
        std::array::from_fn(|shard| self.lock(shard))
    }

    /// How many stacks were not kept.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        // A panic cannot leave a shard half changed: nothing in it panics.
        self.shards[shard % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    const fn new() -> Self {
        Self { index: OwnTable::new_in(System), stacks: OwnVec::new_in(System), addresses: OwnVec::new_in(System) }
    }

    fn intern(&mut self, hash: u64, addresses: &[u64]) -> Option<u32> {
        let found = self.index.find(hash, |&i| slice(&self.stacks, &self.addresses, i) == addresses);
        if let Some(&index) = found {
            return Some(index);
        }
        self.reserve(addresses.len())?;
        let index = self.stacks.len() as u32;
        self.stacks.push((self.addresses.len() as u32, addresses.len() as u32));
        self.addresses.extend_from_slice(addresses);
        let (stacks, all) = (&self.stacks, &self.addresses);
        self.index.insert_unique(hash, index, |&i| HASHER.hash_one(slice(stacks, all, i)));
        Some(index)
    }

    fn reserve(&mut self, length: usize) -> Option<()> {
        if self.addresses.len() + length > MAX_ADDRESSES {
            return None;
        }
        self.addresses.try_reserve(length).ok()?;
        self.stacks.try_reserve(1).ok()?;
        let (stacks, all) = (&self.stacks, &self.addresses);
        self.index.try_reserve(1, |&i| HASHER.hash_one(slice(stacks, all, i))).ok()
    }
}

fn slice<'a>(stacks: &[(u32, u32)], addresses: &'a [u64], index: u32) -> &'a [u64] {
    let &(start, length) = stacks.get(index as usize).unwrap_or(&(0, 0));
    addresses.get(start as usize..(start + length) as usize).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_share_a_number_and_different_ones_do_not() {
        let table = StackTable::new();
        let stacks: Vec<CapturedStack> = (0..500u64).map(|n| CapturedStack::of(&[n % 250, n % 250 + 1, 7])).collect();
        let ids: Vec<StackId> = stacks.iter().map(|s| table.intern(s)).collect();
        assert_eq!(ids[..250], ids[250..]);
        let mut unique = ids[..250].to_vec();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 250);
        for (id, stack) in ids.iter().zip(&stacks) {
            let mut out = Vec::new();
            table.copy_to(*id, &mut out);
            assert_eq!(out, stack.addresses());
        }
    }

    #[test]
    fn the_empty_stack_is_none() {
        assert_eq!(StackTable::new().intern(&CapturedStack::of(&[])), StackId::NONE);
    }
}
