//! The evidence for verdicts.

use std::num::{NonZeroU32, NonZeroU64};

use crate::attribute::copies::copies_of_models;
use crate::attribute::gradients::{self, GradientCounts};
use crate::attribute::growing::growing;
use crate::attribute::hint::Hint;
use crate::attribute::history::AllocationHistory;
use crate::attribute::lifetimes::HintedLifetime;
use crate::attribute::passes::{Exits, Passes, WholePasses, exits, passes, passes_after};
use crate::attribute::use_flow::UseFlows;
use crate::attribute::workers::ProgramsWork;
use crate::attribute::{AllocationSite, Attribution, allocation_site, torch_gradients};
use crate::hashed::{HashMap, HashSet};
use crate::snapshot::{ContextId, DeviceSnapshot, LogPosition, StackId, ThreadId};

pub(super) struct Work {
    /// Whether the program is Python's. Lifetimes then decide nothing, because variables and forward passes are not
    /// known.
    pub(super) is_python: bool,
    pub(super) backward: Passes,
    pub(super) steps: Passes,
    pub(super) counted: GradientCounts,
    pub(super) history: AllocationHistory,
    pub(super) programs: ProgramsWork,
    /// Blocks of copies of a model, and sites that load data repeatedly.
    pub(super) copies: HashSet<NonZeroU64>,
    pub(super) inputs: HashSet<StackId>,
    /// Results of a backward pass that outlive a later pass, while no other pass leaves results at their sites.
    pub(super) kept_once: HashSet<NonZeroU64>,
    /// The first block that each forward pass retains, according to the functions on stacks. The key is the beginning
    /// of the backward pass that follows.
    pub(super) forward: HashMap<(ThreadId, LogPosition), LogPosition>,
    /// Growing caches, and blocks that may be their initial contents.
    pub(super) caches: HashSet<NonZeroU64>,
    pub(super) prefixes: HashSet<NonZeroU64>,
    pub(super) exits: Exits,
    pub(super) flows: UseFlows,
    pub(super) whole_passes: WholePasses,
    /// For each context, its [`own_scope`].
    pub(super) own_scopes: Vec<Option<ContextId>>,
}

impl Work {
    pub(super) fn of(data: &Attribution<'_>, device: &DeviceSnapshot, lives: &[HintedLifetime]) -> Self {
        let exits = exits(device);
        let [backward, steps] = [Hint::Backward, Hint::Step].map(|kind| passes(device, lives, kind, &exits));
        let are_all_known = device.overwritten == 0 && device.peak.not_recorded == 0;
        // Without the lines of inlined calls, some variables are not recognized.
        let is_python = data.is_python();
        let can_count = !data.health.no_line_numbers;
        let counted = match () {
            () if is_python => {
                GradientCounts { gradients: torch_gradients::gradients(lives, &backward), ..GradientCounts::default() }
            }
            () if can_count => gradients::count(lives, &backward, are_all_known),
            () => GradientCounts::default(),
        };
        let growing = growing(lives, |life| passes_after(&backward, life).is_empty());
        let history = AllocationHistory::of(lives);
        let contexts = 0..data.contexts.len() as u32;
        Self {
            is_python,
            programs: ProgramsWork::of(lives),
            copies: copies_of_models(data, lives),
            inputs: inputs(data, lives, &history),
            kept_once: gradients::kept_once(lives, &backward),
            forward: forward_passes(lives, &backward),
            flows: if is_python { UseFlows::default() } else { UseFlows::of(device, lives, &backward) },
            whole_passes: WholePasses::of(&backward),
            own_scopes: contexts.map(|context| own_scope(data, ContextId(context))).collect(),
            caches: growing.caches,
            prefixes: growing.prefixes,
            backward,
            steps,
            counted,
            history,
            exits,
        }
    }
}

/// Sites that load data repeatedly, if all sites of their line with enough blocks do. Otherwise, the line may load the
/// weights of models: with some of its stacks, it may allocate one block for each model.
fn inputs(data: &Attribution<'_>, lives: &[HintedLifetime], history: &AllocationHistory) -> HashSet<StackId> {
    let sites: HashSet<StackId> = lives.iter().filter(|life| life.hint == Hint::Input).map(|life| life.stack).collect();
    let line = |stack: StackId| match allocation_site(data, stack) {
        AllocationSite::User(frame) => frame.file.as_deref().zip(frame.line),
        _ => None,
    };
    let (come_again, stay): (Vec<_>, Vec<_>) = sites.into_iter().partition(|stack| history.comes_again(*stack));
    let stay = stay.into_iter().filter(|stack| history.repeats(*stack)).filter_map(line);
    let stay: HashSet<(&str, NonZeroU32)> = stay.collect();
    come_again.into_iter().filter(|stack| line(*stack).is_none_or(|line| !stay.contains(&line))).collect()
}

/// The innermost scope of a context that is not a module, or else its outermost module.
fn own_scope(data: &Attribution<'_>, context: ContextId) -> Option<ContextId> {
    let ids = data.context_ids(context);
    let is_scope = |id: &&ContextId| data.contexts.get(id.0 as usize).is_some_and(|node| !node.module);
    ids.iter().rfind(is_scope).or(ids.first()).copied()
}

fn forward_passes(lives: &[HintedLifetime], backward: &Passes) -> HashMap<(ThreadId, LogPosition), LogPosition> {
    let mut forward = HashMap::default();
    for life in lives.iter().filter(|life| life.of_stack.in_forward && life.from > 0) {
        let [next, rest @ ..] = passes_after(backward, life) else { continue };
        // A block that is still live when the pass after the next one begins does not belong to the next pass.
        if next.from < life.to && rest.first().is_none_or(|after| life.to < after.from) {
            forward.entry((life.thread, next.from)).or_insert(life.from);
        }
    }
    forward
}
