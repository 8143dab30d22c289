//! Work that background threads repeat until the program has ended.

use std::ffi::CStr;
use std::io;
use std::time::{Duration, Instant};

use super::spawn::{running, sleep, spawn};
use super::{apart, recording};

/// Calls `work` on a new thread at this interval, until it returns false or all threads of the program have ended. In
/// the latter case the recording ends, too.
pub(super) fn repeat(
    name: &'static CStr,
    interval: Duration,
    mut work: impl FnMut() -> bool + Send + 'static,
) -> io::Result<()> {
    let files = apart::thread();
    let body = move || {
        let mut began = Instant::now();
        let mut watch = ProcessWatch::default();
        while work() && !watch.program_has_ended() {
            // Always sleep a moment, so that an ending session or a panic can take the locks that `work` holds.
            sleep(interval.saturating_sub(began.elapsed()).max(Duration::from_millis(1)));
            began = Instant::now();
        }
        drop(files);
        if watch.program_has_ended() {
            recording::finish_current();
            watch.end();
        }
    };
    spawn(name, body).map(drop)
}

/// Detects that all threads of the program have ended. If the main thread calls `pthread_exit` or the system call
/// `exit`, the process lives until its last thread ends. memtrace's threads must not keep it alive.
#[derive(Debug, Default)]
struct ProcessWatch {
    /// True if another thread of the program was seen after the main thread's end.
    outlived: bool,
    /// The exit code of the main thread.
    code: i32,
}

impl ProcessWatch {
    fn program_has_ended(&mut self) -> bool {
        let ended = apart::read("/proc/self/stat", 1 << 10, MainThread::of).filter(|main| main.ended);
        let Some(main) = ended else { return false };
        let has_others = main.threads > running() + 1;
        self.outlived |= has_others;
        self.code = main.code;
        !has_others
    }

    /// Called on memtrace's thread when the program's threads have ended. The process's exit code is that of its last
    /// thread. So if the main thread was the program's last one, this thread ends with the same code. After
    /// `pthread_exit` the code is 0, and the C library calls `exit` on the last thread that it knows.
    fn end(self) {
        // The thread for files ends first, so `exit` runs on this thread, which has the program's descriptors.
        apart::end();
        if self.code != 0 && !self.outlived {
            exit_thread(self.code);
        }
    }
}

/// What `/proc/self/stat` says about the main thread, also after the main thread has ended.
#[derive(Debug, PartialEq)]
struct MainThread {
    ended: bool,
    /// Number of threads of the process, including an ended main thread.
    threads: usize,
    code: i32,
}

impl MainThread {
    /// The fields follow the name, which is in parentheses. The state is the third field, the number of threads the
    /// twentieth. The exit code is the 52nd, which is the last field since Linux 3.5.
    fn of(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(") ")?;
        let field = |number: usize| fields.split_ascii_whitespace().nth(number - 3);
        let code = field(52).and_then(|code| code.parse::<i32>().ok()).unwrap_or(0);
        Some(Self { ended: field(3)? == "Z", threads: field(20)?.parse().ok()?, code: code >> 8 & 0xff })
    }
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "ends a thread behind the C library's back")]
fn exit_thread(code: i32) {
    // SAFETY: the program's threads have ended, so nobody misses what this thread leaves behind.
    unsafe { libc::syscall(libc::SYS_exit, code) };
}

#[cfg(not(target_os = "linux"))]
fn exit_thread(_code: i32) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_main_threads_end_is_read_behind_any_name() {
        let between = |count: usize| "0 ".repeat(count);
        let stat = format!("7 (a) Z 9 (b)) Z {}3 {}768\n", between(16), between(31));
        assert_eq!(MainThread::of(&stat), Some(MainThread { ended: true, threads: 3, code: 3 }));
        let old = format!("7 (a) R {}12 {}\n", between(16), between(10));
        assert_eq!(MainThread::of(&old), Some(MainThread { ended: false, threads: 12, code: 0 }));
        assert_eq!(["", "7 (a", "7 (a) Z 0"].map(MainThread::of), [None, None, None]);
    }
}
