//! Is a thread asleep? Linux only, from `/proc` and the thread's CPU clock.
#![expect(unsafe_code, reason = "system calls without an allocation")]

use std::io::{Cursor, Write};
use std::time::{Duration, Instant};

use crate::errno::KeepErrno;

/// CPU time that a thread may still use between handing over work and going to sleep.
const PATIENCE: Duration = Duration::from_micros(200);
/// Limit of the wait on a busy machine.
const LONGEST: Duration = Duration::from_millis(100);

/// Is the thread asleep, or will it be in a moment?
pub(super) fn soon(thread: u32) -> bool {
    let _errno = KeepErrno::new();
    let (begun, has_run) = (Instant::now(), processor_time(thread));
    loop {
        let runs_on = || {
            let now = processor_time(thread);
            now.zip(has_run).is_none_or(|(now, before)| now.saturating_sub(before) >= PATIENCE)
        };
        match state(thread) {
            Some(b'R') if runs_on() || begun.elapsed() >= LONGEST => return false,
            Some(b'R') => std::thread::yield_now(),
            _ => return true,
        }
    }
}

/// CPU time of a thread of this process.
fn processor_time(thread: u32) -> Option<Duration> {
    // The kernel's encoding of a per-thread CPU clock: ~tid << 3 | CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED.
    let clock = (!(thread as libc::clockid_t) << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    let answer = unsafe { libc::clock_gettime(clock, &mut time) };
    (answer == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

/// The state letter of `/proc/self/task/TID/stat`, behind the name in parentheses.
fn state(thread: u32) -> Option<u8> {
    let mut path = [0u8; 48];
    write!(Cursor::new(path.as_mut_slice()), "/proc/self/task/{thread}/stat\0").ok()?;
    // SAFETY: the path ends with a NUL byte.
    let file = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return None;
    }
    let mut text = [0u8; 64];
    // SAFETY: the buffer is valid for writes of its length.
    let read = unsafe { libc::read(file, text.as_mut_ptr().cast(), text.len()) };
    // SAFETY: opened above, used nowhere else.
    unsafe { libc::close(file) };
    let text = text.get(..usize::try_from(read).ok()?)?;
    let end = text.iter().rposition(|byte| *byte == b')')?;
    text.get(end + 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::thread::own_os_id;
    use std::sync::mpsc;

    #[test]
    fn a_thread_that_waits_is_asleep_and_one_that_works_is_not() {
        let (number, numbers) = mpsc::channel();
        let (stop, stopped) = mpsc::channel();
        let waits = std::thread::spawn(move || {
            number.send(own_os_id()).unwrap();
            stopped.recv().unwrap();
            number.send(own_os_id()).unwrap();
            while stopped.try_recv().is_err() {}
        });
        assert!(soon(numbers.recv().unwrap()));
        stop.send(()).unwrap();
        let works = numbers.recv().unwrap();
        std::thread::sleep(Duration::from_millis(2));
        let (before, has_run) = (Instant::now(), processor_time(works).unwrap());
        assert!(!soon(works));
        assert!(before.elapsed() < LONGEST * 5 && processor_time(works).unwrap() > has_run);
        stop.send(()).unwrap();
        waits.join().unwrap();
    }
}
