//! The program that was recorded, and its threads.

use super::ids::ThreadId;

/// The program that was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Name of the executable file.
    pub program: String,
    /// Name of the machine.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Its number among the processes of a distributed job, if its launcher said so.
    pub rank: Option<u32>,
    /// Its working directory; reports shorten paths below it.
    pub working_dir: String,
    /// Start of the recording, microseconds since 1970.
    pub started_unix_us: u64,
    /// From the start of the recording to this snapshot.
    pub duration_ns: u64,
    /// Threads of which more than the number is known.
    pub threads: Vec<Thread>,
}

/// A thread that memtrace has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// memtrace's number for it.
    pub number: ThreadId,
    /// The system's number for it.
    pub os_id: u32,
    /// Its name when the snapshot was taken, or the last one that it had if it had ended by then.
    pub name: String,
}
