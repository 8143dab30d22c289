//! Does a thread wait for something?
#![expect(unsafe_code, reason = "the kernel is asked without an allocation")]

use std::io::{Cursor, Write};
use std::time::{Duration, Instant};

use crate::errno::KeepErrno;

/// So long after it has handed over work a thread may still be on its way to sleep.
const PATIENCE: Duration = Duration::from_micros(200);

/// Does the thread sleep, or will it in a moment?
pub(super) fn soon(thread: u32) -> bool {
    let _errno = KeepErrno::new();
    let begun = Instant::now();
    loop {
        match state(thread) {
            Some(b'R') if begun.elapsed() < PATIENCE => std::thread::yield_now(),
            Some(b'R') => return false,
            _ => return true,
        }
    }
}

/// The letter that stands behind the thread's name, which is in parentheses.
fn state(thread: u32) -> Option<u8> {
    let mut path = [0u8; 48];
    write!(Cursor::new(path.as_mut_slice()), "/proc/self/task/{thread}/stat\0").ok()?;
    // SAFETY: the path ends with a zero byte.
    let file = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return None;
    }
    let mut text = [0u8; 64];
    // SAFETY: there is room for so many bytes.
    let read = unsafe { libc::read(file, text.as_mut_ptr().cast(), text.len()) };
    // SAFETY: it was opened above, and nobody else has it.
    unsafe { libc::close(file) };
    let text = text.get(..usize::try_from(read).ok()?)?;
    let end = text.iter().rposition(|byte| *byte == b')')?;
    text.get(end + 2).copied()
}
