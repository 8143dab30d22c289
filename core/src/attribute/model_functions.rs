//! Functions of the program in which its model works, although they are not called `forward…`. They multiply tensors
//! before the first backward pass. When that pass begins, one of their products is live, and so is the block that they
//! computed right after it. Programs do not keep products of data, and optimizers have nothing to do that early.

use super::Attribution;
use super::hint::Hint;
use super::lifetimes::HintedLifetime;
use super::matched_frame::matched_frames;
use super::origin::Origin;
use crate::hashed::{HashMap, HashSet};
use crate::memo::Memo;
use crate::snapshot::{LogPosition, StackId, ThreadId};

/// A function by its file and name.
pub(super) type Function<'a> = (&'a str, &'a str);

/// Finds such functions and marks their blocks as allocated by a model's work (`in_forward`).
pub(super) fn learn(data: &Attribution<'_>, lives: &mut [HintedLifetime]) {
    let first = first_passes(lives);
    if first.is_empty() {
        return;
    }
    let mut functions = functions(data);
    let (mut work, mut do_more) = (HashSet::default(), HashSet::default());
    // Whether each function's last block so far is a product that is live when the first backward pass begins.
    let mut is_kept: HashMap<(ThreadId, Function<'_>), bool> = HashMap::default();
    for life in lives.iter().filter(|life| life.from > 0) {
        let Some(function) = functions.get(life.stack) else { continue };
        if does_more(life) {
            do_more.insert(function);
        } else if life.hint == Hint::Forward && !life.of_stack.is_structure {
            let is_live = first.get(&life.thread).is_some_and(|pass| life.is_live_at(*pass));
            let multiplies = life.of_stack.multiplies;
            if multiplies && !is_live {
                // The block may be only the workspace of the multiplication.
                continue;
            }
            if is_kept.insert((life.thread, function), multiplies) == Some(true) && is_live && !multiplies {
                work.insert(function);
            }
        }
    }
    work.retain(|function| !do_more.contains(function));
    if work.is_empty() {
        return;
    }
    for life in lives {
        life.of_stack.in_forward |= functions.get(life.stack).is_some_and(|function| work.contains(&function));
    }
}

/// The position at which each thread's first backward pass begins.
pub(super) fn first_passes(lives: &[HintedLifetime]) -> HashMap<ThreadId, LogPosition> {
    let mut first = HashMap::default();
    for life in lives.iter().filter(|life| life.hint == Hint::Backward && life.from > 0) {
        first.entry(life.thread).or_insert(life.from);
    }
    first
}

/// Whether the function that allocated the block loads data, makes a model, runs a backward pass or updates variables.
/// The other blocks of such a function may be of any kind.
fn does_more(life: &HintedLifetime) -> bool {
    matches!(life.hint, Hint::Backward | Hint::Input | Hint::Variable | Hint::Step | Hint::Rule(_))
}

/// The program's innermost function of each stack.
pub(super) fn functions<'a>(data: &'a Attribution<'_>) -> Memo<'a, StackId, Option<Function<'a>>> {
    Memo::of(move |stack| {
        let found = matched_frames(data, stack).find(|frame| frame.origin() == Origin::Workspace)?;
        Some((found.frame.file.as_deref()?, found.frame.function.as_deref()?))
    })
}
