//! The entries of a trace: the log of a device, and what else happened.

use super::shared::Shared;
use super::words::{self, number};
use crate::export::pickle::{List, Pickler, Word};
use crate::snapshot::{Action, DeviceSnapshot, Mark, OutOfMemory, Record, RecordKind, SegmentRecord};

/// What happened beside the log.
#[derive(Clone, Copy, Debug)]
enum Event<'a> {
    Oom(&'a OutOfMemory),
    Segment(&'a SegmentRecord),
}

impl Event<'_> {
    /// Of the same time, segments come before records, and those before what was refused.
    fn is_before(self, record: &Record) -> bool {
        match self {
            Self::Oom(oom) => oom.time_ns < record.time_ns,
            Self::Segment(segment) => segment.time_ns <= record.time_ns,
        }
    }
}

/// In the order of time.
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

    /// The log with what else happened, in the order of time.
    fn entries(&mut self, p: &mut Pickler<'_>, list: &mut List, device: &DeviceSnapshot) {
        let (selection, names) = (self.selection, device.names_by_seq());
        let [made, freed] = [RecordKind::Alloc, RecordKind::Free].map(|kind| self.actions(kind));
        let mut events = events(device).peekable();
        for record in device.records.iter().filter(|record| selection.shows(device.device, record)) {
            while let Some(event) = events.next_if(|event| event.is_before(record)) {
                p.next_item(list);
                self.event(p, event);
            }
            for action in if record.kind == RecordKind::Alloc { &made } else { &freed } {
                p.next_item(list);
                self.entry(p, *action, record, names.get(record.alloc_seq));
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

    /// The entries that a record is.
    fn actions(&self, kind: RecordKind) -> Vec<Word> {
        let actions: &[Action] = match kind {
            RecordKind::Alloc => &[Action::Alloc],
            RecordKind::Free => &[Action::FreeRequested, Action::FreeCompleted],
        };
        let skipped = &self.data.settings.skip_actions;
        actions.iter().filter(|action| !skipped.contains(action)).map(|action| action_name(*action)).collect()
    }

    fn event(&mut self, p: &mut Pickler<'_>, event: Event<'_>) {
        match event {
            Event::Oom(oom) => self.oom(p, oom),
            Event::Segment(segment) => self.segment_entry(p, segment),
        }
    }

    /// As PyTorch's: what was free stands where other entries have their address.
    fn oom(&mut self, p: &mut Pickler<'_>, oom: &OutOfMemory) {
        p.dict(|p| {
            p.word(words::ACTION);
            p.word(words::OOM);
            number(p, words::DEVICE_FREE, oom.device_free.unwrap_or(0));
            number(p, words::SIZE, oom.size);
            number(p, words::STREAM, 0);
            number(p, words::TIME_US, self.epoch_us(oom.time_ns));
            p.word(words::COMPILE_CONTEXT);
            p.word(words::NOT_AVAILABLE);
            p.word(words::USER_METADATA);
            self.metadata(p, oom.context, None);
            p.word(words::FRAMES);
            self.stack(p, oom.stack)
        })
    }

    fn entry(&mut self, p: &mut Pickler<'_>, action: Word, record: &Record, name: Option<&str>) {
        p.dict(|p| {
            p.word(words::ACTION);
            p.word(action);
            number(p, words::ADDR, record.address);
            number(p, words::SIZE, record.size);
            number(p, words::STREAM, u64::from(record.stream));
            number(p, words::TIME_US, self.epoch_us(record.time_ns));
            p.word(words::COMPILE_CONTEXT);
            p.word(words::NOT_AVAILABLE);
            p.word(words::USER_METADATA);
            self.metadata(p, record.context, name);
            p.word(words::FRAMES);
            self.stack(p, record.stack)
        })
    }

    fn segment_entry(&mut self, p: &mut Pickler<'_>, segment: &SegmentRecord) {
        p.dict(|p| {
            p.word(words::ACTION);
            p.word(if segment.kind == RecordKind::Alloc { words::SEGMENT_ALLOC } else { words::SEGMENT_FREE });
            number(p, words::ADDR, segment.address);
            number(p, words::SIZE, segment.size);
            number(p, words::STREAM, 0);
            number(p, words::TIME_US, self.epoch_us(segment.time_ns));
            p.word(words::COMPILE_CONTEXT);
            p.word(words::NOT_AVAILABLE);
            p.word(words::USER_METADATA);
            self.metadata(p, segment.context, None);
            p.word(words::FRAMES);
            self.stack(p, segment.stack)
        })
    }

    pub(super) fn annotation(&mut self, p: &mut Pickler<'_>, device: u64, mark: &Mark) {
        p.dict(|p| {
            p.word(words::STAGE);
            p.word(if mark.enter { words::START } else { words::END });
            p.word(words::NAME);
            self.context(p, mark.context);
            number(p, words::DEVICE, device);
            number(p, words::TIME_US, self.epoch_us(mark.time_ns))
        })
    }

    fn epoch_us(&self, time_ns: u64) -> u64 {
        self.data.process.started_unix_us + time_ns / 1000
    }
}

fn action_name(action: Action) -> Word {
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
    fn what_happened_beside_the_log_stands_at_its_time() {
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
