//! The recorded process and its threads.

use super::host_memory::HostMemory;
use super::ids::ThreadId;
use super::mappings::Mappings;

/// The recorded process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Name of the executable file.
    pub program: String,
    /// Host name.
    pub host: String,
    /// Process id.
    pub pid: u32,
    /// Rank among the processes of a distributed job, if the launcher set one.
    pub rank: Option<u32>,
    /// What the launcher tells about the job that this process is a rank of.
    pub launcher: Launcher,
    /// Its working directory; reports show paths relative to it.
    pub working_dir: String,
    /// Start of the recording, microseconds since 1970.
    pub started_unix_us: u64,
    /// From the start of the recording to this snapshot.
    pub duration_ns: u64,
    /// Threads whose name or system id is known.
    pub threads: Vec<Thread>,
    /// Its physical memory, at the last reading.
    pub memory: Option<HostMemory>,
    /// Its mappings, at the reading when most was resident.
    pub mappings: Option<Mappings>,
}

/// What the launcher of a distributed job tells all its processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launcher {
    /// Number of ranks in the job.
    pub world_size: Option<u32>,
    /// The launcher's id of the job. Launchers may reuse an id, so only different ids prove different jobs.
    pub job: Option<String>,
}

/// A thread that memtrace has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// memtrace's number of the thread.
    pub number: ThreadId,
    /// The system's thread id.
    pub os_id: u32,
    /// Its name when the snapshot was taken, or when it ended.
    pub name: String,
}
