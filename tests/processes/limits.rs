//! Limits that whoever runs the program has set, and those that memtrace has.

use std::hint::black_box;

use crate::child::in_child;
use crate::support::{Raw, cpu};

/// A block from a stack that its number makes: at each step down one of two lines calls the next.
#[inline(never)]
fn at(number: u64, depth: u32) -> Raw {
    match (depth, number >> (depth % 64) & 1) {
        (0, _) => Raw::new(5000),
        (_, 0) => black_box(at(number, depth - 1)),
        _ => black_box(at(black_box(number), depth - 1)),
    }
}

#[test]
fn stacks_for_which_there_is_no_room_are_counted_for_the_session_that_lacks_them() {
    in_child(&[], || {
        let mut found = Vec::new();
        // More than there is room for; one of those that there was room for; one that is new.
        for numbers in [0..140_000, 0..1, 200_000..200_001] {
            let session = memtrace::builder().min_size(4096).max_entries(1000).stack_depth(256).start().unwrap();
            let kept = numbers.map(|number| at(number << 40, 250)).last();
            let snapshot = session.snapshot();
            let stack = cpu(&snapshot).live.last().unwrap().stack;
            found.push((snapshot.health.lost_stacks, snapshot.stacks.frames(stack).count() > 200));
            drop(kept);
        }
        assert!(found[0].0 > 0, "{found:?}");
        assert_eq!(found[1..], [(0, true), (1, false)]);
    });
}
