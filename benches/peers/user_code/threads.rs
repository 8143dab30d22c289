//! Eight threads that allocate, replace and free at the same time, and hand blocks over to each other.

use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use candle_core::Result;

use crate::Iteration;
use crate::blocks::Random;

const THREADS: usize = 8;
/// Live blocks of each thread.
const LIVE: usize = 4096;
/// One in so many blocks that are replaced is handed to the next thread, which frees it.
const HANDED_OVER: u64 = 4;
/// A thread frees what it was handed after so many replacements.
const OFTEN: usize = 64;

/// Replaces so many blocks, all threads together.
pub(crate) struct Threads {
    pub(crate) count: usize,
}

type Mailbox = Mutex<Vec<Vec<u8>>>;

impl Iteration for Threads {
    fn iteration(&mut self) -> Result<()> {
        let count = self.count / THREADS;
        let mailboxes: Vec<Mailbox> = (0..THREADS).map(|_| Mutex::default()).collect();
        std::thread::scope(|scope| {
            for number in 0..THREADS {
                let (own, next) = (&mailboxes[number], &mailboxes[(number + 1) % THREADS]);
                scope.spawn(move || replace(number, count, own, next));
            }
        });
        Ok(())
    }
}

fn replace(number: usize, count: usize, own: &Mailbox, next: &Mailbox) {
    let mut random = Random::new(42 + number as u64);
    let mut live: Vec<Vec<u8>> = (0..LIVE).map(|_| random.block()).collect();
    for step in 0..count {
        let at = random.below(LIVE as u64) as usize;
        let old = std::mem::replace(&mut live[at], random.block());
        if random.below(HANDED_OVER) == 0 {
            next.lock().unwrap_or_else(PoisonError::into_inner).push(old);
        }
        if step % OFTEN == 0 {
            drop(std::mem::take(&mut *own.lock().unwrap_or_else(PoisonError::into_inner)));
        }
    }
    drop(black_box(live));
}
