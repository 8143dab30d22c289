//! Small numbers for streams.

use std::cell::Cell;
use std::sync::Mutex;

use super::words::Stream;
use crate::record::fork;
use crate::record::lock::lock;
use crate::record::memory::{OwnMap, own_map};
use crate::snapshot::ThreadId;

/// Context, handle, and the thread for the stream that every thread has of its own.
type Key = (usize, usize, u32);

static NUMBERS: Mutex<OwnMap<Key, u32>> = Mutex::new(own_map());

thread_local! {
    /// The last answer; mostly it is the next one, too. Const and without a destructor.
    static LAST: Cell<(Key, u32)> = const { Cell::new(((0, 0, 0), 0)) };
}

/// The number of a stream of a context, from 1 in the order in which they are first seen; 0 if there is no
/// memory for one more. A handle that is used again after its stream was destroyed keeps its number.
pub(super) fn number(context: usize, stream: Stream, thread: ThreadId) -> u32 {
    let thread = if stream == Stream::PER_THREAD { thread.number() } else { 0 };
    let key = (context, stream.handle(), thread);
    let (last, number) = LAST.get();
    if last == key && number != 0 {
        return number;
    }
    let number = look_up(key);
    LAST.set((key, number));
    number
}

fn look_up(key: Key) -> u32 {
    let _no_fork = fork::no_fork();
    let mut numbers = lock(&NUMBERS);
    if let Some(number) = numbers.get(&key) {
        return *number;
    }
    let next = numbers.len() as u32 + 1;
    if numbers.try_reserve(1).is_err() {
        return 0;
    }
    numbers.insert(key, next);
    next
}
