//! Category timeline: the live bytes of each category before the log's first record and after each record.

use std::collections::HashSet;
use std::num::NonZeroU64;

use super::log;
use crate::attribute::Categories;
use crate::recording::DeviceView;
use crate::snapshot::{Category, DeviceSnapshot, Record, RecordKind};

/// Live bytes by category at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CategoryBytes([u64; Category::ALL.len()]);

impl CategoryBytes {
    /// The bytes of a category.
    pub fn get(&self, category: Category) -> u64 {
        self.0.get(category as usize).copied().unwrap_or(0)
    }

    /// The sum over all categories.
    pub fn total(&self) -> u64 {
        self.0.iter().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    fn add(&mut self, category: Category, bytes: u64) {
        if let Some(own) = self.0.get_mut(category as usize) {
            *own = own.saturating_add(bytes);
        }
    }

    /// Subtracts bytes from a category. If the category has fewer bytes, as in an inconsistent log, the remainder is
    /// subtracted from `Unknown`, and then from the other categories.
    fn take(&mut self, category: Category, mut bytes: u64) {
        for from in [category, Category::Unknown].into_iter().chain(Category::ALL) {
            if let Some(own) = self.0.get_mut(from as usize) {
                let taken = bytes.min(*own);
                *own -= taken;
                bytes -= taken;
            }
        }
    }

    /// Moves bytes from `Unknown` to a category.
    fn explain(&mut self, category: Category, bytes: u64) {
        let explained = bytes.min(self.get(Category::Unknown));
        self.take(Category::Unknown, explained);
        self.add(category, explained);
    }
}

/// A record of the log, and the live bytes after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CategoryStep {
    /// Nanoseconds since the recording began.
    pub time_ns: u64,
    /// The category of the record's block.
    pub category: Category,
    /// Bytes added by the record; negative for a free.
    pub change: i64,
    /// Live bytes after the record.
    pub bytes: CategoryBytes,
}

/// A device's log by category. At every record, the categories add up to the device's total, to the byte.
///
/// Blocks that were allocated before the log's first record have a category if they are freed in the log or live at the
/// end. Memory from before the recording has the category `Unknown`, and so have its frees.
#[derive(Clone, Debug)]
pub struct CategoryTimeline<'a> {
    device: &'a DeviceSnapshot,
    categories: Vec<Category>,
    start: CategoryBytes,
}

/// The category timeline of a device.
pub fn category_timeline<'a>(device: &DeviceView<'a>) -> CategoryTimeline<'a> {
    let known = device.categories();
    let (categories, start) = (of_records(device, known), at_start(device, known));
    CategoryTimeline { device: device.snapshot(), categories, start }
}

impl<'a> CategoryTimeline<'a> {
    /// Live bytes before the log's first record.
    pub fn start(&self) -> CategoryBytes {
        self.start
    }

    /// Where the log begins, in nanoseconds since the recording began: 0, or at its oldest record if older ones were
    /// overwritten.
    pub fn start_ns(&self) -> u64 {
        log::start_ns(self.device)
    }

    /// Each record with the live bytes after it, oldest first.
    pub fn steps(&self) -> impl Iterator<Item = CategoryStep> {
        let mut bytes = self.start;
        log::entries(self.device).zip(&self.categories).map(move |(moment, category)| {
            let before = bytes.total();
            bytes.add(*category, moment.allocated.saturating_sub(before));
            bytes.take(*category, before.saturating_sub(moment.allocated));
            CategoryStep { time_ns: moment.record.time_ns, category: *category, change: moment.change, bytes }
        })
    }
}

/// The category of each record's block. A block that is neither freed in the log nor live at the end, because its free
/// was missed, is `Unknown` from its alloc on.
fn of_records(device: &DeviceSnapshot, known: &Categories) -> Vec<Category> {
    let live = device.live.iter().map(|block| block.seq);
    let freed = device.records.iter().filter(|record| record.kind == RecordKind::Free);
    let kept: HashSet<Option<NonZeroU64>> = live.chain(freed.map(|record| record.alloc_seq)).collect();
    let category = |record: &Record| known.get(record.alloc_seq.filter(|_| kept.contains(&record.alloc_seq)));
    device.records.iter().map(category).collect()
}

fn at_start(device: &DeviceSnapshot, known: &Categories) -> CategoryBytes {
    let mut start = CategoryBytes::default();
    start.add(Category::Unknown, log::allocated_at_start(device));
    let mut seen = HashSet::from([None]);
    for record in &device.records {
        if seen.insert(record.alloc_seq) && record.kind == RecordKind::Free {
            start.explain(known.get(record.alloc_seq), device.weight(record.size).bytes);
        }
    }
    for block in device.live.iter().filter(|block| !seen.contains(&block.seq)) {
        start.explain(known.get(block.seq), device.weight(block.size).bytes);
    }
    start
}

#[cfg(test)]
mod tests {
    use std::iter;

    use proptest::prelude::*;

    use super::*;
    use crate::snapshot::SnapshotData;
    use crate::snapshot::testing::Story;

    /// Blocks with a size and a category, each live from one record to another or to the end. Some are from before the
    /// recording. The log has lost its oldest records.
    fn program() -> impl Strategy<Value = (SnapshotData, Vec<CategoryBytes>)> {
        // Every block has a stated category, so no category is inferred.
        let told = prop::sample::select(Category::ALL.to_vec()).prop_filter("told", |c| *c != Category::Unknown);
        let block = (1u64..5000, told, 0usize..60, prop::option::of(0usize..60), any::<bool>());
        (prop::collection::vec(block, 0..40), 0usize..50, 0u64..2000).prop_map(|(blocks, lost, before)| {
            let mut events: Vec<(usize, usize, RecordKind)> = Vec::new();
            for (number, (.., from, length, is_known)) in blocks.iter().enumerate() {
                events.extend(is_known.then_some((*from, number, RecordKind::Alloc)));
                events.extend(length.map(|length| (from + length + 1, number, RecordKind::Free)));
            }
            events.sort_by_key(|(at, ..)| *at);
            made(&blocks.iter().map(|b| (b.0, b.1, b.4)).collect::<Vec<_>>(), &events, lost, before)
        })
    }

    /// A snapshot of these events, and the expected bytes after each record that is left in the log.
    fn made(
        blocks: &[(u64, Category, bool)],
        events: &[(usize, usize, RecordKind)],
        lost: usize,
        before: u64,
    ) -> (SnapshotData, Vec<CategoryBytes>) {
        let category = |number: usize| if blocks[number].2 { blocks[number].1 } else { Category::Unknown };
        let unknown: u64 = blocks.iter().filter(|block| !block.2).map(|block| block.0).sum();
        let mut now = CategoryBytes::default();
        now.add(Category::Unknown, before + unknown);
        let (mut after, mut trace) = (vec![now], Story::cpu());
        trace.before(before + unknown);
        for &(at, number, kind) in events {
            let (size, told, is_known) = blocks[number];
            trace.at(at as u64 * 300);
            match (kind, is_known) {
                (RecordKind::Alloc, _) => trace.alloc(number, size).named("b", told),
                (RecordKind::Free, true) => trace.free(number),
                (RecordKind::Free, false) => trace.free_from_before(size),
            };
            match kind {
                RecordKind::Alloc => now.add(category(number), size),
                RecordKind::Free => now.0[category(number) as usize] -= size,
            }
            after.push(now);
        }
        let lost = lost.min(events.len());
        (trace.overwritten(lost).build(), after.split_off(lost))
    }

    proptest! {
        #[test]
        fn every_record_has_the_bytes_of_each_category_and_their_sum((data, after) in program()) {
            let device = &data.devices[0];
            let timeline = category_timeline(&DeviceView::of(&data, device));
            let found: Vec<_> = iter::once(timeline.start()).chain(timeline.steps().map(|step| step.bytes)).collect();
            let totals: Vec<u64> = log::entries(device).map(|moment| moment.allocated).collect();
            prop_assert_eq!(found.iter().skip(1).map(CategoryBytes::total).collect::<Vec<_>>(), totals);
            prop_assert_eq!(found, after);
        }
    }

    /// At the peak, a parameter is live, which is freed later, and an older block, which stays.
    fn parameter_beside_another_block() -> Story {
        let mut trace = Story::cpu();
        trace.before(1024);
        trace.at(1_000).alloc("older", 2000);
        trace.at(2_000).alloc("parameter", 1000).named("weights", Category::Parameter);
        trace.at(3_000).alloc("newer", 500);
        trace.at(4_000).free("parameter");
        trace.at(5_000).alloc("temporary", 64);
        trace.at(6_000).free("temporary");
        trace
    }

    #[test]
    fn a_log_that_makes_no_sense_still_adds_up() {
        let mut data = parameter_beside_another_block().build();
        let device = &mut data.devices[0];
        device.stats.allocated_bytes.current = 10;
        device.live.first_mut().unwrap().size = u64::MAX;
        device.records.reverse();
        let timeline = category_timeline(&DeviceView::of(&data, &data.devices[0]));
        let totals: Vec<u64> = log::entries(&data.devices[0]).map(|moment| moment.allocated).collect();
        assert_eq!(timeline.steps().map(|step| step.bytes.total()).collect::<Vec<_>>(), totals);
    }

    #[test]
    fn a_block_that_was_lost_track_of_is_unknown_from_its_alloc_on() {
        let mut data = parameter_beside_another_block().build();
        let device = &mut data.devices[0];
        let parameter = device.names.iter().map(|name| name.seq).next();
        let lost = |record: &&mut Record| record.kind == RecordKind::Free && record.alloc_seq == parameter;
        device.records.iter_mut().find(lost).unwrap().alloc_seq = None;
        let timeline = category_timeline(&DeviceView::of(&data, &data.devices[0]));
        assert_eq!(timeline.start().total(), 1024);
        assert!(timeline.steps().all(|step| step.bytes.get(Category::Parameter) == 0));
    }
}
