//! Turns scope marks into strictly nested slices, in whatever order the scopes were left.

use std::collections::BTreeMap;

use crate::snapshot::{ContextId, DeviceSnapshot, Mark, OpenPlace, OpenStack, SnapshotData, ThreadId};

/// A scope may be left while this many scopes inside it are open. If there are more, its slice lasts to the end, so
/// that the slices inside it need not be ended and begun again. A thread of a program has at most 64 open scopes.
const FARTHEST: usize = 256;

/// The open scopes of each thread, the outermost first.
#[derive(Debug, Default)]
pub(super) struct OpenByThread {
    threads: BTreeMap<ThreadId, OpenStack<ContextId, ()>>,
}

impl OpenByThread {
    /// The scopes that were open when the log began: the log has marks of leaving them, but none of entering them.
    pub(super) fn at_start(marks: &[Mark]) -> Self {
        let mut seen = Self::default();
        let left: Vec<&Mark> = marks.iter().filter(|mark| seen.apply(mark) == Change::Unknown).collect();
        let mut earlier = Self::default();
        // The outermost scope is left last.
        for mark in left.into_iter().rev() {
            earlier.threads.entry(mark.thread).or_default().enter(mark.context, ());
        }
        earlier
    }

    pub(super) fn apply(&mut self, mark: &Mark) -> Change {
        let open = self.threads.entry(mark.thread).or_default();
        if mark.enter {
            open.enter(mark.context, ());
            return Change::Entered;
        }
        open.leave(mark.context).map_or(Change::Unknown, |(at, ())| Change::Left { at })
    }

    /// The innermost scope of a thread; the root outside every scope.
    pub(super) fn innermost(&self, thread: ThreadId) -> ContextId {
        self.threads.get(&thread).and_then(OpenStack::innermost).map_or(ContextId::ROOT, |(context, _)| context)
    }

    /// The innermost scope of the first thread that has one.
    pub(super) fn any(&self) -> ContextId {
        self.threads.values().find_map(OpenStack::innermost).map_or(ContextId::ROOT, |(context, _)| context)
    }

    /// The scopes inside of the one that the thread has just left.
    fn inside(&self, thread: ThreadId, at: OpenPlace) -> impl DoubleEndedIterator<Item = (ThreadId, ContextId)> {
        self.threads
            .get(&thread)
            .into_iter()
            .flat_map(move |open| open.inside(at))
            .map(move |(context, _)| (thread, context))
    }

    fn all(&self) -> impl DoubleEndedIterator<Item = (ThreadId, ContextId)> {
        self.threads.iter().flat_map(|(thread, open)| open.iter().map(|(context, _)| (*thread, context)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Entered,
    /// The scope at this place was left. The scopes inside it are still open.
    Left {
        at: OpenPlace,
    },
    /// The scope was left without having been entered.
    Unknown,
}

/// The marks of the device with the most marks. Every device has the same marks, but some logs do not reach as far
/// back.
pub(super) fn marks(data: &SnapshotData) -> &[Mark] {
    let most = data.devices.iter().rev().max_by_key(|device| device.marks.len());
    most.map_or(&[], |device| device.marks.as_slice())
}

/// When the log of marks begins. This is when the recording began, unless the log is full.
fn start_ns(data: &SnapshotData, marks: &[Mark]) -> u64 {
    marks.first().filter(|_| marks.len() >= data.settings.max_entries).map_or(0, |mark| mark.time_ns)
}

/// The end of the recording and of all logs.
pub(super) fn end_ns(data: &SnapshotData) -> u64 {
    let last = |device: &DeviceSnapshot| {
        let record = device.records.last().map_or(0, |record| record.time_ns);
        record.max(device.marks.last().map_or(0, |mark| mark.time_ns))
    };
    data.devices.iter().map(last).fold(data.process.duration_ns, u64::max)
}

/// The marks as begins and ends of slices that nest strictly on each thread.
///
/// If a scope is left while scopes inside it are open, the slices of the inner scopes end with it and begin again at
/// once. Scopes that were entered before the log begin with the log. Scopes that are still open end with the
/// snapshot.
pub(super) fn nested(data: &SnapshotData) -> Vec<Mark> {
    let marks = marks(data);
    let mut open = OpenByThread::at_start(marks);
    let start = start_ns(data, marks);
    let edge = |time_ns, (thread, context), enter| Mark { time_ns, context, thread, enter };
    let mut edges: Vec<Mark> = open.all().map(|scope| edge(start, scope, true)).collect();
    for mark in marks {
        if !mark.enter && open.threads.get(&mark.thread).is_some_and(|open| open.distance(mark.context) > FARTHEST) {
            continue;
        }
        let inside: Vec<_> = match open.apply(mark) {
            Change::Left { at } => open.inside(mark.thread, at).collect(),
            Change::Entered | Change::Unknown => Vec::new(),
        };
        edges.extend(inside.iter().rev().map(|scope| edge(mark.time_ns, *scope, false)));
        edges.push(*mark);
        edges.extend(inside.iter().map(|scope| edge(mark.time_ns, *scope, true)));
    }
    edges.extend(open.all().rev().map(|scope| edge(end_ns(data), scope, false)));
    edges
}
