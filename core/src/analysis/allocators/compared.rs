//! Compares the model of PyTorch's allocator with a file that PyTorch wrote, event by event, from the file's first
//! known state.
//!
//! Two things are not the allocator's decision and come from the file: where the driver puts a new segment, and when
//! the program releases segments (`torch.cuda.empty_cache`). The allocator's own decisions are compared: the address of
//! each block, and the reserved bytes.

use std::collections::{BTreeMap, VecDeque};
use std::iter::Peekable;

use super::super::reserved::{Reserved, at_log_start};
use super::allocator::Allocator;
use super::model::AllocatorModel;
use super::pytorch::{PyTorchAllocator, TorchSegment};
use super::settings::PyTorchSettings;
use crate::hashed::HashMap;
use crate::recording::DeviceView;
use crate::snapshot::{Block, DeviceSnapshot, Record, RecordKind, Replay, SegmentRecord};

/// How well the model of PyTorch's allocator agrees with a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ComparedWithFile {
    /// Allocs and frees in the log.
    pub events: usize,
    /// Allocs.
    pub allocs: usize,
    /// Allocs that the model placed at the same address as the file.
    pub same_address: usize,
    /// Events after which the file and the model had the same number of bytes reserved.
    pub same_reserved: usize,
    /// The largest difference in reserved bytes after an event.
    pub largest_difference: u64,
    /// In the file: reserved bytes and number of segments at the end of the log.
    pub in_file: (u64, usize),
    /// In the model: reserved bytes and number of segments at the end of the log.
    pub in_model: (u64, usize),
}

impl DeviceView<'_> {
    /// Compares the file with the model, which has the settings that the file names. `None` if the recording is not
    /// PyTorch's.
    ///
    /// # Errors
    /// The reason why nothing was compared.
    pub fn compared_with_file(&self) -> Option<Result<ComparedWithFile, &'static str>> {
        let AllocatorModel::PyTorch(settings) = self.own_allocator() else { return None };
        Some(match () {
            () if self.segments.iter().all(|segment| segment.estimated) => Err("the file names no segments"),
            () if self.segments.iter().any(|segment| segment.pool.is_some()) => {
                Err("the file has private pools, which the model has not")
            }
            () if settings.expandable => Err("the file does not say where expandable segments begin and end"),
            () if self.pytorch_variable().is_some_and(PyTorchSettings::has_list) => {
                Err("it rounds each range of sizes in its own way, which the model does not")
            }
            () => Ok(Comparison::new(self, settings).run(self)),
        })
    }
}

struct Comparison {
    model: PyTorchAllocator,
    /// Addresses in the model, by block number.
    places: HashMap<u64, u64>,
    /// The file's segments that the model does not have yet. The model's next segments get their addresses.
    given: VecDeque<SegmentRecord>,
    /// The model's next own address, for segments that the file does not have.
    own: u64,
    found: ComparedWithFile,
}

/// The model's own addresses begin here, above the file's.
const OWN: u64 = 1 << 60;

impl Comparison {
    fn new(device: &DeviceSnapshot, settings: PyTorchSettings) -> Self {
        let start = Replay::at_log_start(device).blocks();
        let places = start.iter().map(|block| (block.raw_seq(), block.address)).collect();
        let given = device.segment_records.iter().filter(|segment| segment.kind == RecordKind::Alloc);
        let mut model = PyTorchAllocator::new(settings);
        seed(&mut model, device, start);
        Self { model, places, given: given.copied().collect(), own: OWN, found: ComparedWithFile::default() }
    }

    fn run(mut self, device: &DeviceSnapshot) -> ComparedWithFile {
        let mut reserved = Reserved::of(device);
        let released = device.segment_records.iter().filter(|segment| segment.kind == RecordKind::Free);
        let mut released = released.peekable();
        for record in &device.records {
            self.release(&mut released, record.time_ns);
            match record.kind {
                RecordKind::Alloc => self.alloc(record),
                RecordKind::Free => {
                    self.places.remove(&record.raw_seq()).into_iter().for_each(|at| self.model.free(at))
                }
            }
            if let Some(reserved) = &mut reserved {
                reserved.before(record.time_ns, |_, _| {});
                self.see(reserved.bytes());
            }
        }
        self.release(&mut released, u64::MAX);
        self.found.events = device.records.len();
        let told = device.segments.iter().filter(|segment| !segment.estimated);
        self.found.in_file = (told.clone().map(|segment| segment.size).sum(), told.count());
        self.found.in_model = (self.model.reserved(), self.model.segments());
        self.found
    }

    /// Releases the segments that the file released before a record.
    fn release<'s>(&mut self, released: &mut Peekable<impl Iterator<Item = &'s SegmentRecord>>, time_ns: u64) {
        while let Some(segment) = released.next_if(|segment| segment.time_ns <= time_ns) {
            self.model.release(segment.address);
        }
    }

    fn alloc(&mut self, record: &Record) {
        self.model.next = self.addresses(record);
        let Some(address) = self.model.alloc(record.size, record.stream, u64::MAX) else { return };
        if self.given.front().is_some_and(|given| self.model.segments.contains_key(&given.address)) {
            self.given.pop_front();
        }
        self.own = self.own.max(self.model.next);
        self.places.insert(record.raw_seq(), address);
        self.found.allocs += 1;
        self.found.same_address += usize::from(address == record.address);
    }

    /// Where a new segment for this record lies: at the address of the file's next segment, if the file has it by then
    /// and its size fits. Otherwise at an address of the model's own.
    fn addresses(&self, record: &Record) -> u64 {
        let length = self.model.rounded(record.size).and_then(PyTorchAllocator::segment_size);
        let given = self.given.front().filter(|given| given.time_ns <= record.time_ns && Some(given.size) == length);
        given.filter(|given| self.model.is_clear(given.address, given.size)).map_or(self.own, |given| given.address)
    }

    fn see(&mut self, in_file: u64) {
        let difference = in_file.abs_diff(self.model.reserved());
        self.found.same_reserved += usize::from(difference == 0);
        self.found.largest_difference = difference.max(self.found.largest_difference);
    }
}

/// Adds the file's segments at the beginning of the log, with the blocks that were live then.
fn seed(model: &mut PyTorchAllocator, device: &DeviceSnapshot, mut start: Vec<Block>) {
    start.sort_unstable_by_key(|block| block.address);
    let segments = at_log_start(device);
    let streams = streams(device, &segments, &start);
    for (address, size) in segments {
        let stream = streams.get(&address).copied().unwrap_or(0);
        let from = start.partition_point(|block| block.address < address);
        let to = start.partition_point(|block| block.address < address + size);
        let segment = TorchSegment::of_size(size, stream);
        model.seed(address, segment, start.get(from..to).unwrap_or_default());
    }
}

/// The stream of each segment, known from its blocks; unknown if it never has a block.
fn streams(device: &DeviceSnapshot, segments: &BTreeMap<u64, u64>, start: &[Block]) -> BTreeMap<u64, u32> {
    let mut streams = BTreeMap::new();
    let records = device.records.iter().map(|record| (record.address, record.stream));
    for (address, stream) in start.iter().map(|block| (block.address, block.stream)).chain(records) {
        if let Some((base, _)) = segments.range(..=address).next_back().filter(|(base, size)| address - *base < **size)
        {
            streams.entry(*base).or_insert(stream);
        }
    }
    streams
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::testing::Story;
    use crate::snapshot::{Frame, SnapshotData};

    const MIB: u64 = 1 << 20;

    /// A story of a PyTorch program: its stacks are Python's.
    fn of_python(mut story: Story) -> SnapshotData {
        let frame = Frame { function: Some("<module>".into()), file: Some("train.py".into()), ..Frame::default() };
        story.stacks(crate::snapshot::testing::stacks(vec![frame], [&[0][..]]));
        story.build()
    }

    fn compared(story: Story) -> ComparedWithFile {
        let data = of_python(story);
        DeviceView::of(&data, &data.devices[0]).compared_with_file().unwrap().unwrap()
    }

    fn story() -> Story {
        let mut story = Story::cuda(0);
        story.at(1_000).segment_alloc(64 * MIB, 20 * MIB).alloc("first", 2 * MIB).address(64 * MIB);
        story.at(2_000).alloc("second", 3 * MIB).address(66 * MIB);
        story.at(3_000).free("first");
        story.at(4_000).alloc("third", 1_500_000).address(64 * MIB);
        story.at(5_000).segment_alloc(32 * MIB, 2 * MIB).alloc("small", 100).address(32 * MIB);
        story
    }

    #[test]
    fn a_file_that_follows_the_rules_agrees_in_each_event() {
        let found = compared(story());
        assert_eq!((found.events, found.allocs, found.same_address, found.same_reserved), (5, 4, 4, 5));
        assert_eq!((found.largest_difference, found.in_file), (0, found.in_model));
    }

    #[test]
    fn another_address_and_another_segment_are_counted() {
        let mut other = story();
        other.at(6_000).segment_alloc(128 * MIB, 20 * MIB).alloc("fourth", 5 * MIB).address(128 * MIB);
        let found = compared(other);
        assert_eq!((found.allocs, found.same_address, found.same_reserved), (5, 4, 5));
        assert_eq!((found.largest_difference, found.in_file.1, found.in_model.1), (20 * MIB, 3, 2));
    }

    #[test]
    fn a_setting_that_the_model_does_not_have_is_the_reason_not_to_compare() {
        let mut data = of_python(story());
        data.health.import_notes.push("PYTORCH_CUDA_ALLOC_CONF=roundup_power2_divisions:[256:1,>:4]".to_owned());
        let found = DeviceView::of(&data, &data.devices[0]).compared_with_file().unwrap();
        assert_eq!(found, Err("it rounds each range of sizes in its own way, which the model does not"));
    }

    /// Compares genuine snapshots, if MEMTRACE_PYTORCH_SNAPSHOTS names a folder of them. Prints a row of docs/replay.md
    /// for each.
    #[test]
    fn genuine_files_follow_the_rules() {
        let Some(folder) = std::env::var_os("MEMTRACE_PYTORCH_SNAPSHOTS") else {
            return eprintln!("NOT RUN: MEMTRACE_PYTORCH_SNAPSHOTS names no folder");
        };
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "pickle")) {
            let data = crate::open(&file).unwrap();
            for device in &data.devices {
                let found = DeviceView::of(&data, device).compared_with_file().unwrap().unwrap();
                println!("{}: {found:?}", file.display());
                assert_eq!((found.same_address, found.same_reserved), (found.allocs, found.events));
                assert_eq!((found.largest_difference, found.in_model), (0, found.in_file));
            }
        }
    }
}
