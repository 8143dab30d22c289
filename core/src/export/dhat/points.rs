//! Program points of DHAT: the blocks that the recording knows, summed by the frames of their stacks.

use std::collections::HashMap;

use crate::analysis::{LiveSet, NO_STACK, log_start_ns, place};
use crate::export::viewers::{ShownFrames, frame_name};
use crate::numbered::Numbered;
use crate::recording::DeviceView;
use crate::snapshot::{DeviceSnapshot, Frame, RecordKind, SnapshotData, StackId, Weight};

/// The sums over the blocks of a point.
#[derive(Default)]
pub(super) struct HeapPoint {
    /// All that was allocated.
    pub(super) total: Weight,
    /// What was live at the point's own maximum.
    pub(super) maximum: Weight,
    pub(super) at_peak: Weight,
    pub(super) at_end: Weight,
    /// Sum of the blocks' lifetimes.
    pub(super) lifetimes_us: f64,
    /// Live bytes during the replay of the log.
    now: Weight,
}

impl HeapPoint {
    fn allocate(&mut self, weight: Weight) {
        self.now += weight;
        self.reaches(self.now);
    }

    fn reaches(&mut self, weight: Weight) {
        if weight.bytes > self.maximum.bytes {
            self.maximum = weight;
        }
    }
}

/// The points by their frames, which are numbers in the `names` of `points`, innermost first. No two points have the
/// same frames, because the viewer expects each call path once.
pub(super) type HeapPoints = Numbered<Vec<usize>, HeapPoint>;

pub(super) fn points(device: &DeviceView<'_>, names: &mut Numbered<String>) -> HeapPoints {
    let mut points = PointBuilder::new(device.data(), names);
    points.totals(device);
    points.replay(device);
    points.add(&device.at_peak(), |point| &mut point.at_peak);
    points.add(&device.at_end(), |point| &mut point.at_end);
    let mut points = points.points;
    for number in 0..points.rows().len() {
        points.update_row(number, |point| {
            point.reaches(point.at_peak);
            point.reaches(point.at_end);
        });
    }
    points
}

struct PointBuilder<'a, 'n> {
    data: &'a SnapshotData,
    shown: ShownFrames<'a>,
    names: &'n mut Numbered<String>,
    of_stack: HashMap<StackId, usize>,
    points: HeapPoints,
}

impl<'a, 'n> PointBuilder<'a, 'n> {
    fn new(data: &'a SnapshotData, names: &'n mut Numbered<String>) -> Self {
        Self { data, shown: ShownFrames::of(data), names, of_stack: HashMap::new(), points: Numbered::default() }
    }

    fn totals(&mut self, device: &DeviceView<'_>) {
        for life in device.lifetimes().iter() {
            let (block, span) = (&life.block, device.span_ns(life));
            let lifetime_us = span.end.saturating_sub(span.start) as f64 / 1000.0;
            let lifetimes_us = lifetime_us * device.sampling.blocks(block.size);
            let weight = device.weight(block.size);
            // True if the block is live when the log begins. The replay adds the other blocks.
            let is_live = life.from == 0 && span.end > log_start_ns(device);
            self.update(block.stack, |point| {
                point.total += weight;
                point.lifetimes_us += lifetimes_us;
                if is_live {
                    point.allocate(weight);
                }
            });
        }
    }

    /// Finds the maximum of each point.
    fn replay(&mut self, device: &DeviceSnapshot) {
        for record in device.records.iter().filter(|record| record.alloc_seq.is_some()) {
            let weight = device.weight(record.size);
            self.update(record.alloc_stack, |point| match record.kind {
                RecordKind::Alloc => point.allocate(weight),
                RecordKind::Free => point.now = point.now.saturating_sub(weight),
            });
        }
    }

    /// Adds what is live at a moment, including what has no stack.
    fn add(&mut self, live: &LiveSet<'_>, sum: impl Fn(&mut HeapPoint) -> &mut Weight) {
        for (block, weight) in live.weights() {
            self.update(block.stack, |point| *sum(point) += weight);
        }
        for (label, bytes) in live.rest() {
            let frames = vec![self.names.number(label)];
            self.points.update(frames, |point| {
                sum(point).bytes += bytes;
                point.total.bytes = point.total.bytes.max(bytes);
            });
        }
    }

    fn update(&mut self, stack: StackId, change: impl FnOnce(&mut HeapPoint)) {
        let known = self.of_stack.get(&stack).copied();
        let number = known.unwrap_or_else(|| self.number(stack));
        self.points.update_row(number, change);
    }

    fn number(&mut self, stack: StackId) -> usize {
        let mut frames = Vec::new();
        for (address, lines) in self.shown.of_stack(stack) {
            let text = |frame: &Frame| frame_text(address.address, frame, &self.data.process.working_dir);
            frames.extend(lines.into_iter().map(|frame| self.names.number(text(frame))));
        }
        if frames.is_empty() {
            frames.push(self.names.number(NO_STACK.to_owned()));
        }
        let number = self.points.number(frames);
        self.of_stack.insert(stack, number);
        number
    }
}

/// `0x1234: net::Net::forward (src/model.rs:7)`, as DHAT writes frames.
fn frame_text(address: u64, frame: &Frame, working_dir: &str) -> String {
    let name = frame_name(frame);
    match frame.known_file() {
        Some(_) => format!("{address:#x}: {name} ({})", place(frame, working_dir)),
        None => format!("{address:#x}: {name}"),
    }
}
