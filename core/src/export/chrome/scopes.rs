//! Scope marks as strictly nested slices, whatever the order in which scopes were left.

use std::collections::BTreeMap;

use crate::snapshot::{ContextId, DeviceSnapshot, Mark, SnapshotData, ThreadId};

/// The open scopes of each thread, the outermost first.
#[derive(Debug, Default)]
pub(super) struct OpenByThread {
    threads: BTreeMap<ThreadId, Vec<ContextId>>,
}

impl OpenByThread {
    /// The scopes that were open when the log began: they are left in it but not entered.
    pub(super) fn at_start(marks: &[Mark]) -> Self {
        let mut seen = Self::default();
        let mut earlier = Self::default();
        for mark in marks {
            // The outermost is left last.
            if seen.apply(mark) == Change::Unknown {
                earlier.threads.entry(mark.thread).or_default().insert(0, mark.context);
            }
        }
        earlier
    }

    pub(super) fn apply(&mut self, mark: &Mark) -> Change {
        let open = self.threads.entry(mark.thread).or_default();
        if mark.enter {
            open.push(mark.context);
            return Change::Entered;
        }
        match open.iter().rposition(|context| *context == mark.context) {
            Some(at) => {
                open.remove(at);
                Change::Left { at }
            }
            None => Change::Unknown,
        }
    }

    /// The innermost scope of a thread; the root outside every scope.
    pub(super) fn innermost(&self, thread: ThreadId) -> ContextId {
        self.of(thread).last().copied().unwrap_or(ContextId::ROOT)
    }

    /// The innermost scope of the first thread that has one.
    pub(super) fn any(&self) -> ContextId {
        self.threads.values().find_map(|open| open.last()).copied().unwrap_or(ContextId::ROOT)
    }

    fn of(&self, thread: ThreadId) -> &[ContextId] {
        self.threads.get(&thread).map_or(&[], Vec::as_slice)
    }

    fn all(&self) -> impl DoubleEndedIterator<Item = (ThreadId, ContextId)> {
        self.threads.iter().flat_map(|(thread, open)| open.iter().map(|context| (*thread, *context)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Entered,
    /// The scope's depth; scopes inside it are still open.
    Left {
        at: usize,
    },
    /// The scope was left without having been entered.
    Unknown,
}

/// The marks of the device with the most: every device has the same marks, as far as its log goes back.
pub(super) fn marks(data: &SnapshotData) -> &[Mark] {
    let most = data.devices.iter().rev().max_by_key(|device| device.marks.len());
    most.map_or(&[], |device| device.marks.as_slice())
}

/// The beginning of the log of marks: that of the recording, unless the log is full.
fn start_ns(data: &SnapshotData, marks: &[Mark]) -> u64 {
    marks.first().filter(|_| marks.len() >= data.settings.max_entries).map_or(0, |mark| mark.time_ns)
}

/// The end of the recording and of all logs.
pub(in crate::export) fn end_ns(data: &SnapshotData) -> u64 {
    let last = |device: &DeviceSnapshot| {
        let record = device.records.last().map_or(0, |record| record.time_ns);
        record.max(device.marks.last().map_or(0, |mark| mark.time_ns))
    };
    data.devices.iter().map(last).fold(data.process.duration_ns, u64::max)
}

/// The marks as begins and ends of slices that nest strictly on each thread.
///
/// A scope that is left while scopes inside it are open ends those and begins them again at once. Scopes that were entered
/// before the log begin with it; scopes that are still open end with the snapshot.
pub(in crate::export) fn nested(data: &SnapshotData) -> Vec<Mark> {
    let marks = marks(data);
    let mut open = OpenByThread::at_start(marks);
    let start = start_ns(data, marks);
    let edge = |time_ns, (thread, context), enter| Mark { time_ns, context, thread, enter };
    let mut edges: Vec<Mark> = open.all().map(|scope| edge(start, scope, true)).collect();
    for mark in marks {
        let change = open.apply(mark);
        let inside = match change {
            Change::Left { at } => open.of(mark.thread).get(at..).unwrap_or(&[]),
            Change::Entered | Change::Unknown => &[],
        };
        let inside = inside.iter().map(|context| (mark.thread, *context));
        edges.extend(inside.clone().rev().map(|scope| edge(mark.time_ns, scope, false)));
        edges.push(*mark);
        edges.extend(inside.map(|scope| edge(mark.time_ns, scope, true)));
    }
    edges.extend(open.all().rev().map(|scope| edge(end_ns(data), scope, false)));
    edges
}
