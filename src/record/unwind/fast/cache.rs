//! Lock-free set-associative cache from return addresses to rules, for the whole process.
//!
//! An entry is one word with address and rule, so it cannot be torn and needs no memory ordering. A bucket of eight
//! entries is one cache line. The lower 12 bits of an address, mixed with the next ones, select the bucket. The other
//! bits are stored between the bits of the rule, so an address is never confused with another one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::rule::{NOT_A_RULE, Rule, STAYS};

/// Number of bits of a return address's key; see `arch::key`.
pub(super) const ADDRESS_BITS: u32 = 47;
const BUCKET_BITS: u32 = 12;
const BUCKETS: usize = 1 << BUCKET_BITS;
const WAYS: usize = 8;
const _: () = assert!(NOT_A_RULE == (1 << ADDRESS_BITS) - (1 << BUCKET_BITS));

/// One cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Bucket([AtomicU64; WAYS]);

/// 256 KiB. Pages that are never used take no memory.
#[derive(Debug)]
pub(super) struct Cache {
    buckets: [Bucket; BUCKETS],
}

impl Cache {
    pub(super) const fn new() -> Self {
        Self { buckets: [const { Bucket([const { AtomicU64::new(0) }; WAYS]) }; BUCKETS] }
    }

    /// The rule for an address (at most [`ADDRESS_BITS`]), if it is in the address's preferred entry and holds for
    /// ever.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn find_at_once(&self, address: u64) -> Option<Rule> {
        let Bucket(entries) = self.buckets.get(bucket_of(address))?;
        let bits = entries.get(way_of(address))?.load(Relaxed) ^ (address & NOT_A_RULE);
        (bits & (NOT_A_RULE | STAYS) == STAYS).then_some(Rule::of_bits(bits))
    }

    /// `address` must have at most [`ADDRESS_BITS`].
    pub(super) fn find(&self, address: u64) -> Option<Rule> {
        let Bucket(entries) = self.buckets.get(bucket_of(address))?;
        entries.iter().find_map(|entry| rule_of(entry, address))
    }

    /// Adds a rule, perhaps in place of another one. Only one thread at a time may call this.
    pub(super) fn insert(&self, address: u64, rule: Rule) {
        let Some(Bucket(entries)) = self.buckets.get(bucket_of(address)) else { return };
        let first = entries.get(way_of(address));
        let is_free = |entry: &&AtomicU64| entry.load(Relaxed) == 0;
        let free = first.filter(is_free).or_else(|| entries.iter().find(is_free));
        if let Some(entry) = free.or(first) {
            entry.store(address & NOT_A_RULE | rule.bits(), Relaxed);
        }
    }

    /// Drops the rules of objects that may have been unloaded.
    pub(super) fn forget_what_does_not_stay(&self) {
        let entries = self.buckets.iter().flat_map(|Bucket(entries)| entries);
        for entry in entries {
            let bits = entry.load(Relaxed);
            if bits != 0 && !Rule::of_bits(bits).stays() {
                entry.store(0, Relaxed);
            }
        }
    }
}

#[cfg_attr(not(debug_assertions), inline(always))]
fn rule_of(entry: &AtomicU64, address: u64) -> Option<Rule> {
    // Relaxed: an entry is complete in itself.
    let bits = entry.load(Relaxed) ^ (address & NOT_A_RULE);
    (bits & NOT_A_RULE == 0).then_some(Rule::of_bits(bits))
}

/// The preferred entry of an address in its bucket.
#[inline]
fn way_of(address: u64) -> usize {
    (address >> BUCKET_BITS) as usize % WAYS
}

#[inline]
fn bucket_of(address: u64) -> usize {
    (address ^ address >> BUCKET_BITS) as usize % BUCKETS
}
