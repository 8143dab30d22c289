//! A finished recording: plain data that knows nothing of where it came from.
//!
//! Everything right of here (`attribute`, `analysis`, `export`) reads it and nothing else.

use std::num::NonZeroU64;

mod calls;
mod category;
mod cuda;
mod device;
mod health;
mod ids;
mod memory_kind;
mod objects;
mod names;
mod oom;
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
mod weight;

pub use calls::CallTime;
pub use category::Category;
pub use cuda::{CudaHooks, CudaState, DeviceMemory, GraphMemory, Pool, UnseenCalls};
pub use device::Device;
pub use health::{Health, Spans};
pub use ids::{ContextId, StackId, ThreadId};
#[doc(hidden)]
pub use memory_kind::MADE_UP;
pub use memory_kind::MemoryKind;
pub use objects::LoadedObject;
#[doc(hidden)]
pub use objects::ObjectSpans;
pub use names::BlockName;
#[doc(hidden)]
pub use names::LONGEST_NAME;
pub(crate) use names::NamesBySeq;
pub use oom::OutOfMemory;
pub use process::{Process, Thread};
pub use record::{Block, Record, RecordKind};
#[doc(hidden)]
pub use refused::{Refused, leave_out, positions, refused_frees};
pub use replay::Replay;
pub(crate) use rules::Fact;
pub use rules::Rules;
#[doc(hidden)]
pub use sampling::MAX_INTERVAL;
pub use sampling::Sampling;
pub use scopes::{ContextNode, Mark, ScopeStats};
pub(crate) use scopes::{Totals, scopes_of_log};
pub use segments::{Segment, SegmentRecord};
#[doc(hidden)]
pub use settings::DEFAULT_STACK_DEPTH;
pub use settings::{Action, Enabled, Settings, StackContext, StackKind};
#[doc(hidden)]
pub use stacks::FRAMES_LEFT_OUT;
pub use stacks::{CodeAddress, Frame, Stacks};
pub use stats::{Counted, MemoryStats, Stat};
#[doc(hidden)]
pub use symbol_name::SymbolName;
pub use weight::Weight;

/// The moment at which most bytes were live on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Bytes live at that moment: `blocks`, or what they stand for if they are a sample
    /// ([`DeviceSnapshot::peak_weights`]), plus `not_recorded`.
    ///
    /// On the CPU device this is the largest sum over all blocks of at least the threshold;
    /// `below_threshold` comes on top. Of a sample it is the largest sum that was counted when a block was recorded:
    /// between two of these, about an interval of each thread's allocations, there may have been more.
    pub bytes: u64,
    /// When: nanoseconds since the recording began.
    pub time_ns: u64,
    /// Position in the log of the alloc that made the peak; `None` if no alloc exceeded what was live at the start.
    pub seq: Option<NonZeroU64>,
    /// Exactly the recorded blocks that were live then, in the order of their allocation.
    pub blocks: Vec<Block>,
    /// Bytes in blocks from before the recording (and in blocks counted in
    /// [`Health::lost_blocks`]) that were live then. Of a sample they are what the sample does not stand for; with no
    /// block of it live, these are all small blocks.
    pub not_recorded: u64,
    /// CPU only: bytes in blocks smaller than the threshold then. Exact for each thread; the
    /// threads' counters are read one after another.
    pub below_threshold: u64,
}

impl Peak {
    /// Everything that was live: `bytes` plus `below_threshold`.
    pub fn total(&self) -> u64 {
        self.bytes + self.below_threshold
    }
}

/// Records that a streamed capture did not get, because the program made them faster than they could be written.
///
/// What was live before and behind is known: blocks that were freed meanwhile have a free at the gap's beginning, and
/// those that were allocated meanwhile and still live at its end have their alloc. So the log's sums are right before
/// and behind a gap, and within it they are too small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// How many of [`DeviceSnapshot::records`] stand before it.
    pub at: usize,
    /// How many records were not written.
    pub records: u64,
    /// Its beginning: nanoseconds since the recording began.
    pub from_ns: u64,
    /// Its end.
    pub to_ns: u64,
}

/// One device's part of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSnapshot {
    /// Which device.
    pub device: Device,
    /// How its blocks were chosen. If only some of the small ones were recorded, what is live, now and at the peak, is
    /// counted, and its sums and tables are estimates, as are all other totals; blocks and records have their real sizes.
    pub sampling: Sampling,
    /// The log, oldest first.
    pub records: Vec<Record>,
    /// How many older records the ring has overwritten.
    pub overwritten: u64,
    /// Where records are missing within the log: a streamed capture could not keep up.
    pub gaps: Vec<Gap>,
    /// Recorded blocks that are live now, in the order of their allocation.
    pub live: Vec<Block>,
    /// Bytes live now that were allocated before the recording, in blocks of at least the threshold; of a sample as
    /// [`Peak::not_recorded`] has it.
    pub not_recorded: u64,
    /// CPU only: bytes live now in blocks smaller than the threshold.
    pub below_threshold: u64,
    /// The peak, exact whatever the ring has overwritten.
    pub peak: Peak,
    /// Counters.
    pub stats: MemoryStats,
    /// Allocations that were refused for lack of memory, the newest 256, oldest first. The CPU has none: a
    /// program seldom outlives that.
    pub ooms: Vec<OutOfMemory>,
    /// CUDA only: what the driver says of the device's default pool, if it could be asked.
    pub pool: Option<Pool>,
    /// CUDA only: what the driver says of the whole device, if it could be asked.
    pub memory: Option<DeviceMemory>,
    /// Segments as they are now: those that the driver told of, and others that cover what is outside of every
    /// segment it ever told of. With those of `segment_records` they cover every address in the log.
    pub segments: Vec<Segment>,
    /// Segments that came and went, oldest first, at most 65,536; only those that the driver told of.
    pub segment_records: Vec<SegmentRecord>,
    /// Time that the driver took, by stack and context; the sums are of all calls, whatever the log lost.
    pub calls: Vec<CallTime>,
    /// Totals per context, by [`ContextId`].
    pub scopes: Vec<ScopeStats>,
    /// Scopes entered and left, oldest first.
    pub marks: Vec<Mark>,
    /// Names of blocks, by the block's number; of freed blocks, too.
    pub names: Vec<BlockName>,
    /// Blocks that were to have a name when too many had one.
    pub lost_names: u64,
}

/// A finished recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotData {
    /// The program.
    pub process: Process,
    /// What was asked for.
    pub settings: Settings,
    /// The devices that were used, the CPU first.
    pub devices: Vec<DeviceSnapshot>,
    /// All stacks.
    pub stacks: Stacks,
    /// Tree of contexts; entry 0 is the root.
    pub contexts: Vec<ContextNode>,
    /// Programs and libraries that were loaded when the snapshot was taken.
    pub objects: Vec<LoadedObject>,
    /// What was missed.
    pub health: Health,
}

impl SnapshotData {
    /// The part of one device, if it was used.
    pub fn device(&self, device: Device) -> Option<&DeviceSnapshot> {
        self.devices.iter().find(|d| d.device == device)
    }

    /// The names of a context from the outermost scope inwards, joined by ` > `; empty for the root.
    pub fn context_path(&self, context: ContextId) -> String {
        self.context_names(context).join(" > ")
    }

    /// The names of a context from the outermost scope inwards.
    pub fn context_names(&self, context: ContextId) -> Vec<&str> {
        let name = |id: ContextId| self.contexts.get(id.0 as usize).map_or("", |node| node.name.as_str());
        self.context_ids(context)
            .into_iter()
            .map(name)
            .map(|name| if name.is_empty() { "(unnamed)" } else { name })
            .collect()
    }

    /// A context and those around it, the outermost first; without the root.
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
