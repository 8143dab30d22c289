//! The entries of `device_traces`: a device's log, segments and refused allocations, merged by time.

use super::shared::Shared;
use crate::export::advice::Advice;
use crate::export::pickle::{List, Pickler};
use crate::pytorch_words as words;
use crate::snapshot::{
    Action, ContextId, DeviceSnapshot, Mark, OutOfMemory, Record, RecordKind, SegmentRecord, StackId,
};

/// An event outside the log of blocks.
#[derive(Clone, Copy, Debug)]
enum Event<'a> {
    Oom(&'a OutOfMemory),
    Segment(&'a SegmentRecord),
}

impl Event<'_> {
    /// At the same time, segments come before records, and records before refused allocations.
    fn is_before(self, record: &Record) -> bool {
        match self {
            Self::Oom(oom) => oom.time_ns < record.time_ns,
            Self::Segment(segment) => segment.time_ns <= record.time_ns,
        }
    }
}

/// Events in the order of time.
fn events(device: &DeviceSnapshot) -> impl Iterator<Item = Event<'_>> {
    let (mut segments, mut ooms) = (device.segment_records.iter().peekable(), device.ooms.iter().peekable());
    std::iter::from_fn(move || match (segments.peek(), ooms.peek()) {
        (Some(segment), Some(oom)) if oom.time_ns < segment.time_ns => ooms.next().map(Event::Oom),
        (None, Some(_)) => ooms.next().map(Event::Oom),
        _ => segments.next().map(Event::Segment),
    })
}

impl Shared<'_> {
    pub(super) fn trace(&mut self, p: &mut Pickler<'_>, device: Option<&DeviceSnapshot>) {
        let mut list = p.begin_list();
        if let Some(device) = device {
            self.entries(p, &mut list, device);
        }
        p.end_list(list);
    }

    /// The log and the events, in the order of time.
    fn entries(&mut self, p: &mut Pickler<'_>, list: &mut List, device: &DeviceSnapshot) {
        let selection = self.selection;
        let [allocs, frees] = [RecordKind::Alloc, RecordKind::Free].map(|kind| self.actions(kind));
        let mut events = events(device).peekable();
        for record in device.records.iter().filter(|record| selection.shows(device.device, record)) {
            while let Some(event) = events.next_if(|event| event.is_before(record)) {
                p.next_item(list);
                self.event(p, event);
            }
            for action in if record.kind == RecordKind::Alloc { &allocs } else { &frees } {
                p.next_item(list);
                p.dict(|p| {
                    self.entry(p, *action, (words::ADDR, record.address), record.size, record.stream, record.time_ns);
                    self.origin(p, record.context, device.name(record.alloc_seq), record.stack)
                });
            }
            if p.has_failed() {
                return;
            }
        }
        for event in events {
            p.next_item(list);
            self.event(p, event);
        }
    }

    fn actions(&self, kind: RecordKind) -> Vec<u32> {
        let actions: &[Action] = match kind {
            RecordKind::Alloc => &[Action::Alloc],
            RecordKind::Free => &[Action::FreeRequested, Action::FreeCompleted],
        };
        let skipped = &self.data.settings.skip_actions;
        actions.iter().filter(|action| !skipped.contains(action)).map(|action| action_name(*action)).collect()
    }

    fn event(&mut self, p: &mut Pickler<'_>, event: Event<'_>) {
        p.dict(|p| match event {
            Event::Oom(oom) => {
                // PyTorch writes the free bytes instead of an address.
                let free = (words::DEVICE_FREE, oom.device_free.unwrap_or(0));
                self.entry(p, words::OOM, free, oom.size, 0, oom.time_ns);
                self.origin(p, oom.context, None, oom.stack)
            }
            Event::Segment(segment) => {
                let is_alloc = segment.kind == RecordKind::Alloc;
                let action = if is_alloc { words::SEGMENT_ALLOC } else { words::SEGMENT_FREE };
                self.entry(p, action, (words::ADDR, segment.address), segment.size, 0, segment.time_ns);
                self.origin(p, segment.context, None, segment.stack)
            }
        })
    }

    /// Writes the first keys of an entry. `place` is its address, or the key and value that replace it.
    fn entry(&self, p: &mut Pickler<'_>, action: u32, place: (u32, u64), size: u64, stream: u32, time_ns: u64) {
        p.word(words::ACTION);
        p.word(action);
        p.int_of(place.0, place.1);
        p.int_of(words::SIZE, size);
        p.int_of(words::STREAM, stream.into());
        p.int_of(words::TIME_US, self.epoch_us(time_ns));
        p.word(words::COMPILE_CONTEXT);
        p.word(words::NOT_AVAILABLE);
    }

    /// Writes the last keys of an entry.
    fn origin(&mut self, p: &mut Pickler<'_>, context: ContextId, name: Option<&str>, stack: StackId) {
        p.word(words::USER_METADATA);
        self.metadata(p, context, name);
        p.word(words::FRAMES);
        self.stack(p, stack)
    }

    pub(super) fn annotation(&mut self, p: &mut Pickler<'_>, device: u64, mark: &Mark) {
        p.dict(|p| {
            p.word(words::STAGE);
            p.word(if mark.enter { words::START } else { words::END });
            p.word(words::NAME);
            self.context(p, mark.context);
            p.int_of(words::DEVICE, device);
            p.int_of(words::TIME_US, self.epoch_us(mark.time_ns))
        })
    }

    pub(super) fn advice(&self, p: &mut Pickler<'_>, device: u64, row: &Advice, (stage, time_ns): (u32, u64)) {
        p.dict(|p| {
            p.word(words::STAGE);
            p.word(stage);
            p.word(words::NAME);
            p.text(&row.name);
            p.int_of(words::DEVICE, device);
            p.int_of(words::TIME_US, self.epoch_us(time_ns.min(self.data.process.duration_ns)))
        })
    }

    fn epoch_us(&self, time_ns: u64) -> u64 {
        self.data.process.started_unix_us + time_ns / 1000
    }
}

fn action_name(action: Action) -> u32 {
    match action {
        Action::Alloc => words::ALLOC,
        Action::FreeRequested => words::FREE_REQUESTED,
        Action::FreeCompleted => words::FREE_COMPLETED,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Pickle;
    use crate::export::Export;
    use crate::export::naive_unpickle::unpickle;
    use crate::snapshot::testing::Story;

    #[test]
    fn events_outside_the_log_are_entries_at_their_time() {
        let mut trace = Story::cuda(0);
        trace.at(1_000).segment_alloc(0x1000, 0x1000).alloc("first", 2000).refused(0, None);
        trace.at(1_999).segment_free(0x1000).refused(0, None);
        trace.at(2_000).segment_alloc(0x1000, 0x1000).alloc("second", 1000).refused(0, None);
        trace.at(2_001).segment_free(0x1000).refused(0, None);
        let data = trace.build();
        let mut out = Vec::new();
        Pickle::default().write(&data, &mut out).unwrap();
        let entries = unpickle(&out).at("device_traces").list()[0].list();
        let actions: Vec<String> = entries.iter().map(|entry| entry.at("action").text()).collect();
        let around = ["segment_alloc", "alloc", "oom", "segment_free", "oom"];
        assert_eq!(actions, [around, around].concat());
    }
}
