//! Time on the wall and of the processors, and how much memory was resident.

use std::time::{Duration, Instant};

/// A moment, or the time between two.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    began: Instant,
    cpu: Duration,
}

/// The time between two moments.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// On the wall.
    pub wall: Duration,
    /// Of all threads of this process together.
    pub cpu: Duration,
}

impl Clock {
    /// This moment.
    pub fn now() -> Self {
        Self { began: Instant::now(), cpu: cpu() }
    }

    /// The time since then.
    pub fn elapsed(self) -> Took {
        Took { wall: self.began.elapsed(), cpu: cpu().saturating_sub(self.cpu) }
    }
}

#[expect(unsafe_code, reason = "std has no clock for it")]
fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it fills in the time that it is given.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "no clock for the process's time");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The most bytes that this process ever had in memory; 0 where the system does not say.
pub fn most_resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
