//! Replays the log's requests with a model: what the model reserves over time, and where memory runs out.

use super::super::columns::Columns;
use super::super::{LiveSet, moment};
use super::allocator::Allocator;
use super::model::AllocatorModel;
use super::requests::{self, Request};
use super::settings::PyTorchSettings;
use crate::error::Error;
use crate::hashed::HashMap;
use crate::recording::DeviceView;
use crate::snapshot::Block;

/// What a model of an allocator does with a recording's requests. All byte counts include memory that does not come
/// from the allocator.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WhatIf {
    /// The model.
    pub model: AllocatorModel,
    /// The most bytes that were live. No allocator reserves less.
    pub live_peak: u64,
    /// The most bytes that were reserved.
    pub reserved_peak: u64,
    /// When that peak was first reached, in nanoseconds since the recording began.
    pub peak_ns: u64,
    /// Bytes that were live at that time.
    pub live_then: u64,
    /// Unused bytes of segments at that time. The rest of the difference between reserved and live bytes is rounding.
    pub free_then: u64,
    /// Number of segments at that time.
    pub segments_then: usize,
    /// Bytes reserved at the end.
    pub reserved_end: u64,
    /// Records of the log that were replayed.
    pub records: usize,
    /// The most bytes that were reserved within each column of the log's time.
    pub columns: Vec<u64>,
    /// The request that was refused; nothing after it was replayed.
    pub runs_out: Option<RunsOut>,
}

/// A request for which there is no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunsOut {
    /// Nanoseconds since the recording began.
    pub time_ns: u64,
    /// The number of records before the request.
    pub records: usize,
    /// Whether memory runs out before the log begins: the blocks that are live then do not fit. Their real placement is
    /// unknown.
    pub is_before_log: bool,
    /// The requested block; `None` if it was memory that does not come from the allocator.
    pub block: Option<Block>,
    /// Requested bytes.
    pub size: u64,
    /// Live bytes at that time.
    pub live: u64,
    /// Reserved bytes at that time.
    pub reserved: u64,
    /// Unused bytes of segments.
    pub free: u64,
    /// The largest free piece of a segment.
    pub largest_gap: u64,
}

impl DeviceView<'_> {
    /// Replays the device's requests with a model that has `memory` bytes. The result has `columns` columns.
    ///
    /// # Errors
    /// If the requests are not known, as in a sampled recording.
    pub fn what_if(&self, model: AllocatorModel, memory: Option<u64>, columns: usize) -> Result<WhatIf, Error> {
        requests::check(self)?;
        let mut replay = ModelReplay::new(self, model, memory, columns);
        requests::requests(self, |at, time_ns, request| replay.ask(at, time_ns, request));
        Ok(replay.finish())
    }

    /// The allocator that the recorded program most likely used: the driver's pool, or PyTorch's with the settings that
    /// the file names.
    pub fn own_allocator(&self) -> AllocatorModel {
        if self.data().is_python() {
            AllocatorModel::PyTorch(self.pytorch_variable().map_or_else(Default::default, PyTorchSettings::of_variable))
        } else {
            AllocatorModel::DriverPool { threshold: 0 }
        }
    }

    /// `PYTORCH_CUDA_ALLOC_CONF`, if the file names it.
    pub(super) fn pytorch_variable(&self) -> Option<&str> {
        let notes = &self.data().health.import_notes;
        notes.iter().find_map(|note| note.split_once("PYTORCH_CUDA_ALLOC_CONF=")).map(|(_, value)| value)
    }

    /// Start and end of the time that the columns cover.
    pub fn log_span_ns(&self) -> (u64, u64) {
        let time = Columns::of(self, 1);
        (time.from_ns, time.to_ns)
    }

    /// Blocks that were live when memory ran out.
    pub fn live_when(&self, out: &RunsOut) -> LiveSet<'_> {
        LiveSet::of(self, moment::after(self, out.records))
    }
}

struct ModelReplay {
    allocator: Box<dyn Allocator>,
    /// Address and size of live blocks, by block number.
    places: HashMap<u64, (u64, u64)>,
    memory: u64,
    /// Live bytes that do not come from the allocator.
    besides: i64,
    /// Live bytes that come from the allocator.
    live: u64,
    time: Columns,
    /// The column of the last request.
    column: usize,
    found: WhatIf,
}

impl ModelReplay {
    fn new(device: &DeviceView<'_>, model: AllocatorModel, memory: Option<u64>, columns: usize) -> Self {
        let found = WhatIf {
            model,
            live_peak: 0,
            reserved_peak: 0,
            peak_ns: 0,
            live_then: 0,
            free_then: 0,
            segments_then: 0,
            reserved_end: 0,
            records: device.records.len(),
            columns: vec![0; columns],
            runs_out: None,
        };
        let (allocator, time) = (model.build(memory), Columns::of(device, columns));
        let (places, besides, live, column) = Default::default();
        Self { allocator, places, memory: memory.unwrap_or(u64::MAX), besides, live, time, column, found }
    }

    /// Returns false if memory runs out.
    fn ask(&mut self, at: Option<usize>, time_ns: u64, request: Request) -> bool {
        self.lasts_until(time_ns);
        let is_there = match request {
            Request::Alloc(block) => self.alloc(&block),
            Request::Free(number) => self.free(number),
            Request::Besides(bytes) => self.besides(bytes),
            Request::Synchronise => {
                self.allocator.synchronise();
                true
            }
            Request::EmptyCache => {
                self.allocator.empty_cache();
                true
            }
        };
        if is_there {
            self.see(time_ns);
        } else {
            self.run_out(at, time_ns, request);
        }
        is_there
    }

    fn alloc(&mut self, block: &Block) -> bool {
        let limit = self.memory.saturating_sub(self.other());
        let Some(address) = self.allocator.alloc(block.size, block.stream, limit) else { return false };
        self.places.insert(block.raw_seq(), (address, block.size));
        self.live += block.size;
        true
    }

    fn free(&mut self, number: u64) -> bool {
        if let Some((address, size)) = self.places.remove(&number) {
            self.allocator.free(address);
            self.live -= size;
        }
        true
    }

    fn besides(&mut self, bytes: i64) -> bool {
        let is_there = |all: &Self| all.reserved().saturating_add_signed(bytes) <= all.memory;
        if bytes > 0 && !is_there(self) {
            self.allocator.trim();
        }
        let is_there = bytes <= 0 || is_there(self);
        self.besides += if is_there { bytes } else { 0 };
        is_there
    }

    /// Bytes that do not come from the allocator.
    fn other(&self) -> u64 {
        u64::try_from(self.besides).unwrap_or(0)
    }

    fn reserved(&self) -> u64 {
        self.allocator.reserved().saturating_add(self.other())
    }

    /// Enters the reserved bytes in all columns up to this time: they have not changed since the last request.
    fn lasts_until(&mut self, time_ns: u64) {
        let (column, reserved) = (self.time.place(time_ns), self.reserved());
        if let Some(columns) = self.found.columns.get_mut(self.column..=column) {
            columns.iter_mut().for_each(|highest| *highest = reserved.max(*highest));
        }
        self.column = self.column.max(column);
    }

    fn see(&mut self, time_ns: u64) {
        let (reserved, live) = (self.reserved(), self.live + self.other());
        if let Some(highest) = self.found.columns.get_mut(self.column) {
            *highest = reserved.max(*highest);
        }
        self.found.live_peak = live.max(self.found.live_peak);
        if reserved > self.found.reserved_peak {
            let found = &mut self.found;
            (found.reserved_peak, found.peak_ns, found.live_then) = (reserved, time_ns, live);
            found.free_then = self.allocator.reserved() - self.allocator.used();
            found.segments_then = self.allocator.segments();
        }
    }

    fn run_out(&mut self, at: Option<usize>, time_ns: u64, request: Request) {
        let (block, size) = match request {
            Request::Alloc(block) => (Some(block), block.size),
            Request::Besides(bytes) => (None, bytes.unsigned_abs()),
            Request::Free(_) | Request::Synchronise | Request::EmptyCache => (None, 0),
        };
        let records = at.unwrap_or(0);
        self.found.records = records;
        self.found.runs_out = Some(RunsOut {
            time_ns,
            records,
            is_before_log: at.is_none(),
            block,
            size,
            live: self.live + self.other(),
            reserved: self.reserved(),
            free: self.allocator.reserved() - self.allocator.used(),
            largest_gap: self.allocator.largest_gap(),
        });
    }

    fn finish(mut self) -> WhatIf {
        if self.found.runs_out.is_none() {
            self.lasts_until(u64::MAX);
        }
        self.found.reserved_end = self.reserved();
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::{Story, frame, stacks};
    use crate::snapshot::{MemoryKind, SnapshotData, StackId};

    const MIB: u64 = 1 << 20;

    fn found(data: &SnapshotData, model: &str, memory: Option<u64>, columns: usize) -> WhatIf {
        DeviceView::of(data, &data.devices[0]).what_if(model.parse().unwrap(), memory, columns).unwrap()
    }

    #[test]
    fn a_pool_releases_where_the_recorded_one_did_down_to_its_threshold() {
        let mut story = Story::cuda(0);
        story.at(1_000).segment_alloc(32 * MIB, 32 * MIB).alloc("a", 20 * MIB).address(32 * MIB);
        story.at(2_000).segment_alloc(96 * MIB, 32 * MIB).alloc("b", 20 * MIB).address(96 * MIB);
        story.at(3_000).free("a").at(4_000).segment_free(32 * MIB);
        story.at(5_000).alloc("c", 1000).address(120 * MIB);
        let data = story.build();
        let end = |model: &str| found(&data, model, None, 0).reserved_end / MIB;
        let models = ["driver-pool", "driver-pool,threshold=40MiB", "driver-pool,threshold=max"];
        assert_eq!(models.map(end), [32, 64, 64]);
    }

    #[test]
    fn pytorchs_allocator_empties_its_cache_where_the_recorded_program_did() {
        let mut story = Story::cuda(0);
        story.stacks(stacks(vec![frame("train", "train.py", 1)], [&[0][..]]));
        story.at(1_000).segment_alloc(32 * MIB, 20 * MIB).alloc("a", 8 * MIB).address(32 * MIB).on(StackId(1));
        story.at(2_000).free("a").at(3_000).segment_free(32 * MIB);
        story.at(4_000).alloc("b", 30 * MIB).address(96 * MIB).on(StackId(1));
        let data = story.build();
        let models = ["pytorch", "pytorch,expandable", "driver-pool,threshold=max"];
        assert_eq!(models.map(|model| found(&data, model, None, 0).reserved_peak / MIB), [30, 40, 32]);
    }

    #[test]
    fn what_comes_from_no_allocator_is_counted_beside_it() {
        let mut story = Story::cuda(0);
        story.before(3 * MIB).at(1_000).alloc("block", MIB);
        story.at(2_000).alloc("mapped", 10 * MIB).memory(MemoryKind::Virtual).at(3_000).free("mapped");
        let data = story.build();
        let all = found(&data, "driver-pool", Some(45 * MIB), 0);
        assert_eq!((all.reserved_peak, all.live_peak, all.reserved_end), (45 * MIB, 14 * MIB, 35 * MIB));
        let out = found(&data, "driver-pool", Some(44 * MIB), 0).runs_out.unwrap();
        assert_eq!((out.records, out.block, out.size, out.is_before_log), (1, None, 10 * MIB, false));
        assert!(found(&data, "pytorch", Some(2 * MIB), 0).runs_out.unwrap().is_before_log);
    }

    #[test]
    fn what_an_allocator_keeps_for_later_makes_room_for_what_comes_from_no_allocator() {
        let mut story = Story::cuda(0);
        story.at(1_000).alloc("a", 8 * MIB).at(2_000).free("a");
        story.at(3_000).alloc("mapped", 10 * MIB).memory(MemoryKind::Virtual);
        let data = story.build();
        let found = found(&data, "pytorch", Some(25 * MIB), 0);
        assert_eq!((found.runs_out, found.reserved_peak, found.reserved_end), (None, 20 * MIB, 10 * MIB));
    }

    #[test]
    fn what_is_reserved_lasts_into_the_columns_that_follow() {
        let mut story = Story::cuda(0);
        story.lasting(4_000);
        story.at(1_100).alloc("a", 20 * MIB).at(1_200).free("a").at(3_500).alloc("b", 33 * MIB);
        let columns = found(&story.build(), "driver-pool", None, 4).columns;
        assert_eq!(columns.iter().map(|bytes| bytes / MIB).collect::<Vec<_>>(), [0, 32, 32, 96]);
    }

    #[test]
    fn a_sample_and_memory_without_an_allocator_are_refused() {
        let mut story = Story::cpu();
        let data = story.sampled(1024).alloc("a", 100).build();
        let pool: AllocatorModel = "driver-pool".parse().unwrap();
        assert!(DeviceView::of(&data, &data.devices[0]).what_if(pool, None, 0).is_err());
        let mut data = Story::cuda(0).alloc("a", 100).build();
        data.devices[0].device = crate::snapshot::Device::Pinned;
        assert!(DeviceView::of(&data, &data.devices[0]).what_if(pool, None, 0).is_err());
    }
}
