//! Wall time, processor time, and peak resident memory.

use std::time::{Duration, Instant};

/// A moment, or the difference of two.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    cpu: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// Wall time.
    pub wall: Duration,
    /// Processor time of all threads of this process.
    pub cpu: Duration,
}

impl Clock {
    /// The current time.
    pub fn now() -> Self {
        Self { began: Instant::now(), cpu: cpu() }
    }

    /// The time since the clock began.
    pub fn elapsed(self) -> Took {
        Took { wall: self.began.elapsed(), cpu: cpu().saturating_sub(self.cpu) }
    }
}

#[expect(unsafe_code, reason = "std has no clock for it")]
fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes into the struct that it is given.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "no clock for the process's time");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Peak resident memory of this process in bytes; 0 where the system does not report it.
pub fn most_resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
