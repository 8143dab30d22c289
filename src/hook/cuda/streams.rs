//! Numbers CUDA streams in the order in which they first appear.

use std::cell::Cell;
use std::sync::Mutex;

use memtrace_core::snapshot::ThreadId;

use super::types::Stream;
use crate::record::fork;
use crate::record::lock::lock;
use crate::record::memory::{OwnMap, own_map};

/// Context, handle, and (only for the per-thread default stream, otherwise 0) the number of the thread.
type StreamKey = (usize, usize, u32);

static NUMBERS: Mutex<OwnMap<StreamKey, u32>> = Mutex::new(own_map());

thread_local! {
    /// A cache of the last answer. Const-initialized and without a destructor.
    static LAST: Cell<(StreamKey, u32)> = const { Cell::new(((0, 0, 0), 0)) };
}

/// The number of a stream, from 1. Returns 0 if there is no memory for a new entry. If the driver reuses a handle for a
/// new stream, the number stays the same.
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

fn look_up(key: StreamKey) -> u32 {
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
