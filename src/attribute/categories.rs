//! What blocks are for: from what the program said, else from their stacks and their lives.

use std::collections::{HashMap, HashSet};

use super::growing::growing;
use super::hint::Hint;
use super::lives::{Life, lives};
use crate::snapshot::{Category, ContextId, DeviceSnapshot, SnapshotData, StackId, ThreadId};

/// A block that is freed before this many further blocks were allocated by its thread was needed for a moment only.
const SOON: usize = 10;

/// The category of each block of a device.
///
/// What the program said with [`name_as`](crate::name_as) and its relatives goes first. Without that:
///
/// | allocated | freed | |
/// |---|---|---|
/// | where a rule of [`Rules`](crate::Rules) names a category | | that one; freed soon: TEMPORARY |
/// | in a matrix kernel or a library that is not Rust | | WORKSPACE |
/// | in a backward pass | in it | AUTOGRAD_DETAIL |
/// | in a backward pass | later | unknown: a gradient, or what hangs on one; AUTOGRAD_DETAIL if the program named the pass's gradients |
/// | in an optimizer's step | in it, later | TEMPORARY, OPTIMIZER_STATE |
/// | by the program itself, from data or as a constant | | INPUT |
/// | by `cat`, and several times so much larger while the one before was live | | KV_CACHE |
/// | by another operator | before the scope of its allocation ends, and before the next backward pass | TEMPORARY |
/// | by another operator | after the next backward pass began, before the one after that | ACTIVATION |
///
/// What is still live at the end, or outlives all this, has the category of the other blocks with its stack, if they
/// agree; else it is unknown.
#[derive(Clone, Debug, Default)]
pub struct Categories {
    by_seq: HashMap<u64, Category>,
}

impl Categories {
    /// Of all blocks of which the recording knows anything.
    pub fn of(data: &SnapshotData, device: &DeviceSnapshot) -> Self {
        let lives = lives(data, device);
        let passes = Passes::of(data, device, &lives);
        let growing = growing(&lives, |life| passes.backward_after(life).is_none());
        let told = |life: &Life| device.named(life.seq).map(|name| name.category).filter(|c| *c != Category::Unknown);
        let one = |life: &Life| {
            let worked_out = || if growing.contains(&life.seq) { Category::KvCache } else { passes.category(life) };
            (life.seq, told(life).unwrap_or_else(worked_out))
        };
        let mut by_seq: HashMap<u64, Category> = lives.iter().map(one).collect();
        inherit(&lives, &mut by_seq);
        Self { by_seq }
    }

    /// The category of the block with this [`seq`](crate::snapshot::Block::seq).
    pub fn get(&self, seq: u64) -> Category {
        self.by_seq.get(&seq).copied().unwrap_or_default()
    }
}

/// Gives live blocks of which nothing is known the category of those with the same stack, if they agree.
fn inherit(lives: &[Life], categories: &mut HashMap<u64, Category>) {
    let mut of_stack: HashMap<StackId, Option<Category>> = HashMap::new();
    let category = |categories: &HashMap<u64, Category>, life: &Life| categories.get(&life.seq).copied();
    for life in lives.iter().filter(|life| life.to != usize::MAX) {
        let known = category(categories, life).filter(|known| *known != Category::Unknown);
        of_stack.entry(life.stack).and_modify(|agreed| *agreed = agreed.filter(|_| *agreed == known)).or_insert(known);
    }
    let is_open = |life: &&Life| life.to == usize::MAX && matches!(life.hint, Hint::Forward | Hint::Join);
    for life in lives.iter().filter(is_open) {
        let agreed = of_stack.get(&life.stack).copied().flatten();
        if let (Some(Category::Unknown), Some(agreed)) = (category(categories, life), agreed) {
            categories.insert(life.seq, agreed);
        }
    }
}

/// A stretch of the log in which a thread did one kind of work.
#[derive(Clone, Debug)]
struct Pass {
    from: usize,
    /// What it allocated last, or where the scope was left in which it worked.
    to: usize,
    /// The program named gradients in it.
    has_gradients: bool,
}

/// What threads did when.
struct Passes<'a> {
    data: &'a SnapshotData,
    backward: HashMap<ThreadId, Vec<Pass>>,
    steps: HashMap<ThreadId, Vec<Pass>>,
    /// Where each thread allocated, in order.
    allocs: HashMap<ThreadId, Vec<usize>>,
    /// Where scopes were left.
    exits: HashMap<(ThreadId, ContextId), Vec<usize>>,
}

impl<'a> Passes<'a> {
    fn of(data: &'a SnapshotData, device: &DeviceSnapshot, lives: &[Life]) -> Self {
        let is_gradient = |life: &Life| device.named(life.seq).is_some_and(|name| name.category == Category::Gradient);
        let exits = exits(device);
        let of = |kind| passes(lives, kind, is_gradient, &left(&exits));
        let mut allocs: HashMap<ThreadId, Vec<usize>> = HashMap::new();
        lives.iter().for_each(|life| allocs.entry(life.thread).or_default().push(life.from));
        let (backward, steps) = (of(Hint::Backward), of(Hint::Step));
        Self { data, backward, steps, allocs, exits }
    }

    fn category(&self, life: &Life) -> Category {
        match life.hint {
            Hint::Workspace => Category::Workspace,
            Hint::Rule(category) => self.unless_soon_freed(life, category),
            Hint::Backward => self.in_backward(life),
            Hint::Step => self.in_step(life),
            Hint::Input => Category::Input,
            Hint::Forward | Hint::Join => self.in_forward(life),
            Hint::Nothing => self.unless_soon_freed(life, Category::Unknown),
        }
    }

    fn unless_soon_freed(&self, life: &Life, category: Category) -> Category {
        let until = |position| self.allocs.get(&life.thread).map_or(0, |all| all.partition_point(|at| *at <= position));
        let is_soon = life.from > 0 && life.to != usize::MAX && until(life.to) - until(life.from) < SOON;
        if is_soon { Category::Temporary } else { category }
    }

    fn in_backward(&self, life: &Life) -> Category {
        match pass_at(&self.backward, life) {
            Some(pass) if life.to <= pass.to || pass.has_gradients => Category::AutogradDetail,
            _ => Category::Unknown,
        }
    }

    fn in_step(&self, life: &Life) -> Category {
        match pass_at(&self.steps, life) {
            Some(pass) if life.to <= pass.to => Category::Temporary,
            Some(_) => Category::OptimizerState,
            None => Category::Unknown,
        }
    }

    fn in_forward(&self, life: &Life) -> Category {
        if life.from == 0 {
            return Category::Unknown;
        }
        let (next, after) = match self.backward_after(life) {
            Some([next, rest @ ..]) => (next.from, rest.first().map_or(usize::MAX, |pass| pass.from)),
            _ => (usize::MAX, usize::MAX),
        };
        match life.to {
            usize::MAX => Category::Unknown,
            to if next < to && to < after => Category::Activation,
            to if to < next && self.is_within_its_scope(life) => Category::Temporary,
            _ => Category::Unknown,
        }
    }

    /// The thread's backward passes after a block's allocation, if there are any.
    fn backward_after(&self, life: &Life) -> Option<&[Pass]> {
        let passes = self.backward.get(&life.thread)?;
        let later = passes.get(passes.partition_point(|pass| pass.from <= life.from)..)?;
        (!later.is_empty()).then_some(later)
    }

    /// Was it freed before the program left the scope in which it was allocated, parts of models aside? Outside of all
    /// scopes: soon.
    fn is_within_its_scope(&self, life: &Life) -> bool {
        let node = |id: ContextId| self.data.contexts.get(id.0 as usize);
        let ids = self.data.context_ids(life.context);
        let own = ids.iter().rfind(|id| node(**id).is_some_and(|node| !node.module)).or(ids.first());
        let exits = own.and_then(|scope| self.exits.get(&(life.thread, *scope)));
        let left = exits.and_then(|exits| exits.get(exits.partition_point(|at| *at < life.from)));
        match left {
            Some(left) => life.to <= *left,
            None => self.unless_soon_freed(life, Category::Unknown) == Category::Temporary,
        }
    }
}

/// The pass in which a block was allocated.
fn pass_at<'a>(passes: &'a HashMap<ThreadId, Vec<Pass>>, life: &Life) -> Option<&'a Pass> {
    let passes = passes.get(&life.thread)?;
    let at = passes.partition_point(|pass| pass.from <= life.from).checked_sub(1)?;
    passes.get(at)
}

/// The stretches of each thread's log in which it allocated with this hint only.
fn passes(
    lives: &[Life],
    kind: Hint,
    is_gradient: impl Fn(&Life) -> bool,
    left: &HashMap<ThreadId, Vec<usize>>,
) -> HashMap<ThreadId, Vec<Pass>> {
    let mut found: HashMap<ThreadId, Vec<Pass>> = HashMap::new();
    let mut open: HashSet<ThreadId> = HashSet::new();
    for life in lives.iter().filter(|life| life.from > 0 && life.hint.is_work()) {
        let passes = found.entry(life.thread).or_default();
        if life.hint != kind {
            if open.remove(&life.thread) {
                close(passes, left.get(&life.thread), life.from);
            }
            continue;
        }
        if open.insert(life.thread) {
            passes.push(Pass { from: life.from, to: life.from, has_gradients: false });
        }
        if let Some(pass) = passes.last_mut() {
            pass.to = life.from;
            pass.has_gradients |= is_gradient(life);
        }
    }
    for thread in open {
        close(found.entry(thread).or_default(), left.get(&thread), usize::MAX);
    }
    found
}

/// The last pass ends where its thread left a scope after it, if that is before it did something else.
fn close(passes: &mut [Pass], left: Option<&Vec<usize>>, next: usize) {
    let (Some(pass), Some(left)) = (passes.last_mut(), left) else { return };
    let after = left.get(left.partition_point(|at| *at < pass.to));
    if let Some(after) = after.filter(|after| **after < next) {
        pass.to = *after;
    }
}

/// Where threads left which scopes: the position of the last record before that.
fn exits(device: &DeviceSnapshot) -> HashMap<(ThreadId, ContextId), Vec<usize>> {
    let mut exits: HashMap<_, Vec<usize>> = HashMap::new();
    for mark in device.marks.iter().filter(|mark| !mark.enter) {
        let position = device.records.partition_point(|record| record.time_ns <= mark.time_ns);
        exits.entry((mark.thread, mark.context)).or_default().push(position);
    }
    exits
}

/// Where threads left any scope.
fn left(exits: &HashMap<(ThreadId, ContextId), Vec<usize>>) -> HashMap<ThreadId, Vec<usize>> {
    let mut left: HashMap<ThreadId, Vec<usize>> = HashMap::new();
    for ((thread, _), positions) in exits {
        left.entry(*thread).or_default().extend(positions);
    }
    left.values_mut().for_each(|positions| positions.sort_unstable());
    left
}
