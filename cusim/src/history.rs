//! Event log: one record for each allocation, each free and each release of reserved memory, with the counters after
//! it.
//!
//! It is the ground truth that a profiler's ledger is compared with. `MEMTRACE_CUSIM_LOG=FILE` writes the records as
//! lines of tab-separated values while the program runs, after a header with the names of [`HistoryRecord`]'s fields.
//! `%p` in the name is the process id. Within the process, C functions that `dlsym` finds return the records and the
//! counters:
//!
//! ```c
//! size_t memtrace_cusim_events(uint64_t from, struct record *to, size_t room); // returns the number copied
//! uint64_t memtrace_cusim_event_count(void);
//! uint64_t memtrace_cusim_used(int device);     // bytes in the device's default pool
//! uint64_t memtrace_cusim_reserved(int device);
//! uint64_t memtrace_cusim_graph_used(int device);     // by allocation nodes of graphs
//! uint64_t memtrace_cusim_graph_reserved(int device); // for graphs
//! uint64_t memtrace_cusim_overhead(int device);       // contexts and modules
//! uint64_t memtrace_cusim_others(int device);         // other processes
//! uint64_t memtrace_cusim_taken(int device);          // all memory that is not free
//! void memtrace_cusim_foreign_handle(uint64_t size, void *handle); // another process's, for cuIpcOpenMemHandle
//! ```
//!
//! If any of these functions exists, the driver is the simulated one.

use std::fmt::Write as _;

use crate::config::variable;
use crate::own::{MmapVec, mmap_vec};
use crate::say::StackText;

/// What happened.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Op {
    /// An allocation, granted or refused.
    #[default]
    Alloc = 0,
    /// A free, done or refused.
    Free = 1,
    /// A free at the end of the block's context.
    Bulk = 2,
    /// A pool released `size` reserved bytes.
    Release = 3,
}

/// The kind of memory.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BlockKind {
    /// Unknown, for a refused free.
    #[default]
    Unknown = 0,
    /// Stream-ordered, from a pool.
    Pool = 1,
    /// `cuMemAlloc`, `cuMemAllocPitch`.
    Classic = 2,
    /// `cuMemAllocManaged`.
    Managed = 3,
    /// `cuMemAllocHost`, `cuMemHostAlloc`.
    Pinned = 4,
    /// `cuMemHostRegister`.
    Registered = 5,
    /// `cuMemCreate`; the address is the handle.
    Virtual = 6,
    /// An array; the address is the handle.
    Array = 7,
    /// An allocation node of a launched graph.
    Graph = 8,
    /// Memory of another process or another library.
    Imported = 9,
    /// Stream-ordered, from a pool of host memory.
    HostPool = 10,
    /// Stream-ordered, from a pool of managed memory.
    ManagedPool = 11,
}

impl BlockKind {
    pub(crate) fn is_pooled(self) -> bool {
        matches!(self, Self::Pool | Self::HostPool | Self::ManagedPool)
    }

    /// Whether memory of this kind is taken from a device's memory.
    pub(crate) fn is_on_device(self) -> bool {
        !matches!(self, Self::Managed | Self::HostPool | Self::ManagedPool)
    }

    pub(crate) fn is_managed(self) -> bool {
        matches!(self, Self::Managed | Self::ManagedPool)
    }
}

/// A record of the log. C programs depend on the order of the fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryRecord {
    /// The number of the record, from 1 and without gaps.
    pub number: u64,
    /// What happened.
    pub op: Op,
    /// The kind of memory.
    pub kind: BlockKind,
    /// The device, or -1 for the host.
    pub device: i32,
    /// The call's result code.
    pub result: u32,
    /// The handle of the context.
    pub context: u64,
    /// The handle of the stream, as the program passed it.
    pub stream: u64,
    /// The id of the calling thread (`gettid`).
    pub thread: u64,
    /// The block's address, or 0 for a refused allocation.
    pub address: u64,
    /// The requested bytes.
    pub size: u64,
    /// Used bytes of the block's pool after the event. Each kind of memory of a device counts as a pool.
    pub used: u64,
    /// Reserved bytes of the block's pool after the event.
    pub reserved: u64,
}

/// The log.
pub struct History {
    records: MmapVec<HistoryRecord>,
    file: Option<i32>,
}

/// The most records that are kept in memory. The file has all records.
const MOST: usize = 1 << 22;

impl History {
    pub(crate) fn new() -> Self {
        Self { records: mmap_vec(), file: None }
    }

    /// Writes to the file that `MEMTRACE_CUSIM_LOG` names, if it is set. The error is the variable's name.
    pub(crate) fn open_file(&mut self) -> Result<(), &'static str> {
        let Some(path) = variable(c"MEMTRACE_CUSIM_LOG").filter(|path| !path.is_empty()) else { return Ok(()) };
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC;
        let name = file_name(path);
        // SAFETY: `name` ends with a zero byte.
        let file = unsafe { libc::open(name.bytes().as_ptr().cast(), flags, 0o644) };
        if file < 0 {
            return Err("MEMTRACE_CUSIM_LOG");
        }
        self.file = Some(file);
        self.write("number\top\tkind\tdevice\tresult\tcontext\tstream\tthread\taddress\tsize\tused\treserved\n");
        Ok(())
    }

    /// Numbers a record and stores it.
    pub(crate) fn add(&mut self, mut record: HistoryRecord) {
        record.number = self.count() + 1;
        // SAFETY: it only returns a number.
        record.thread = unsafe { libc::gettid() } as u64;
        if self.file.is_some() {
            let mut line = StackText::new();
            let _ = record.write(&mut line);
            self.write(line.text());
        }
        self.records.push(record);
        if self.records.len() > MOST {
            self.records.drain(..MOST / 2);
        }
    }

    /// The number of records, including those no longer kept.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.records.last().map_or(0, |record| record.number)
    }

    /// The records that are kept.
    #[must_use]
    pub fn records(&self) -> &[HistoryRecord] {
        &self.records
    }

    fn write(&self, text: &str) {
        if let Some(file) = self.file {
            crate::say::write_all(file, text.as_bytes());
        }
    }
}

/// The path with `%p` replaced by the process id, and a zero byte.
fn file_name(path: &str) -> StackText {
    let mut name = StackText::new();
    let _ = match path.split_once("%p") {
        Some((before, after)) => write!(name, "{before}{}{after}\0", std::process::id()),
        None => write!(name, "{path}\0"),
    };
    name
}

impl HistoryRecord {
    /// A record. Without a device, it belongs to the host.
    pub(crate) fn new(op: Op, kind: BlockKind, device: impl Into<Option<usize>>) -> Self {
        Self { op, kind, device: device.into().map_or(-1, |device| device as i32), ..Self::default() }
    }

    fn write(&self, line: &mut StackText) -> std::fmt::Result {
        let Self { number, op, kind, device, result, context, stream, thread, address, size, used, reserved } = self;
        writeln!(
            line,
            "{number}\t{op:?}\t{kind:?}\t{device}\t{result}\t{context:#x}\t{stream:#x}\t{thread}\t{address:#x}\t{size}\t{used}\t{reserved}"
        )
    }
}
