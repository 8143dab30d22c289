//! The queue of heap events under every interleaving: each message comes out once, whole, in the order of the positions, and the sums
//! of weights agree.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release --manifest-path tests/loom/Cargo.toml
//! ```
#![cfg(loom)]

#[path = "../../../src/record/recorder/queue.rs"]
#[allow(dead_code, reason = "the recorder uses all of it")]
mod queue;

use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::Relaxed;
use loom::sync::{Arc, Mutex};
use loom::thread;

use queue::{Message, Position, Queue};

/// The queue, and what its lock protects: the values that came out.
struct Sent {
    queue: Queue,
    taken: Mutex<Vec<u64>>,
}

impl Sent {
    fn new() -> Arc<Self> {
        Arc::new(Self { queue: Queue::new(), taken: Mutex::new(Vec::new()) })
    }

    /// Sends a value; takes what is there while its place is not free, as the recorder does.
    fn send(&self, value: u64) -> Position {
        let at = self.queue.position(value as i64);
        while !self.queue.is_free(at) {
            self.take();
            thread::yield_now();
        }
        self.queue.send(at, &[value, !value]);
        at
    }

    fn take(&self) {
        let mut taken = self.taken.lock().unwrap();
        let (mut at, end) = (self.queue.first(), self.queue.end());
        while at.is_before(end) {
            let Some(message) = self.queue.take(at) else { break };
            let [value, opposite]: Message = message;
            assert_eq!(value, !opposite, "a message that is not whole");
            taken.push(value);
            at = at.after(value as i64);
        }
        self.queue.set_first(at);
    }

    /// All that were sent, once their threads have ended.
    fn all(&self) -> Vec<u64> {
        self.take();
        assert!(self.queue.is_empty());
        self.taken.lock().unwrap().clone()
    }
}

#[test]
fn each_message_comes_out_once_and_those_of_a_thread_in_their_order() {
    loom::model(|| {
        let sent = Sent::new();
        let other = Arc::clone(&sent);
        let thread = thread::spawn(move || [1, 2].map(|value| other.send(value)));
        sent.send(10);
        sent.take();
        let last = thread.join().unwrap()[1];
        let all = sent.all();
        let mut sorted = all.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [1, 2, 10]);
        assert!(all.iter().position(|value| *value == 1) < all.iter().position(|value| *value == 2));
        let before: u64 = all.iter().take_while(|value| **value != 2).sum();
        assert_eq!(last.sum(), before as i64);
    });
}

#[test]
fn a_full_ring_holds_its_senders_up_and_loses_nothing() {
    loom::model(|| {
        let sent = Sent::new();
        let other = Arc::clone(&sent);
        let thread = thread::spawn(move || [1, 2, 3].map(|value| other.send(value)));
        sent.take();
        thread.join().unwrap();
        assert_eq!(sent.all(), [1, 2, 3]);
    });
}

/// Who sends looks afterwards whether anybody still takes messages; who stops taking them looks afterwards whether there are any.
#[test]
fn no_message_is_left_behind_when_nobody_takes_any_more() {
    loom::model(|| {
        let (sent, taking) = (Sent::new(), Arc::new(AtomicBool::new(true)));
        let (other, is_taking) = (Arc::clone(&sent), Arc::clone(&taking));
        let thread = thread::spawn(move || {
            other.send(1);
            if !is_taking.load(Relaxed) {
                other.take();
            }
        });
        taking.store(false, Relaxed);
        let end = sent.queue.end();
        sent.take();
        while sent.queue.first().is_before(end) {
            thread::yield_now();
            sent.take();
        }
        thread.join().unwrap();
        assert!(sent.queue.is_empty());
    });
}
