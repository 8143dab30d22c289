//! The rule cache with one thread and with many.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::record::unwind::fast::cache::{ADDRESS_BITS, Cache};
use crate::record::unwind::fast::rule::{Base, Rule};

fn rule_of(address: u64) -> Rule {
    Rule::new(Base::Sp, (address % 60_000) as i64 * 8, Some(-8 * (address % 100) as i64)).unwrap()
}

fn cache() -> Box<Cache> {
    Box::new(Cache::new())
}

/// Numbers that look like addresses.
fn addresses(count: u64) -> impl Iterator<Item = u64> + Clone {
    (1..=count).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - ADDRESS_BITS))
}

#[test]
fn what_is_found_belongs_to_the_address_however_full_the_cache_is() {
    let cache = cache();
    for address in addresses(100_000) {
        assert_eq!(cache.find(address), None);
        cache.insert(address, rule_of(address));
        assert_eq!(cache.find(address), Some(rule_of(address)));
    }
    let kept = addresses(100_000).filter_map(|address| Some((address, cache.find(address)?)));
    let kept: Vec<(u64, Rule)> = kept.collect();
    kept.iter().for_each(|(address, rule)| assert_eq!(*rule, rule_of(*address)));
    assert!(kept.len() > 30_000, "{}", kept.len());
}

#[test]
fn ten_thousand_addresses_of_one_program_are_kept() {
    let cache = cache();
    let calls = || (0..10_000u64).map(|n| 0x5555_5560_0000 + n * 37 + n % 7);
    calls().for_each(|address| cache.insert(address, rule_of(address)));
    let kept = calls().filter(|address| cache.find(*address).is_some()).count();
    assert!(kept > 9_900, "{kept}");
}

#[test]
fn neighbours_and_addresses_that_differ_in_one_bit_are_told_apart() {
    let cache = cache();
    let address = 0x7fff_f7d5_1234;
    cache.insert(address, rule_of(address));
    for bit in 0..ADDRESS_BITS {
        assert_eq!(cache.find(address ^ 1 << bit), None, "bit {bit}");
    }
}

#[test]
fn what_stays_is_not_forgotten() {
    let cache = cache();
    cache.insert(0x5555_0000_1000, rule_of(1).that_stays());
    cache.insert(0x7fff_0000_1000, rule_of(2));
    cache.insert(0x7fff_0000_2000, Rule::UNPROVEN);
    cache.forget_what_does_not_stay();
    assert_eq!(cache.find(0x5555_0000_1000), Some(rule_of(1).that_stays()));
    assert_eq!((cache.find(0x7fff_0000_1000), cache.find(0x7fff_0000_2000)), (None, None));
}

#[test]
fn readers_see_whole_entries_while_one_thread_writes() {
    let (cache, over) = (cache(), AtomicBool::new(false));
    // More addresses than fit, so that entries are replaced all the time.
    let addresses = addresses(40_000);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    for address in addresses.clone() {
                        assert!(cache.find(address).is_none_or(|rule| rule == rule_of(address)));
                    }
                }
            });
        }
        for _ in 0..20 {
            addresses.clone().for_each(|address| cache.insert(address, rule_of(address)));
            cache.forget_what_does_not_stay();
        }
        over.store(true, Relaxed);
    });
}
