//! The simulator's own truth: one record for each allocation, each free and each change of what is
//! reserved, with the counters after it.
//!
//! `MEMTRACE_CUSIM_LOG=FILE` writes them as lines of tab-separated values while the program runs, after a
//! line with the names of [`Record`]'s fields. `%p` in the name is the process's number. In the process
//! itself C functions give them, found by `dlsym`:
//!
//! ```c
//! size_t memtrace_cusim_events(uint64_t from, struct record *to, size_t room); // how many were copied
//! uint64_t memtrace_cusim_event_count(void);
//! uint64_t memtrace_cusim_used(int device);     // of the device's default pool, in bytes
//! uint64_t memtrace_cusim_reserved(int device);
//! uint64_t memtrace_cusim_graph_used(int device);     // by allocation nodes of graphs
//! uint64_t memtrace_cusim_graph_reserved(int device); // the device keeps for them
//! uint64_t memtrace_cusim_overhead(int device);       // contexts and modules
//! uint64_t memtrace_cusim_others(int device);         // other processes
//! uint64_t memtrace_cusim_taken(int device);          // everything that is not free
//! void memtrace_cusim_foreign_handle(uint64_t size, void *handle); // for cuIpcOpenMemHandle, of another process
//! ```
//!
//! A program that sees any of these has a simulated driver.

use std::fmt::Write as _;

use crate::config::variable;
use crate::own::{OwnVec, own_vec};
use crate::say::Line;

/// What a record is about.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Op {
    /// An allocation, granted or refused.
    #[default]
    Alloc = 0,
    /// A free, done or refused.
    Free = 1,
    /// A free because its context came to an end.
    Bulk = 2,
    /// A pool gave memory back: `size` bytes.
    Release = 3,
}

/// Which memory.
#[repr(u32)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Not known: the address of a refused free.
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
    /// `cuMemCreate`. The address is the handle.
    Virtual = 6,
    /// An array. The address is the handle.
    Array = 7,
    /// An allocation node of a graph, when the graph was launched.
    Graph = 8,
    /// Memory of another process or another library.
    Imported = 9,
}

/// A record. The order of the fields is part of `memtrace_cusim_events`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// From 1, without gaps.
    pub number: u64,
    /// What happened.
    pub op: Op,
    /// To which memory.
    pub kind: Kind,
    /// The device, -1 for the host.
    pub device: i32,
    /// The call's result code.
    pub result: u32,
    /// The handle of the context.
    pub context: u64,
    /// The handle of the stream, as the program gave it.
    pub stream: u64,
    /// The kernel's number of the calling thread.
    pub thread: u64,
    /// The block's address, 0 for a refused allocation.
    pub address: u64,
    /// The bytes asked for.
    pub size: u64,
    /// USED of the block's pool after this. Classic and managed memory of a device count as pools of
    /// their own.
    pub used: u64,
    /// RESERVED of the block's pool after this.
    pub reserved: u64,
}

/// The records so far, and the file that they go to.
pub struct History {
    records: OwnVec<Record>,
    file: Option<i32>,
}

/// Records kept for `memtrace_cusim_events`; the file has all.
const MOST: usize = 1 << 22;

impl History {
    /// Without a file.
    pub(crate) fn new() -> Self {
        Self { records: own_vec(), file: None }
    }

    /// Writes to `MEMTRACE_CUSIM_LOG` from now on. A file that cannot be written is an error that names
    /// itself.
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

    /// Numbers a record and keeps it.
    pub(crate) fn add(&mut self, mut record: Record) {
        record.number = self.count() + 1;
        // SAFETY: asks the kernel for a number.
        record.thread = unsafe { libc::gettid() } as u64;
        if self.file.is_some() {
            let mut line = Line::new();
            let _ = record.write(&mut line);
            self.write(line.text());
        }
        self.records.push(record);
        if self.records.len() > MOST {
            self.forget();
        }
    }

    /// How many records there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.records.last().map_or(0, |record| record.number)
    }

    /// The records that are kept.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Forgets the older half.
    fn forget(&mut self) {
        self.records.drain(..MOST / 2);
    }

    fn write(&self, text: &str) {
        if let Some(file) = self.file {
            crate::say::write_all(file, text.as_bytes());
        }
    }
}

/// The path with a zero byte; `%p` in it is the process's number.
fn file_name(path: &str) -> Line {
    let mut name = Line::new();
    let _ = match path.split_once("%p") {
        Some((before, after)) => write!(name, "{before}{}{after}\0", std::process::id()),
        None => write!(name, "{path}\0"),
    };
    name
}

impl Record {
    fn write(&self, line: &mut Line) -> std::fmt::Result {
        let Self { number, op, kind, device, result, context, stream, thread, address, size, used, reserved } = self;
        writeln!(
            line,
            "{number}\t{op:?}\t{kind:?}\t{device}\t{result}\t{context:#x}\t{stream:#x}\t{thread}\t{address:#x}\t{size}\t{used}\t{reserved}"
        )
    }
}
