//! Passes (backward passes, optimizer steps): stretches of the log in which a thread did only one kind of work.

use super::hint::Hint;
use super::lifetimes::HintedLifetime;
use crate::hashed::{HashMap, by_key};
use crate::snapshot::{Category, ContextId, DeviceSnapshot, LogPosition, Mark, NEVER, ThreadId};

#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub(super) from: LogPosition,
    /// Its last allocation, or the position at which the thread left the scope of the work.
    pub(super) to: LogPosition,
    /// The position at which the thread began other work, if it did.
    pub(super) next: Option<LogPosition>,
    /// Whether the pass is known to have ended.
    pub(super) is_over: bool,
    /// Whether the program named gradients of this pass.
    pub(super) has_gradients: bool,
}

pub(super) type Passes = HashMap<ThreadId, Vec<Pass>>;

/// Positions of the last records before each scope was left, by thread and context.
pub(super) type Exits = HashMap<(ThreadId, ContextId), Vec<LogPosition>>;

/// The passes of a thread that have begun at a position, and the later ones.
pub(super) fn passes_around(passes: &Passes, thread: ThreadId, at: LogPosition) -> (&[Pass], &[Pass]) {
    let passes = passes.get(&thread).map_or(&[][..], Vec::as_slice);
    passes.split_at(passes.partition_point(|pass| pass.from <= at))
}

/// The last pass of the block's thread that has begun when the block is allocated.
pub(super) fn pass_at<'a>(passes: &'a Passes, life: &HintedLifetime) -> Option<&'a Pass> {
    passes_around(passes, life.thread, life.from).0.last()
}

/// The passes of its thread that begin later.
pub(super) fn passes_after<'a>(passes: &'a Passes, life: &HintedLifetime) -> &'a [Pass] {
    passes_around(passes, life.thread, life.from).1
}

pub(super) fn is_in_pass(passes: &Passes, thread: ThreadId, at: LogPosition) -> bool {
    passes_around(passes, thread, at).0.last().is_some_and(|pass| at <= pass.to)
}

/// The passes of this kind: stretches of the log in which all work of a thread has the hint `kind`.
pub(super) fn passes(device: &DeviceSnapshot, lives: &[HintedLifetime], kind: Hint, exits: &Exits) -> Passes {
    let is_gradient =
        |life: &HintedLifetime| device.named(Some(life.seq)).is_some_and(|name| name.category == Category::Gradient);
    let left = left(exits);
    let mut found: HashMap<ThreadId, (Vec<Pass>, bool)> = HashMap::default();
    for life in lives.iter().filter(|life| life.from > 0 && life.hint.is_work()) {
        let (passes, is_open) = found.entry(life.thread).or_default();
        if life.hint != kind {
            if std::mem::take(is_open) {
                close(passes, left.get(&life.thread), Some(life.from));
            }
            continue;
        }
        if !std::mem::replace(is_open, true) {
            let (from, to) = (life.from, life.from);
            passes.push(Pass { from, to, next: None, is_over: false, has_gradients: false });
        }
        if let Some(pass) = passes.last_mut() {
            pass.to = life.from;
            pass.has_gradients |= is_gradient(life);
        }
    }
    let ended = |(thread, (mut passes, is_open)): (ThreadId, (Vec<Pass>, bool))| {
        if is_open {
            close(&mut passes, left.get(&thread), None);
        }
        (thread, passes)
    };
    found.into_iter().map(ended).collect()
}

/// Ends the last pass where the thread left a scope, if it did so before it began other work.
fn close(passes: &mut [Pass], left: Option<&Vec<LogPosition>>, next: Option<LogPosition>) {
    let Some(pass) = passes.last_mut() else { return };
    pass.next = next;
    pass.is_over = next.is_some();
    let after = left.and_then(|left| left.get(left.partition_point(|at| *at < pass.to)));
    if let Some(after) = after.filter(|after| **after < next.unwrap_or(NEVER)) {
        (pass.to, pass.is_over) = (*after, true);
    }
}

/// The passes of all threads, for a search between two positions.
pub(super) struct WholePasses {
    /// The beginning of each pass, sorted. Beside it is the first position at which this pass or a later one ends.
    passes: Vec<(LogPosition, LogPosition)>,
}

impl WholePasses {
    pub(super) fn of(passes: &Passes) -> Self {
        Self::with_ends(passes.values().flatten().map(|pass| (pass.from, pass.to)))
    }

    pub(super) fn with_ends(passes: impl Iterator<Item = (LogPosition, LogPosition)>) -> Self {
        let mut passes: Vec<_> = passes.collect();
        passes.sort_unstable();
        let mut first_end = LogPosition::MAX;
        for (_, to) in passes.iter_mut().rev() {
            first_end = first_end.min(*to);
            *to = first_end;
        }
        Self { passes }
    }

    /// Whether a pass begins after the first and ends before the second position.
    pub(super) fn is_any_within(&self, after: LogPosition, before: LogPosition) -> bool {
        let later = self.passes.partition_point(|(from, _)| *from <= after);
        self.passes.get(later).is_some_and(|(_, first_end)| *first_end < before)
    }
}

pub(super) fn exits(device: &DeviceSnapshot) -> Exits {
    let exit = |mark: &Mark| {
        let position = device.records.partition_point(|record| record.time_ns <= mark.time_ns);
        ((mark.thread, mark.context), LogPosition::try_from(position).unwrap_or(NEVER))
    };
    by_key(device.marks.iter().filter(|mark| !mark.enter).map(exit))
}

fn left(exits: &Exits) -> HashMap<ThreadId, Vec<LogPosition>> {
    let of_threads = exits.iter().flat_map(|((thread, _), of)| of.iter().map(move |position| (*thread, *position)));
    let mut left = by_key(of_threads);
    left.values_mut().for_each(|positions| positions.sort_unstable());
    left
}
