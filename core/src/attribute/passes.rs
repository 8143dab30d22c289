//! Passes (backward passes, optimizer steps): stretches of the log in which a thread did one kind of work.

use super::hashed::{HashMap, HashSet};
use super::hint::Hint;
use super::lifetimes::Lifetime;
use crate::snapshot::{Category, ContextId, DeviceSnapshot, ThreadId};

/// A stretch of the log in which a thread did one kind of work.
#[derive(Clone, Debug)]
pub(super) struct Pass {
    pub(super) from: usize,
    /// Its last allocation, or the position where the thread left the scope of the work.
    pub(super) to: usize,
    /// Where the thread began other work, if it did.
    pub(super) next: Option<usize>,
    /// The pass is known to have ended.
    pub(super) is_over: bool,
    /// The program named gradients of this pass.
    pub(super) has_gradients: bool,
}

pub(super) type Passes = HashMap<ThreadId, Vec<Pass>>;

/// Positions of the last record before each scope was left, by thread and context.
pub(super) type Exits = HashMap<(ThreadId, ContextId), Vec<usize>>;

pub(super) fn pass_at<'a>(passes: &'a Passes, life: &Lifetime) -> Option<&'a Pass> {
    let passes = passes.get(&life.thread)?;
    let at = passes.partition_point(|pass| pass.from <= life.from).checked_sub(1)?;
    passes.get(at)
}

/// The passes with this hint: stretches in which a thread's work has no other hint.
pub(super) fn passes(device: &DeviceSnapshot, lives: &[Lifetime], kind: Hint, exits: &Exits) -> Passes {
    let is_gradient =
        |life: &Lifetime| device.named(Some(life.seq)).is_some_and(|name| name.category == Category::Gradient);
    let left = left(exits);
    let mut found = Passes::default();
    let mut open: HashSet<ThreadId> = HashSet::default();
    for life in lives.iter().filter(|life| life.from > 0 && life.hint.is_work()) {
        let passes = found.entry(life.thread).or_default();
        if life.hint != kind {
            if open.remove(&life.thread) {
                close(passes, left.get(&life.thread), Some(life.from));
            }
            continue;
        }
        if open.insert(life.thread) {
            let (from, to) = (life.from, life.from);
            passes.push(Pass { from, to, next: None, is_over: false, has_gradients: false });
        }
        if let Some(pass) = passes.last_mut() {
            pass.to = life.from;
            pass.has_gradients |= is_gradient(life);
        }
    }
    for thread in open {
        close(found.entry(thread).or_default(), left.get(&thread), None);
    }
    found
}

/// Ends the last pass where the thread left a scope, if it did so before it began other work.
fn close(passes: &mut [Pass], left: Option<&Vec<usize>>, next: Option<usize>) {
    let Some(pass) = passes.last_mut() else { return };
    pass.next = next;
    pass.is_over = next.is_some();
    let after = left.and_then(|left| left.get(left.partition_point(|at| *at < pass.to)));
    if let Some(after) = after.filter(|after| **after < next.unwrap_or(usize::MAX)) {
        (pass.to, pass.is_over) = (*after, true);
    }
}

pub(super) fn exits(device: &DeviceSnapshot) -> Exits {
    let mut exits = Exits::default();
    for mark in device.marks.iter().filter(|mark| !mark.enter) {
        let position = device.records.partition_point(|record| record.time_ns <= mark.time_ns);
        exits.entry((mark.thread, mark.context)).or_default().push(position);
    }
    exits
}

fn left(exits: &Exits) -> HashMap<ThreadId, Vec<usize>> {
    let mut left: HashMap<ThreadId, Vec<usize>> = HashMap::default();
    for ((thread, _), positions) in exits {
        left.entry(*thread).or_default().extend(positions);
    }
    left.values_mut().for_each(|positions| positions.sort_unstable());
    left
}
