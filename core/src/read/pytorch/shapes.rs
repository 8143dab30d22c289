//! Compact forms of the most frequent objects of a snapshot: frames, stacks, blocks, and entries of traces. Entries are
//! taken from their list as they arrive.

use std::rc::Rc;

use super::entry::TraceEntry;
use super::fields::DictFields;
use super::rows::{BlockRow, BlockState, FrameRow, Shape, SnapshotValues, stack_number};
use super::trace::DeviceTrace;
use crate::numbered::Numbered;
use crate::pytorch_words as words;
use crate::read::pickle::{PickleValue, Refusal, Shapes};
use crate::snapshot::Record;

/// All objects in compact form.
#[derive(Default)]
pub(super) struct SnapshotTables {
    pub(super) frames: Numbered<FrameRow>,
    stacks: Numbered<Rc<[u32]>>,
    pub(super) blocks: Vec<BlockRow>,
    /// The size and the stack of each earlier use of a block.
    uses: Vec<(u64, u32)>,
    entries: Vec<TraceEntry>,
    traces: Vec<Option<DeviceTrace>>,
    /// True if a requested free counts as the free, because the file has no completed frees.
    pub(super) frees_are_requests: bool,
}

/// Memory of an entry: its record, and what is stored for its address.
const RECORD: usize = size_of::<Record>() + 24;
/// Memory of a row besides its fields: its place in a table by content.
const ROW: usize = 64;

impl SnapshotTables {
    pub(super) fn new(frees_are_requests: bool) -> Self {
        Self { frees_are_requests, ..Self::default() }
    }

    /// The frames of every stack, by its number; the first is empty.
    pub(super) fn stacks(&self) -> Vec<&[u32]> {
        std::iter::once(&[][..]).chain(self.stacks.keys().map(|frames| &**frames)).collect()
    }

    /// Removes a trace from the table; each trace belongs to one device.
    pub(super) fn take_trace(&mut self, index: u32) -> Result<DeviceTrace, Refusal> {
        let trace = self.traces.get_mut(index as usize).and_then(Option::take);
        trace.ok_or_else(|| Refusal::new("two devices share one trace"))
    }

    fn frame(&mut self, fields: &DictFields<'_>, values: &mut SnapshotValues<'_>) -> Result<Option<Shape>, Refusal> {
        let text = |key| match fields.find(key) {
            Some(PickleValue::Text(id)) => Some(id),
            _ => None,
        };
        let Some(name) = text(words::NAME) else { return Ok(None) };
        let line = fields.find(words::LINE).and_then(|line| values.integer(line));
        let line = line.and_then(|line| line.try_into().ok()).unwrap_or(0);
        let row = FrameRow { name, file: text(words::FILENAME), line };
        if self.frames.get(&row).is_none() {
            values.budget().take(ROW)?;
        }
        Ok(Some(Shape::Frame(self.frames.number(row) as u32)))
    }

    fn block(&mut self, fields: &DictFields<'_>, values: &mut SnapshotValues<'_>) -> Result<Option<Shape>, Refusal> {
        let state = match fields.find(words::STATE) {
            Some(PickleValue::Text(words::ACTIVE_ALLOCATED)) => BlockState::Allocated,
            Some(PickleValue::Text(words::ACTIVE_PENDING_FREE | words::ACTIVE_AWAITING_FREE)) => BlockState::Pending,
            Some(PickleValue::Text(words::INACTIVE)) => BlockState::Inactive,
            _ => return Err(Refusal::new("a block of an unknown state")),
        };
        let size = fields.needed(words::SIZE, values)?;
        // The newest use comes first.
        let newest = fields.find(words::HISTORY).and_then(|history| values.list(history).first().copied());
        let used = match newest.and_then(|newest| values.kept(newest)) {
            Some(Shape::Use(row)) => self.uses.get(row as usize).copied(),
            _ => None,
        };
        let requested = fields.number(words::REQUESTED_SIZE, values)?;
        let requested = requested.or(used.map(|(size, _)| size)).unwrap_or(size);
        let address = fields.number(words::ADDRESS, values)?;
        let stack = match (fields.find(words::FRAMES), used) {
            (None, Some((_, stack))) => stack,
            (frames, _) => stack_number(frames, values),
        };
        values.budget().take(size_of::<BlockRow>())?;
        self.blocks.push(BlockRow { address, size, requested, state, stack });
        Ok(Some(Shape::Block(self.blocks.len() as u32 - 1)))
    }
}

impl Shapes for SnapshotTables {
    type Shape = Shape;

    fn dict(&mut self, items: &[PickleValue], values: &mut SnapshotValues<'_>) -> Result<Option<Shape>, Refusal> {
        let fields = DictFields(items);
        if fields.find(words::ACTION).is_some() {
            let entry = TraceEntry::of(&fields, values)?;
            self.entries.push(entry);
            return Ok(Some(Shape::Entry(self.entries.len() as u32 - 1)));
        }
        if fields.find(words::FILENAME).is_some() {
            return self.frame(&fields, values);
        }
        if fields.find(words::REAL_SIZE).is_some() {
            let used = (fields.needed(words::REAL_SIZE, values)?, stack_number(fields.find(words::FRAMES), values));
            values.budget().take(size_of_val(&used))?;
            self.uses.push(used);
            return Ok(Some(Shape::Use(self.uses.len() as u32 - 1)));
        }
        if fields.find(words::STATE).is_some() { self.block(&fields, values) } else { Ok(None) }
    }

    fn list(&mut self, items: &[PickleValue], values: &mut SnapshotValues<'_>) -> Result<Option<Shape>, Refusal> {
        let frame = |item: &PickleValue| match values.kept(*item) {
            Some(Shape::Frame(id)) => Some(id),
            _ => None,
        };
        let Some(frames) = items.iter().map(frame).collect::<Option<Vec<u32>>>() else { return Ok(None) };
        if frames.is_empty() {
            return Ok(None);
        }
        let known = self.stacks.get(frames.as_slice());
        if known.is_none() {
            values.budget().take(ROW + 4 * frames.len())?;
        }
        let number = known.unwrap_or_else(|| self.stacks.number(frames.into()));
        Ok(Some(Shape::Stack(number as u32 + 1)))
    }

    fn stream(
        &mut self,
        list: Option<Shape>,
        items: &[PickleValue],
        values: &mut SnapshotValues<'_>,
    ) -> Result<Option<Shape>, Refusal> {
        let entry = |item: &PickleValue| match values.kept(*item) {
            Some(Shape::Entry(id)) => Some(id),
            _ => None,
        };
        let trace = match list {
            Some(Shape::Trace(trace)) => trace,
            None if items.first().is_some_and(|item| entry(item).is_some()) => {
                self.traces.push(Some(DeviceTrace::default()));
                self.traces.len() as u32 - 1
            }
            _ => return Ok(None),
        };
        let first = items.first().and_then(entry).unwrap_or(0) as usize;
        let are_the_last = first + items.len() == self.entries.len();
        for item in items {
            let Some(Shape::Entry(id)) = values.kept(*item) else {
                return Err(Refusal::new("a trace holds something else than entries, or one entry twice"));
            };
            values.keep(*item, Shape::Taken);
            values.budget().take(RECORD)?;
            let Some(entry) = self.entries.get(id as usize) else { continue };
            let traces = self.traces.get_mut(trace as usize);
            traces.and_then(Option::as_mut).map_or(Ok(()), |trace| trace.push(entry, self.frees_are_requests))?;
        }
        if are_the_last {
            self.entries.truncate(first);
        }
        Ok(Some(Shape::Trace(trace)))
    }
}
