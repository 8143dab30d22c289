//! The events of a story.

use std::fmt::Display;
use std::num::NonZeroU64;

use super::super::{
    BlockName, Category, ContextId, ContextNode, Device, Mark, MemoryKind, OutOfMemory, Record, RecordKind,
    SegmentRecord, StackId, ThreadId,
};
use super::story::{Story, StoryStep};

impl Story {
    /// Sets the time of the events that follow, in nanoseconds since the recording began.
    pub(crate) fn at(&mut self, time_ns: u64) -> &mut Self {
        self.time_ns = time_ns;
        self
    }

    /// Sets the thread of the events that follow.
    pub(crate) fn thread(&mut self, number: u32) -> &mut Self {
        self.thread = ThreadId(number);
        self
    }

    /// Enters a scope; `a > b` is `b` in `a`. Allocs of the thread are in it until it is left.
    pub(crate) fn enter(&mut self, path: &str) -> &mut Self {
        let context = self.context(path);
        self.open.push((self.thread, context));
        self.mark(context, true)
    }

    /// Leaves a scope; one that was never entered was open when the recording began.
    pub(crate) fn leave(&mut self, path: &str) -> &mut Self {
        let scope = (self.thread, self.context(path));
        if let Some(at) = self.open.iter().rposition(|open| *open == scope) {
            self.open.remove(at);
        }
        self.mark(scope.1, false)
    }

    /// Makes the scope a module.
    pub(crate) fn module(&mut self, path: &str) -> &mut Self {
        let context = self.context(path);
        self.data.contexts[context.0 as usize].module = true;
        self
    }

    /// Allocates a block, by default after the previous one and without a stack.
    pub(crate) fn alloc(&mut self, label: impl Display, size: u64) -> &mut Self {
        let known = self.labels.insert(label.to_string(), self.steps.len());
        assert!(known.is_none(), "block {label} is live already");
        self.allocs += 1;
        let record = self.record(RecordKind::Alloc, NonZeroU64::new(self.allocs), self.next_address, size);
        self.next_address = (self.next_address + size.max(1)).next_multiple_of(0x1000);
        self.then(StoryStep::Record(record))
    }

    /// Frees the block.
    pub(crate) fn free(&mut self, label: impl Display) -> &mut Self {
        let alloc = self.labels.remove(&label.to_string()).map(|at| self.steps[at]);
        let Some(StoryStep::Record(alloc)) = alloc else { panic!("no block {label} is live") };
        let (time_ns, thread, stack, kind) = (self.time_ns, self.thread, StackId::NONE, RecordKind::Free);
        self.then(StoryStep::Record(Record { time_ns, thread, stack, kind, ..alloc }))
    }

    /// Frees a block from before the recording.
    pub(crate) fn free_from_before(&mut self, size: u64) -> &mut Self {
        let record = Record { context: ContextId::ROOT, ..self.record(RecordKind::Free, None, 0xf000_0000, size) };
        self.then(StoryStep::Record(record))
    }

    /// The driver reports a new segment.
    pub(crate) fn segment_alloc(&mut self, address: u64, size: u64) -> &mut Self {
        self.segment(RecordKind::Alloc, address, size)
    }

    /// The driver reports that the segment is gone.
    pub(crate) fn segment_free(&mut self, address: u64) -> &mut Self {
        let size = self.steps.iter().rev().find_map(|step| match step {
            StoryStep::Segment(segment) if segment.address == address => Some(segment.size),
            _ => None,
        });
        self.segment(RecordKind::Free, address, size.unwrap_or_else(|| panic!("no segment is at {address:#x}")))
    }

    /// Refuses an allocation, with this much of the device free.
    pub(crate) fn refused(&mut self, size: u64, device_free: Option<u64>) -> &mut Self {
        let (time_ns, context, thread) = (self.time_ns, self.innermost(), self.thread);
        let refused = OutOfMemory { time_ns, size, device_free, context, thread, ..OutOfMemory::default() };
        self.then(StoryStep::Refused(refused))
    }

    /// Sets the stack of the last alloc, segment or refused allocation.
    pub(crate) fn on(&mut self, stack: StackId) -> &mut Self {
        match self.steps.last_mut() {
            Some(StoryStep::Record(alloc)) => (alloc.stack, alloc.alloc_stack) = (stack, stack),
            Some(StoryStep::Segment(segment)) => segment.stack = stack,
            Some(StoryStep::Refused(refused)) => refused.stack = stack,
            _ => panic!("nothing that has a stack"),
        }
        self
    }

    /// Sets the address of the last alloc.
    pub(crate) fn address(&mut self, address: u64) -> &mut Self {
        self.last_alloc().address = address;
        self
    }

    /// Sets the kind of memory of the last alloc.
    pub(crate) fn memory(&mut self, memory: MemoryKind) -> &mut Self {
        self.last_alloc().memory = memory;
        self
    }

    /// Names the last alloc's block.
    pub(crate) fn named(&mut self, name: &str, category: Category) -> &mut Self {
        let seq = self.last_alloc().alloc_seq.expect("an alloc has a number");
        self.names.push(BlockName { seq, name: name.into(), category });
        self
    }

    fn last_alloc(&mut self) -> &mut Record {
        match self.steps.last_mut() {
            Some(StoryStep::Record(record)) if record.kind == RecordKind::Alloc => record,
            _ => panic!("this belongs behind an alloc"),
        }
    }

    fn then(&mut self, step: StoryStep) -> &mut Self {
        self.steps.push(step);
        self
    }

    fn record(&self, kind: RecordKind, alloc_seq: Option<NonZeroU64>, address: u64, size: u64) -> Record {
        let memory = if self.device == Device::Cpu { MemoryKind::Heap } else { MemoryKind::Pool };
        Record {
            time_ns: self.time_ns,
            address,
            size,
            stack: StackId::NONE,
            alloc_stack: StackId::NONE,
            context: self.innermost(),
            thread: self.thread,
            alloc_seq,
            stream: 0,
            kind,
            memory,
        }
    }

    fn segment(&mut self, kind: RecordKind, address: u64, size: u64) -> &mut Self {
        let (time_ns, context, thread) = (self.time_ns, self.innermost(), self.thread);
        let (stack, estimated) = (StackId::NONE, false);
        self.then(StoryStep::Segment(SegmentRecord { time_ns, address, size, kind, estimated, stack, context, thread }))
    }

    fn mark(&mut self, context: ContextId, enter: bool) -> &mut Self {
        let (time_ns, thread) = (self.time_ns, self.thread);
        self.then(StoryStep::Mark(Mark { time_ns, context, thread, enter }))
    }

    /// The innermost open scope of the thread.
    fn innermost(&self) -> ContextId {
        let own = self.open.iter().rev().find(|(thread, _)| *thread == self.thread);
        own.map_or(ContextId::ROOT, |(_, context)| *context)
    }

    /// The context of a path, created if it is new.
    fn context(&mut self, path: &str) -> ContextId {
        path.split(" > ").fold(ContextId::ROOT, |parent, name| {
            let contexts = &mut self.data.contexts;
            let known = contexts.iter().skip(1).position(|node| node.parent == parent && node.name == name);
            let at = known.map_or(contexts.len(), |at| at + 1);
            if at == contexts.len() {
                contexts.push(ContextNode { parent, name: name.into(), module: false });
            }
            ContextId(at as u32)
        })
    }
}
