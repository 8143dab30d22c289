//! Return address → rule, for the whole process.
//!
//! One word holds an address and its rule, so whoever reads it has a pair that belongs together: there
//! is no lock, no order between words and no torn entry.
//!
//! The lower 12 bits of an address, mixed with the next ones, are its bucket, the others stand between
//! the bits of its rule. So an address is never taken for another.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::rule::{NOT_A_RULE, Rule, STAYS};

/// Addresses of a process on x86_64 with four levels of pages.
pub(super) const ADDRESS_BITS: u32 = 47;
const BUCKET_BITS: u32 = 12;
const BUCKETS: usize = 1 << BUCKET_BITS;
const WAYS: usize = 8;
const _: () = assert!(NOT_A_RULE == (1 << ADDRESS_BITS) - (1 << BUCKET_BITS));

/// One line of the processor's cache.
#[derive(Debug)]
#[repr(align(64))]
struct Bucket([AtomicU64; WAYS]);

/// 256 KiB, of which the system gives what is touched.
#[derive(Debug)]
pub(super) struct Cache {
    buckets: [Bucket; BUCKETS],
}

impl Cache {
    pub(super) const fn new() -> Self {
        Self { buckets: [const { Bucket([const { AtomicU64::new(0) }; WAYS]) }; BUCKETS] }
    }

    /// The rule for an address, of at most [`ADDRESS_BITS`], if it lies where it is looked for first and stays.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn find_at_once(&self, address: u64) -> Option<Rule> {
        let Bucket(entries) = self.buckets.get(bucket_of(address))?;
        let bits = entries.get(way_of(address))?.load(Relaxed) ^ (address & NOT_A_RULE);
        (bits & (NOT_A_RULE | STAYS) == STAYS).then_some(Rule::of_bits(bits))
    }

    /// The address must have at most [`ADDRESS_BITS`].
    pub(super) fn find(&self, address: u64) -> Option<Rule> {
        let Bucket(entries) = self.buckets.get(bucket_of(address))?;
        entries.iter().find_map(|entry| rule_of(entry, address))
    }

    /// Enters a rule; where there is no room, another one goes. Only one thread at a time does this.
    pub(super) fn insert(&self, address: u64, rule: Rule) {
        let Some(Bucket(entries)) = self.buckets.get(bucket_of(address)) else { return };
        let first = entries.get(way_of(address));
        let is_free = |entry: &&AtomicU64| entry.load(Relaxed) == 0;
        let free = first.filter(is_free).or_else(|| entries.iter().find(is_free));
        if let Some(entry) = free.or(first) {
            entry.store(address & NOT_A_RULE | rule.bits(), Relaxed);
        }
    }

    /// Forgets what was learnt of modules that may have been unloaded.
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
    // Relaxed: an entry says all there is to know by itself.
    let bits = entry.load(Relaxed) ^ (address & NOT_A_RULE);
    (bits & NOT_A_RULE == 0).then_some(Rule::of_bits(bits))
}

/// Where in its bucket an address is looked for first.
#[inline]
fn way_of(address: u64) -> usize {
    (address >> BUCKET_BITS) as usize % WAYS
}

#[inline]
fn bucket_of(address: u64) -> usize {
    (address ^ address >> BUCKET_BITS) as usize % BUCKETS
}
