//! The data model of a finished recording. It does not depend on the recorder. It is all that `attribute`, `analysis`,
//! `report` and `export` read.

use std::num::NonZeroU64;

mod calls;
mod category;
mod cuda;
mod device;
mod graph_node;
mod health;
mod host_memory;
mod ids;
mod lifetimes;
mod mappings;
mod memory_kind;
mod names;
mod objects;
mod older;
mod oom;
mod open_stack;
mod process;
mod record;
mod refused;
mod replay;
mod rules;
mod sampling;
mod scopes;
#[doc(hidden)]
pub mod segments;
mod settings;
mod stacks;
mod stats;
mod symbol_name;
#[cfg(test)]
pub(crate) mod testing;
mod unified;
mod uses;
mod weight;
mod words;

pub use calls::CallTime;
pub use category::Category;
pub use cuda::{CudaHooks, CudaState, DeviceMemory, DeviceThreads, GraphMemory, Pool, UnseenCalls};
pub use device::Device;
pub use graph_node::{GraphNode, GraphNodeKind};
pub use health::{Health, Spans};
pub use host_memory::HostMemory;
pub use ids::{ContextId, StackId, ThreadId};
pub use lifetimes::{Lifetime, Lifetimes, LogPosition, NEVER};
pub use mappings::{Mapping, MappingKind, Mappings};
pub use memory_kind::MemoryKind;
pub use names::BlockName;
pub use objects::LoadedObject;
pub use older::{OlderRow, OlderTime};
pub use oom::OutOfMemory;
pub(crate) use open_stack::{OpenPlace, OpenStack};
pub use process::{Launcher, Process, Thread};
pub use record::{Block, Record, RecordKind};
pub use replay::Replay;
pub(crate) use rules::Fact;
pub use rules::Rules;
pub use sampling::Sampling;
pub use scopes::{ContextNode, Mark, ScopeStats};
pub(crate) use scopes::{Totals, scopes_of_log};
pub use segments::{Segment, SegmentRecord};
pub use settings::{Action, Enabled, Settings, StackContext, StackKind};
pub use stacks::{CodeAddress, Frame, Stacks};
pub use stats::{Counted, MemoryStats, Stat};
pub use unified::{ResidentMemory, SystemMemory, UnifiedMemory};
pub use uses::{
    BlockIdle, BlockUse, BlockUses, DeadWrite, GpuTotals, GpuWork, IdleTime, KernelId, LocalMemory, Operands,
};
pub use weight::Weight;
pub(crate) use words::words;
#[doc(hidden)]
pub use {
    memory_kind::MADE_UP,
    names::LONGEST_NAME,
    objects::ObjectSpans,
    refused::{Refused, leave_out, positions, refused_frees},
    sampling::MAX_INTERVAL,
    settings::DEFAULT_STACK_DEPTH,
    stacks::FRAMES_LEFT_OUT,
    symbol_name::SymbolName,
};

/// The high-water mark of a device: the moment at which most bytes were live.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Bytes live at that moment: the weights of `blocks` ([`DeviceSnapshot::peak_weights`]) plus `not_recorded`.
    ///
    /// On the CPU, blocks below the threshold are not included; [`total`](Self::total) adds them. In a sample, the
    /// counted live bytes are compared only when a block is recorded. Between two recorded blocks more bytes may have
    /// been live; each thread allocates about one sampling interval between them.
    pub bytes: u64,
    /// Nanoseconds since the recording began.
    pub time_ns: u64,
    /// Position in the log of the alloc that reached the peak; `None` if no alloc exceeded what was live at the start.
    pub seq: Option<NonZeroU64>,
    /// The recorded blocks that were live, in the order of their allocation.
    pub blocks: Vec<Block>,
    /// Live bytes in blocks from before the recording, and in blocks counted in [`Health::lost_blocks`]. In a sample,
    /// also the bytes that no sampled block represents; if `blocks` has no sampled block, these are the bytes of all
    /// small blocks.
    pub not_recorded: u64,
    /// CPU only: live bytes in blocks below the threshold. The counter of each thread is exact, but the counters are
    /// read one after another, while the threads may allocate.
    pub below_threshold: u64,
}

impl Peak {
    /// All live bytes: `bytes` plus `below_threshold`.
    pub fn total(&self) -> u64 {
        self.bytes + self.below_threshold
    }
}

/// Records that are missing in a streamed capture, because the program made them faster than they could be written.
///
/// The state on both sides of a gap is known. A block freed within the gap has its free at the beginning of the gap. A
/// block allocated within it and still live at its end has its alloc there. So sums over the log are right on both
/// sides of a gap, and too small within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Gap {
    /// How many of [`DeviceSnapshot::records`] precede the gap.
    #[serde(skip)]
    pub at: usize,
    /// Number of missing records.
    pub records: u64,
    /// Beginning of the gap, in nanoseconds since the recording began.
    pub from_ns: u64,
    /// End of the gap, in nanoseconds since the recording began.
    pub to_ns: u64,
}

/// The recording of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceSnapshot {
    /// The device.
    pub device: Device,
    /// How blocks were sampled. In a sample, live bytes (now and at the peak) are counted. All other totals and tables
    /// are estimates. Blocks and records have their real sizes.
    pub sampling: Sampling,
    /// The log, oldest first.
    pub records: Vec<Record>,
    /// Number of older records that the ring buffer has overwritten.
    pub overwritten: u64,
    /// Where a streamed capture lacks records.
    pub gaps: Vec<Gap>,
    /// Summaries of the time spans whose records a stream with a budget deleted, oldest first. Empty for other
    /// recordings.
    pub older: Vec<OlderTime>,
    /// Recorded blocks that are live, in the order of their allocation.
    pub live: Vec<Block>,
    /// Live bytes in blocks of at least the threshold from before the recording. In a sample, also the other bytes
    /// that [`Peak::not_recorded`] describes.
    pub not_recorded: u64,
    /// CPU only: live bytes in blocks below the threshold.
    pub below_threshold: u64,
    /// The peak; exact even if the ring buffer has overwritten records.
    pub peak: Peak,
    /// Counters.
    pub stats: MemoryStats,
    /// Refused allocations, oldest first; the newest 256 are kept. On the CPU, programs seldom survive a refused
    /// allocation.
    pub ooms: Vec<OutOfMemory>,
    /// CUDA only: the driver's statistics of the device's default pool, if the query succeeded.
    pub pool: Option<Pool>,
    /// CUDA only: the driver's statistics of the device, if the query succeeded.
    pub memory: Option<DeviceMemory>,
    /// CUDA only: bytes that the device has, as the driver reported when the first block was recorded. A stream has
    /// this value from then on, but it has [`memory`](Self::memory) only after the stream has ended. See
    /// [`capacity`](Self::capacity).
    pub total_at_first: Option<u64>,
    /// The segments that exist: those that the driver reported, and estimated ones for addresses outside of every
    /// segment that was ever reported. Together with `segment_records` they cover every address of the log.
    pub segments: Vec<Segment>,
    /// Segments allocated and freed, oldest first, at most 65,536; only those that the driver reported.
    pub segment_records: Vec<SegmentRecord>,
    /// Time in driver calls by stack and context. It covers all calls, even if the log has lost records.
    pub calls: Vec<CallTime>,
    /// Totals of each context.
    pub scopes: Vec<ScopeStats>,
    /// Scopes entered and left, oldest first.
    pub marks: Vec<Mark>,
    /// Names of blocks, sorted by the blocks' numbers; including freed blocks.
    pub names: Vec<BlockName>,
    /// Names dropped because the name table was full.
    pub lost_names: u64,
    /// Uses of blocks, sorted by the blocks' numbers; including freed blocks. Only with [`Settings::uses`].
    pub uses: Vec<BlockUses>,
    /// Time spans in which nothing used a large block, sorted by the blocks' numbers, then by time. Between two writes
    /// of a stream, the newest 131,072 are kept. Only with [`Settings::uses`].
    pub idle: Vec<BlockIdle>,
    /// The orders of backward passes that the program reported, oldest first, at most 65,536 nodes.
    pub graph_nodes: Vec<GraphNode>,
}

/// A finished recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotData {
    /// The recorded process.
    pub process: Process,
    /// The settings of the recording.
    pub settings: Settings,
    /// The devices that were used, the CPU first.
    pub devices: Vec<DeviceSnapshot>,
    /// All call stacks.
    pub stacks: Stacks,
    /// The tree of contexts; entry 0 is the root.
    pub contexts: Vec<ContextNode>,
    /// The objects (programs and libraries) that were loaded.
    pub objects: Vec<LoadedObject>,
    /// What the recording missed.
    pub health: Health,
    /// The GPU operations, if uses were recorded ([`Settings::uses`]).
    pub gpu_work: Option<GpuWork>,
}

impl SnapshotData {
    /// The recording of one device, if it was used.
    pub fn device(&self, device: Device) -> Option<&DeviceSnapshot> {
        self.devices.iter().find(|d| d.device == device)
    }

    /// The scope names of a context, outermost first, joined by ` > `; empty for the root.
    pub fn context_path(&self, context: ContextId) -> String {
        self.context_names(context).join(" > ")
    }

    /// The scope names of a context, outermost first.
    pub fn context_names(&self, context: ContextId) -> Vec<&str> {
        let name = |id: ContextId| self.contexts.get(id.0 as usize).map_or("", |node| node.name.as_str());
        self.context_ids(context)
            .into_iter()
            .map(name)
            .map(|name| if name.is_empty() { "(unnamed)" } else { name })
            .collect()
    }

    /// The number of scopes in each context's path. The tree lists parents before their children.
    pub(crate) fn context_depths(&self) -> Vec<usize> {
        let mut depths: Vec<usize> = Vec::with_capacity(self.contexts.len());
        for (at, node) in self.contexts.iter().enumerate() {
            depths.push(if at == 0 { 0 } else { depths.get(node.parent.0 as usize).map_or(1, |around| around + 1) });
        }
        depths
    }

    /// A context and its ancestors without the root, outermost first.
    pub(crate) fn context_ids(&self, context: ContextId) -> Vec<ContextId> {
        let mut ids = Vec::new();
        let mut at = context;
        while at != ContextId::ROOT {
            ids.push(at);
            at = self.contexts.get(at.0 as usize).map_or(ContextId::ROOT, |node| node.parent);
        }
        ids.reverse();
        ids
    }
}
