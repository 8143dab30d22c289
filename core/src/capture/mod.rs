//! The capture: a recording as a file of memtrace's own.
//!
//! It holds code addresses with the build-ids of the programs they belong to, so it can be read,
//! symbolised and exported elsewhere and later. It is written whole from a snapshot, or piece by
//! piece while a program runs; then it is good up to the last commit, whatever ends the program.
//!
//! # Bytes
//! ```text
//! file    = "memtrace" version:u32 chunk*
//! chunk   = tag:u8 length:u32 crc:u32 payload[length]      crc: CRC-32 (IEEE) of tag and payload
//! ```
//! Integers of fixed size are little-endian. In payloads:
//! ```text
//! n       = a number: groups of seven bits, lowest first, the top bit set on all but the last
//! step    = a signed difference to the number before as n: 0, -1, 1, -2, … are 0, 1, 2, 3, …
//! text    = length:n UTF-8[length]
//! ids     : stacks, contexts and code addresses are numbered in the order in which they stand in
//!           the file, over all chunks; stack 0 and context 0 stand in none: no stack, no scope
//! device  = n: 0 is the CPU, 1 + ordinal a CUDA device (up to 1023), 1025 pinned, 1026 managed and 1027 imported memory
//! ```
//!
//! | tag | payload |
//! |---|---|
//! | 1 process | program:text host:text pid:n rank:n(0: none, else 1 + rank) working_dir:text started_unix_us:n |
//! | 2 settings | enabled:n context:n stacks:n (in the order of their enums) max_entries:n min_size:n stack_depth:n device:n(0: all, else 1 + device) count:n action:n* rules:text |
//! | 3 threads | count:n (number:n os_id:n name:text)*; replaces those before |
//! | 4 modules | count:n (path:text build_id:text base:n start:n end:n)*; build_id as bytes |
//! | 5 addresses | count:n step* |
//! | 6 stacks | count:n (calls:n address:n*)*; innermost call first |
//! | 7 contexts | count:n (parent·2+module:n name:text)*; the parent stands before |
//! | 8 frames | count:n text* then for each address of the file count:n (function:n file:n line·2+inlined:n)*; at most once |
//! | 9 gap | device records:n; the records of the device so far are forgotten, and so many more are missing |
//! | 10 records | device count:n record*; record below |
//! | 11 marks | device count:n (time_ns:step thread·2+enter:n context:n)* |
//! | 12 live | device count:n block*; what was live after the last record |
//! | 13 peak | device count:n block*; what was live at the peak |
//! | 14 counters | device and the numbers in the order of `encode::counters` |
//! | 15 scopes | device count:n (context calls allocations allocated_bytes own_peak total_peak:n(0: none, else 1 + bytes))* |
//! | 16 segments | device count:n (address:step size:n estimated:n)* |
//! | 17 commit | duration_ns:n, the counters of [`Health`] as a list, the rest of it in the order of `encode::commit`; what came before counts from here on |
//! | 18 end | nothing; the recording was ended in order |
//! | 19 names | device lost:n count:n (alloc_seq:step name:text category:n)*; the last name of a block counts; so many more were not kept since the chunk before |
//! | 20 pool | device used used_high reserved reserved_high release_threshold used_before:n(0: unknown, else 1 + bytes) |
//! | 21 ooms | device count:n (time_ns:step size:n device_free:n(0: unknown, else 1 + bytes) device_total:n(the same) stack:n context:n thread:n)*; replaces those before |
//! | 22 memory | device free total own_pools_used own_pools_reserved own_pools:n graphs:n(0: unknown, else 1 and used used_high reserved reserved_high) |
//! | 23 segment records | device count:n (time_ns:step address:step size:n kind:n(bit 0: free, bit 1: estimated) stack:n context:n thread:n)* |
//! | 24 calls | device count:n (stack context allocs alloc_ns growing growing_ns frees free_ns)*; replaces those before |
//! | 25 sampling | interval:n; only a sample of the CPU's blocks is recorded, see `snapshot::Sampling`; what is live is counted, other totals are estimates, sizes of blocks are real |
//! | 26 counted | device now at_peak before; what was counted beside the sample, at the counters before |
//! | 27 skipped | device records:n marks:n time_ns:n; so many records and marks, up to that time, were not written; a *live* chunk follows: what was live behind them |
//! | 28 gaps | device count:n (at:step records:n from_ns:step to_ns:step)*; of a log that had some skipped: where that was, see `snapshot::Gap` |
//!
//! ```text
//! record  = kind:n(bit 0: free, bit 1: stack and alloc_stack are the same, from bit 2 on: memory) time_ns:step address:step size:n
//!           stack:n [alloc_stack:n] context:n thread:n alloc_seq:step stream:n
//! block   = address:step size:n seq:step time_ns:step stack:n context:n thread:n stream·16+memory:n
//! memory  = a number in the order of `MemoryKind`
//! ```
//! An alloc whose alloc_seq has bit 61 set says that the last free of that block was refused: readers leave out both.
//! Steps begin at 0 in every chunk, each field for itself.
//!
//! A device without a *live* chunk since its last *gap* had nothing live at its first record; what was live later, and at
//! the peak, follows from the records, and so do its scopes (of a sample as estimates, none higher than the peak). Chunks with tags that a reader does not know are passed over.

mod blocks;
mod bytes;
mod decode;
mod encode;
mod gaps;
mod limits;
mod rebuild;

use crate::error::Error;
use crate::snapshot::{Block, CudaState, Device, DeviceMemory, Health, MemoryStats, Peak, Pool, SnapshotData};

pub(crate) use decode::read;
#[doc(hidden)]
pub use encode::Encoder;
pub use encode::write;

pub(crate) const MAGIC: &[u8; 8] = b"memtrace";
const VERSION: u32 = 1;
const HEADER: usize = 12;
/// Tag, length and checksum in front of a payload.
const CHUNK_HEADER: usize = 13;

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Tag {
    Process = 1,
    Settings,
    Threads,
    Modules,
    Addresses,
    Stacks,
    Contexts,
    Frames,
    Gap,
    Records,
    Marks,
    Live,
    Peak,
    Counters,
    Scopes,
    Segments,
    Commit,
    End,
    Names,
    Pool,
    Ooms,
    Memory,
    SegmentRecords,
    Calls,
    Sampling,
    Counted,
    Skipped,
    Gaps,
}

impl Tag {
    const ALL: [Self; 28] = [
        Self::Process,
        Self::Settings,
        Self::Threads,
        Self::Modules,
        Self::Addresses,
        Self::Stacks,
        Self::Contexts,
        Self::Frames,
        Self::Gap,
        Self::Records,
        Self::Marks,
        Self::Live,
        Self::Peak,
        Self::Counters,
        Self::Scopes,
        Self::Segments,
        Self::Commit,
        Self::End,
        Self::Names,
        Self::Pool,
        Self::Ooms,
        Self::Memory,
        Self::SegmentRecords,
        Self::Calls,
        Self::Sampling,
        Self::Counted,
        Self::Skipped,
        Self::Gaps,
    ];

    fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|tag| *tag as u8 == byte)
    }
}

/// A device's numbers at a commit: what cannot be worked out from its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Bytes live from before the recording.
    pub not_recorded: u64,
    /// Bytes below the threshold.
    pub below_threshold: u64,
    /// Without its blocks.
    pub peak: Peak,
    /// Counters.
    pub stats: MemoryStats,
}

/// What the driver says of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Driver {
    /// Its pool.
    pub pool: Option<Pool>,
    /// The whole device.
    pub memory: Option<DeviceMemory>,
}

/// What holds for the whole recording at a commit.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// How long it has recorded.
    pub duration_ns: u64,
    /// What was missed.
    pub health: Health,
}

/// Why a part of a file is not what a writer wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Damage(&'static str);

/// A capture that was read.
#[derive(Debug)]
pub(crate) struct Capture {
    pub(crate) data: SnapshotData,
    /// It carries functions and lines; else only addresses, to be looked up in the modules' files.
    pub(crate) symbolised: bool,
}

/// More devices than any machine has; PyTorch's pickles have a list for every number up to the largest.
const MAX_ORDINALS: u64 = 1024;

/// By their numbers.
const CUDA_STATES: [CudaState; 6] = [
    CudaState::NotLoaded,
    CudaState::Active,
    CudaState::TurnedOff,
    CudaState::AnotherCopy,
    CudaState::NotSupported,
    CudaState::Simulated,
];

fn device_number(device: Device) -> u64 {
    match device {
        Device::Cpu => 0,
        Device::Cuda(ordinal) => 1 + u64::from(ordinal),
        Device::Pinned => 1 + MAX_ORDINALS,
        Device::Managed => 2 + MAX_ORDINALS,
        Device::Imported => 3 + MAX_ORDINALS,
    }
}

fn refused(reason: impl Into<String>) -> Error {
    Error::capture(reason.into())
}

/// In the order of allocation.
fn by_seq(mut blocks: Vec<Block>) -> Vec<Block> {
    blocks.sort_unstable_by_key(|block| block.seq);
    blocks
}

/// Tag, length and checksum.
fn chunk_head(tag: u8, payload: &[u8]) -> [u8; CHUNK_HEADER] {
    let mut head = [0; CHUNK_HEADER];
    let (front, sum) = head.split_at_mut(9);
    front[0] = tag;
    front[1..].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(front);
    crc.update(payload);
    sum.copy_from_slice(&crc.finalize().to_le_bytes());
    head
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod refused_tests;
#[cfg(test)]
mod tests;
