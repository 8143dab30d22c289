//! Resident set size (RSS) of a running program, sampled from `/proc`. It is available for every program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Time between two readings.
const INTERVAL: Duration = Duration::from_millis(50);

/// High-water marks of a program's physical memory, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResidentMemory {
    /// The most that the program held. The kernel keeps this mark, so it is exact up to the last reading.
    pub(crate) most: u64,
    /// The most that pages of mapped files took at one of the readings.
    pub(crate) files: u64,
    /// The most that a process started by the program held, and that process's name.
    pub(crate) of_child: u64,
    pub(crate) child: String,
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
                memory = memory.after(&status(program));
                each_descendant(program, &mut |process| memory.add_child(&status(process)));
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
    /// Includes another reading. The status of a program that has ended has no such lines, so the marks stay.
    fn after(self, status: &str) -> Self {
        let (most, files) = (bytes(status, "VmHWM:"), bytes(status, "RssFile:"));
        Self { most: self.most.max(most), files: self.files.max(files), ..self }
    }

    fn add_child(&mut self, status: &str) {
        let held = bytes(status, "VmHWM:");
        if held > self.of_child {
            self.of_child = held;
            self.child = field(status, "Name:").unwrap_or_default().to_owned();
        }
    }

    /// Whether the program mainly started another process, which held the memory.
    pub(crate) fn is_mostly_a_childs(&self) -> bool {
        self.of_child > 2 * self.most && self.of_child > 16 << 20
    }
}

fn status(process: u32) -> String {
    std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn bytes(status: &str, name: &str) -> u64 {
    let kib = field(status, name).and_then(|value| value.strip_suffix(" kB"));
    kib.and_then(|kib| kib.parse::<u64>().ok()).map_or(0, |kib| kib << 10)
}

/// Calls `each` with the processes that a process's threads have started, and with the descendants of these.
fn each_descendant(process: u32, each: &mut impl FnMut(u32)) {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    for thread in threads.flatten() {
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            each(child);
            each_descendant(child, each);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_of_all_readings_is_kept() {
        let first = ResidentMemory::default().after("VmHWM:\t    2048 kB\nVmRSS:\t  9 kB\nRssFile:\t     512 kB\n");
        assert_eq!(first, ResidentMemory { most: 2 << 20, files: 512 << 10, ..ResidentMemory::default() });
        assert_eq!(first.clone().after("VmHWM:\t    4096 kB\nRssFile:\t     4 kB\n").files, 512 << 10);
        assert_eq!(first.clone().after("State:\tZ (zombie)\n"), first);
    }

    #[test]
    fn a_launcher_is_known_by_its_children() {
        let mut memory = ResidentMemory { most: 20 << 20, ..ResidentMemory::default() };
        memory.add_child("Name:\tsmall\nVmHWM:\t 30000 kB\n");
        assert!(!memory.is_mostly_a_childs());
        memory.add_child("Name:\tlarge one\nVmHWM:\t 50000 kB\n");
        memory.add_child("State:\tZ (zombie)\n");
        assert!(memory.is_mostly_a_childs());
        assert_eq!((&*memory.child, memory.of_child), ("large one", 50_000 << 10));
    }

    #[test]
    fn processes_of_processes_are_found() {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "sh -c 'sleep 100; :'; :"]).stdout(std::process::Stdio::null());
        let mut shell = shell.spawn().unwrap();
        let found = || {
            let mut found = Vec::new();
            each_descendant(shell.id(), &mut |process| found.push(process));
            found
        };
        let name = |process: &u32| field(&status(*process), "Name:").unwrap_or_default().to_owned();
        // Between its fork and its exec, a process has the name of its parent.
        let begun = (0..500).find_map(|_| {
            thread::sleep(Duration::from_millis(10));
            Some(found()).filter(|found| found.iter().map(name).eq(["sh", "sleep"]))
        });
        for process in begun.unwrap() {
            let pid = rustix::process::Pid::from_raw(process.cast_signed()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn a_running_program_is_read() {
        let sampler = ResidentSampler::of(std::process::id());
        thread::sleep(4 * INTERVAL);
        let memory = sampler.stop();
        assert!(memory.most > memory.files && memory.files > 0, "{memory:?}");
    }
}
