//! Resident set size (RSS) of a running program, sampled from `/proc`: what can be had of any program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Between two readings.
const INTERVAL: Duration = Duration::from_millis(50);

/// High-water marks of a program's physical memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResidentMemory {
    /// Kept by the kernel, so exact up to the last reading.
    pub(crate) most: u64,
    /// The largest of the readings.
    pub(crate) files: u64,
}

/// Reads in the background until it is stopped.
pub(crate) struct ResidentSampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<ResidentMemory>,
}

impl ResidentSampler {
    pub(crate) fn of(program: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut memory = ResidentMemory::default();
            while !stopped.load(Ordering::Relaxed) {
                memory = memory.after(&std::fs::read_to_string(format!("/proc/{program}/status")).unwrap_or_default());
                thread::park_timeout(INTERVAL);
            }
            memory
        });
        Self { stop, thread }
    }

    pub(crate) fn stop(self) -> ResidentMemory {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_default()
    }
}

impl ResidentMemory {
    /// With another reading. A program that has ended has no such lines.
    fn after(self, status: &str) -> Self {
        let bytes = |name: &str| {
            let kib = status.lines().find_map(|line| line.strip_prefix(name)?.trim().strip_suffix(" kB"));
            kib.and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
        };
        Self { most: self.most.max(bytes("VmHWM:")), files: self.files.max(bytes("RssFile:")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_all_readings_is_kept() {
        let first = ResidentMemory::default().after("VmHWM:\t    2048 kB\nVmRSS:\t  9 kB\nRssFile:\t     512 kB\n");
        assert_eq!(first, ResidentMemory { most: 2 << 20, files: 512 << 10 });
        assert_eq!(first.after("VmHWM:\t    4096 kB\nRssFile:\t     4 kB\n").files, 512 << 10);
        assert_eq!(first.after("State:\tZ (zombie)\n"), first);
    }

    #[test]
    fn a_running_program_is_read() {
        let sampler = ResidentSampler::of(std::process::id());
        thread::sleep(4 * INTERVAL);
        let memory = sampler.stop();
        assert!(memory.most > memory.files && memory.files > 0, "{memory:?}");
    }
}
