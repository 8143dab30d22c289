//! The lock-free index of stacks under every interleaving: a reader that finds a place reads the complete stack there, even while the
//! table grows.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release --manifest-path tests/loom/Cargo.toml
//! ```
#![cfg(loom)]

#[path = "../../../src/record/stacks/index.rs"]
mod index;

/// Replaces the recorder's allocations.
mod leak {
    pub(super) fn leaked<T>(count: usize, value: impl FnMut(usize) -> T) -> Option<&'static [T]> {
        Some(Box::leak((0..count).map(value).collect()))
    }
}

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;

use index::{EntryCount, StackIndex};

/// The index and the stacks. loom fails if a stack is read before or while it is written.
struct Stacks {
    index: StackIndex,
    places: [UnsafeCell<u64>; 4],
    writer: Mutex<EntryCount>,
}

impl Stacks {
    fn new() -> Arc<Self> {
        let places = std::array::from_fn(|_| UnsafeCell::new(0));
        Arc::new(Self { index: StackIndex::new(), places, writer: Mutex::new(EntryCount::new()) })
    }

    fn at(&self, place: u32) -> u64 {
        // SAFETY: loom checks that nobody writes meanwhile.
        self.places[place as usize].with(|value| unsafe { *value })
    }

    fn find(&self, value: u64) -> Option<u32> {
        self.index.find(value << 32, |place| self.at(place) == value)
    }

    fn intern(&self, value: u64) -> u32 {
        self.find(value).unwrap_or_else(|| self.add(value))
    }

    fn add(&self, value: u64) -> u32 {
        let mut count = self.writer.lock().unwrap();
        if let Some(place) = self.find(value) {
            return place;
        }
        assert!(self.index.reserve(&count));
        let place = (1..4).find(|place| self.at(*place) == 0).unwrap();
        // SAFETY: loom checks that nobody reads meanwhile.
        self.places[place as usize].with_mut(|at| unsafe { *at = value });
        self.index.add(&mut count, value << 32, place);
        place
    }
}

#[test]
fn two_threads_agree_on_the_number_of_a_stack() {
    loom::model(|| {
        let stacks = Stacks::new();
        let other = stacks.clone();
        let thread = thread::spawn(move || other.intern(7));
        let place = stacks.intern(7);
        assert_eq!(thread.join().unwrap(), place);
    });
}

#[test]
fn what_was_found_once_is_found_while_the_table_grows() {
    loom::model(|| {
        let stacks = Stacks::new();
        let place = stacks.intern(5);
        let other = stacks.clone();
        // The second stack makes the table grow. In a table of four entries 9 and 5 collide.
        let thread = thread::spawn(move || other.intern(9));
        assert_eq!(stacks.find(5), Some(place));
        assert!(stacks.find(9).is_none_or(|found| found != place && stacks.at(found) == 9));
        let second = thread.join().unwrap();
        assert_eq!((stacks.find(5), stacks.find(9)), (Some(place), Some(second)));
    });
}
