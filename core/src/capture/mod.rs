//! The capture: memtrace's own binary format, a log of checksummed chunks that contains a whole recording.
//!
//! It contains code addresses and the build-ids of the programs that they belong to, so it can be symbolised and
//! exported later, on another machine. (PyTorch's pickle is for PyTorch's viewers; nothing can be appended to it.) A
//! snapshot writes it whole. A session can stream it while the program runs; then it is valid up to its last commit,
//! however the program ends.
//!
//! # Bytes
//! ```text
//! file    = "memtrace" version:u32 chunk*
//! chunk   = tag:u8 length:u64 crc:u32 payload[length]      crc: CRC-32 (IEEE) of tag, length and payload
//! ```
//! Integers of fixed size are little-endian. In payloads:
//! ```text
//! n       = a number as LEB128: groups of seven bits, lowest first, the top bit set on all but the last
//! step    = the difference to the number before, zigzag-encoded as n: 0, -1, 1, -2, … are 0, 1, 2, 3, …
//! text    = length:n UTF-8[length]
//! ids     : stacks, contexts and code addresses are numbered in the order of the file, over all chunks;
//!           no chunk has stack 0 (no stack) and context 0 (no scope)
//! device  = n: 0 is the CPU, 1 + ordinal a CUDA device (up to 1023), 1025 pinned, 1026 managed and 1027 imported memory
//! ```
//!
//! | tag | payload |
//! |---|---|
//! | 1 process | program:text host:text pid:n rank:n(0: none, else 1 + rank) working_dir:text started_unix_us:n |
//! | 2 settings | enabled:n context:n stacks:n (in the order of their enums) max_entries:n min_size:n stack_depth:n device:n(0: all, else 1 + device) count:n action:n* rules:text |
//! | 3 threads | count:n (number:n os_id:n name:text)*; replaces earlier ones |
//! | 4 objects | count:n (path:text build_id:text base:n start:n end:n)*; build_id as bytes |
//! | 5 addresses | count:n step* |
//! | 6 stacks | count:n (calls:n address:n*)*; innermost call first |
//! | 7 contexts | count:n (parent·2+module:n name:text)*; parents come first |
//! | 8 frames | count:n text* then for each address of the file count:n (function:n file:n line·2+inlined:n)*; at most once |
//! | 9 gap | device records:n; forgets the device's records so far; `records` more are missing |
//! | 10 records | device count:n record*; record below |
//! | 11 marks | device count:n (time_ns:step thread·2+enter:n context:n)* |
//! | 12 live | device count:n block*; the blocks live after the last record |
//! | 13 peak | device count:n block*; the blocks live at the peak |
//! | 14 counters | device not_recorded below_threshold peak(bytes time_ns seq not_recorded below_threshold) stat stat stat stat below_threshold num_ooms num_alloc_retries; the stats are allocated, active and reserved bytes and allocations, each (current peak allocated freed) |
//! | 15 scopes | device count:n (context calls allocations allocated_bytes own_peak total_peak:n(0: none, else 1 + bytes))* |
//! | 16 segments | device count:n (address:step size:n estimated:n)* |
//! | 17 commit | duration_ns:n count:n counter:n* count:n unreadable_object:text* spans:n no_line_numbers:n cut_off:n cuda(state:n imports:n refused_imports:n looked_up:n count:n (function:text calls:n)*) no_allocator:n; the counters are those of [`Health`]; makes the chunks before it valid |
//! | 18 end | nothing; the recording ended in order |
//! | 19 names | device lost:n count:n (alloc_seq:step name:text category:n)*; a later name of a block replaces an earlier one; `lost` is how many were dropped since the previous chunk |
//! | 20 pool | device used used_high reserved reserved_high release_threshold used_before:n(0: unknown, else 1 + bytes) |
//! | 21 ooms | device count:n (time_ns:step size:n device_free:n(0: unknown, else 1 + bytes) device_total:n(the same) stack:n context:n thread:n)*; replaces earlier ones |
//! | 22 memory | device free total own_pools_used own_pools_reserved own_pools:n graphs:n(0: unknown, else 1 and used used_high reserved reserved_high) |
//! | 23 segment records | device count:n (time_ns:step address:step size:n kind:n(bit 0: free, bit 1: estimated) stack:n context:n thread:n)* |
//! | 24 calls | device count:n (stack context allocs alloc_ns growing growing_ns frees free_ns)*; replaces earlier ones |
//! | 25 sampling | interval:n; the CPU's blocks are a sample, see `snapshot::Sampling`; live bytes are counted, other totals are estimates, sizes of blocks are real |
//! | 26 counted | device now at_peak before; the counted bytes of a sampled device, for the counters before |
//! | 27 skipped | device records:n marks:n time_ns:n; these many records and marks up to that time were not written; a *live* chunk with the blocks live at that time follows |
//! | 28 gaps | device count:n (at:step records:n from_ns:step to_ns:step)*; where the log lacks skipped records, see `snapshot::Gap` |
//! | 29 import notes | count:n note:text*; for a recording read from another program's file: what the file does not contain; at most once |
//! | 30 host memory | time_ns resident resident_high files files_high swapped; replaces the previous one, but `files_high` is the largest of all |
//! | 31 private pools | device count:n (segment:n pool:n pool:n)*; position of a segment in the preceding *segments* chunk, and the two numbers of its pool |
//! | 33 kernels | count:n name:text*; names of kernels and driver functions, numbered from 0 in the order of the file, over all chunks |
//! | 34 GPU work | operations launches laid_out copies fills graphs last_opaque lost count:n (kernel:n opaque:n)*; replaces an earlier one; says that uses were recorded |
//! | 35 uses | device count:n uses*; later uses of a block replace earlier ones |
//! | 36 kinds of addresses | all_calls:n(1: the stacks have calls of native code, too) count:n (bit 0: native, bit 1: its frame is only a label)*; for the *frames*; at most once |
//! | 37 own folder | path:text; where the sources of the recording memtrace are, with a slash at the end |
//! | 39 mappings | time_ns below_threshold own count:n (kind:n(in the order of `MappingKind`) start size resident count path:text stack)*; if there are several, the one with the most resident bytes counts |
//! | 40 graph nodes | device count:n (time_ns:step thread:n place:n kind:n(in the order of `GraphNodeKind`) bytes:n block:n(0: not recorded))* |
//! | 41 launcher | world_size:n(0: unknown, else 1 + ranks) job:text(empty: unknown); about the distributed job that the process is a rank of; absent if nothing is known |
//! | 42 idle | device count:n (block:step operations:n from_ns:step to_ns:step from_alloc:n to_alloc:n)*; time spans in which nothing used a large block |
//! | 43 unified | device system(0: not read, else 1 and total available free) process(0: not read, else 1 and resident files); the host's memory, which an integrated device uses; after the device's *memory* |
//! | 44 part | run:n number:n; the file is this part of the stream of a run, see *Parts* |
//! | 45 log start | device marks:n time_ns:n; this many marks of the run precede the device's first one in this part, and the log begins at this time; after the *gap*, which has the same number for records |
//! | 46 older | device count:n (from_ns:step to_ns:step records:n lacks_records:n highest:n highest_ns:step count:n (stack least:n at_highest:n)*)*; the time spans before this part, whose records may be deleted, see `snapshot::OlderTime`; ignored if the part with the records still exists |
//! | 47 total at first | device total; bytes that the device has, as the driver reported when its first block was recorded; the driver's *memory* comes only at the end |
//! | 48 older scopes | device count:n (count:n (context least:n at_highest:n)*)*; for each of the *older* times, after them |
//! | 49 local | count:n (kernel:n bytes stack)*; local memory of a thread, by kernel; replaces earlier ones |
//! | 50 device threads | device count stack; see `snapshot::DeviceThreads`; after the device's *memory* |
//!
//! ```text
//! record  = kind:n(bit 0: free, bit 1: stack and alloc_stack are the same, from bit 2 on: memory) time_ns:step address:step size:n
//!           stack:n [alloc_stack:n] context:n thread:n alloc_seq:step stream:n
//! block   = address:step size:n seq:step time_ns:step stack:n context:n thread:n stream·16+memory:n
//! uses    = seq:step allocated_at:n freed_at:n(0: live, else 1 + operations) count:n reads:n writes:n last_opaque:n
//!           bits:n(bit 0: opaque_first, 1: escaped, 2: first and last use follow, 3: idle follows, 4: dead_write follows, 5: operands follow)
//!           [use use] [operations:n from_ns:step to_ns:step from_alloc:n to_alloc:n] [bytes:n first:n second:n stack:n]
//!           [count:n operand:step*]; each operand is the difference of the two blocks' numbers
//! use     = operation:n time_ns:step after_alloc:n frees_after:n stack:n kernel:n stream:n
//! memory  = a number in the order of `MemoryKind`
//! ```
//! If an alloc's alloc_seq has bit 61 set, the driver refused the last free of that block, and readers drop that free
//! and this alloc. Steps begin at 0 in every chunk, separately for times, addresses, block numbers and positions
//! (`at`).
//!
//! A device without a *live* chunk since its last *gap* had no live block at its first record. Readers compute its
//! later live blocks, the blocks of the peak and the scopes from the records (in a sample, the totals of scopes are
//! estimates, none higher than the peak). Readers skip chunks with unknown tags.
//!
//! # Parts
//! A stream with a budget consists of several files. `run.1.memtrace`, `run.2.memtrace`, … are its parts. Each part is
//! a capture that begins with the chunk *part*. For each device it then has a *gap*, the *live* blocks at that moment,
//! the blocks of the run's *peak*, and the *counters* of the whole run. `run.memtrace` names the stream: its version is
//! 2, and it has only a *part* with the number 0, and an *end* after the end of the run. `join` reads the parts as one
//! recording. Records between the last commit of a part and the start of the next count as skipped.

mod bytes;
mod codec;
mod decode;
mod encode;
mod gaps;
mod join;
mod limits;
mod part;
mod rebuild;

use std::ops::Range;

use crate::error::Error;
use crate::snapshot::{Block, DeviceMemory, Health, MemoryStats, Peak, Pool, Segment, SnapshotData, Stacks};
use crate::symbol::{AddressKind, Resolved, Symbols};

pub(crate) use decode::{begins_like_one, has_end, is_committed};
#[doc(hidden)]
pub use encode::Encoder;
pub use encode::write;
pub(crate) use join::{part_of, read, read_parts};
#[doc(hidden)]
pub use part::{StreamPart, end_mark, part_path, stream_name};

const MAGIC: &[u8; 8] = b"memtrace";
const VERSION: u32 = 1;
/// The version of a file that only names a stream in parts. Older readers, which do not know parts, refuse the file.
const NAME_VERSION: u32 = 2;
const HEADER: usize = 12;
/// Length of the tag, the length and the checksum before a payload.
const CHUNK_HEADER: usize = 13;

/// Declares [`Tag`] and the list of all tags.
macro_rules! tags {
    ($($name:ident = $number:literal,)*) => {
        /// The kind of a chunk.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        enum Tag { $($name = $number,)* }

        impl Tag {
            fn of(byte: u8) -> Option<Self> {
                [$(Self::$name),*].into_iter().find(|tag| *tag as u8 == byte)
            }
        }
    };
}

tags! {
    Process = 1, Settings = 2, Threads = 3, Objects = 4, Addresses = 5, Stacks = 6, Contexts = 7, Frames = 8,
    Gap = 9, Records = 10, Marks = 11, Live = 12, Peak = 13, Counters = 14, Scopes = 15, Segments = 16,
    Commit = 17, End = 18, Names = 19, Pool = 20, Ooms = 21, Memory = 22, SegmentRecords = 23, Calls = 24,
    Sampling = 25, Counted = 26, Skipped = 27, Gaps = 28, ImportNotes = 29, HostMemory = 30, PrivatePools = 31,
    Kernels = 33, GpuWork = 34, Uses = 35, Kinds = 36, OwnFolder = 37,
    Mappings = 39, GraphNodes = 40, Launcher = 41, Idle = 42, Unified = 43,
    Part = 44, LogStart = 45, Older = 46, TotalAtFirst = 47, OlderScopes = 48,
    Local = 49, DeviceThreads = 50,
}

/// A device's numbers at a commit that do not follow from its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Live bytes from before the recording.
    pub not_recorded: u64,
    /// Live bytes in blocks below the threshold.
    pub below_threshold: u64,
    /// The peak, without its blocks.
    pub peak: Peak,
    /// The counters.
    pub stats: MemoryStats,
}

/// The driver's own numbers of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Driver {
    /// The device's default pool.
    pub pool: Option<Pool>,
    /// The whole device.
    pub memory: Option<DeviceMemory>,
}

/// The state of the whole recording at a commit.
#[derive(Clone, Debug, Default)]
pub struct Commit {
    /// Time since the recording began.
    pub duration_ns: u64,
    /// What the recording missed.
    pub health: Health,
}

/// The private pool of a segment. `segment` is the position of the segment in the list.
#[derive(Clone, Copy, Debug)]
struct PrivatePool {
    segment: usize,
    id: (u64, u64),
}

impl PrivatePool {
    fn of(segments: &[Segment]) -> Vec<Self> {
        let pools = segments.iter().enumerate();
        pools.filter_map(|(segment, it)| it.pool.map(|id| Self { segment, id })).collect()
    }

    fn put_into(&self, segments: &mut [Segment]) -> Result<(), Damage> {
        let segment = segments.get_mut(self.segment).ok_or(Damage("the pool of an unknown segment"))?;
        segment.pool = Some(self.id);
        Ok(())
    }
}

/// Why no writer can have written a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Damage(&'static str);

/// The content of a capture.
#[derive(Debug)]
pub(crate) struct DecodedCapture {
    pub(crate) data: SnapshotData,
    pub(crate) names: StoredNames,
    /// The position of the last commit in the bytes.
    pub(crate) commit: Range<usize>,
}

/// The functions and lines that a capture contains. For other addresses, the objects' files have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredNames {
    /// True if addresses have frames.
    pub(crate) any: bool,
    /// True if the stacks still have all calls, also those of native code.
    pub(crate) all_calls: bool,
    /// The kinds of addresses, by position. An address without a kind has a name and is of Rust.
    pub(crate) kinds: Vec<AddressKind>,
}

impl StoredNames {
    pub(crate) fn kind(&self, index: usize) -> AddressKind {
        self.kinds.get(index).copied().unwrap_or_default()
    }

    fn has(&self, index: usize) -> bool {
        self.any && !self.kind(index).unknown
    }

    /// The name or the label that the capture has for an address; `None` if it has no names at all.
    pub(crate) fn of(&self, index: usize, stacks: &Stacks) -> Option<Resolved> {
        let AddressKind { native, unknown } = self.kind(index);
        let frames = stacks.frames_at(stacks.addresses.get(index)?).to_vec();
        self.any.then_some(Resolved { frames, native, unknown })
    }

    /// True if files cannot add anything, and the stacks are already filtered.
    pub(crate) fn are_final(&self) -> bool {
        self.any && !self.all_calls && !self.kinds.iter().any(|kind| kind.unknown)
    }
}

/// A capture's bytes with names of functions added: the names and a copy of the last commit follow that commit. Nothing
/// else changes.
pub(crate) fn with_names(bytes: &[u8], commit: Range<usize>, symbols: Symbols) -> Result<Vec<u8>, Error> {
    let Symbols { addresses, frames, kinds, .. } = symbols;
    let names = encode::names(&Stacks { addresses, frames, ..Stacks::default() }, &kinds)?;
    let (until, after) = bytes.split_at_checked(commit.end).unwrap_or((bytes, &[]));
    Ok([until, &names, bytes.get(commit).unwrap_or_default(), after].concat())
}

/// More devices than any machine has. The limit is needed because PyTorch's pickles have a list for every number up to
/// the largest.
const MAX_ORDINALS: u64 = 1024;

/// Refuses a recording whose stacks and paths of scopes, if written out, are far longer than a file of `length` bytes
/// justifies.
pub(crate) fn check_texts(data: &SnapshotData, length: usize) -> Result<(), &'static str> {
    limits::check(data, &StoredNames::default(), length).map_err(|Damage(why)| why)
}

/// Sorts blocks in the order of their allocation.
fn by_seq(mut blocks: Vec<Block>) -> Vec<Block> {
    blocks.sort_unstable_by_key(|block| block.seq);
    blocks
}

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
mod case_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod join_tests;
#[cfg(test)]
mod names_tests;
#[cfg(test)]
mod refused_tests;
#[cfg(test)]
mod tests;
