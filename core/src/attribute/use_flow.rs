//! Data flow of blocks: the training phases of a block's last use, and of the uses before and after its longest pause.
//! Recorded uses ([`BlockUses`]) distinguish what lifetimes cannot: parameters from optimizer state, and gradients from
//! blocks that the graph keeps.
//!
//! A use has the number of the device's last alloc before it. Its phase is the phase of this alloc, because an operator
//! allocates its result before it launches.

use std::num::NonZeroU64;

use super::hint::Hint;
use super::lifetimes::HintedLifetime;
use super::passes::{Passes, is_in_pass, passes_after};
use crate::hashed::{HashMap, HashSet};
use crate::snapshot::{DeviceSnapshot, LogPosition, StackId, ThreadId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrainingPhase {
    /// A function in which a model works is on the stack.
    Forward,
    Backward,
    /// An optimizer's step, or anything else.
    Other,
}

/// The moment of a use: a position in the log, and its phase.
#[derive(Clone, Copy, Debug)]
pub(super) struct UseMoment {
    pub(super) at: LogPosition,
    pub(super) phase: TrainingPhase,
}

impl UseMoment {
    fn is_of_model(self) -> bool {
        self.phase != TrainingPhase::Other
    }
}

/// The certain uses of a block. Its last use may be known without its pause, and the pause without the last use.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockFlow {
    /// The last use. No later operation can have used the block.
    pub(super) last: Option<UseMoment>,
    /// The uses before and after the longest time without a use.
    pub(super) pause: Option<[UseMoment; 2]>,
}

impl BlockFlow {
    /// Whether a model uses the block at one of the known moments.
    pub(super) fn is_used_by_model(&self) -> bool {
        self.last.is_some_and(UseMoment::is_of_model) || self.pause.into_iter().flatten().any(UseMoment::is_of_model)
    }
}

/// The flows of all blocks whose uses were recorded.
#[derive(Debug, Default)]
pub(super) struct UseFlows {
    flows: HashMap<NonZeroU64, BlockFlow>,
    sites: HashMap<StackId, SiteFlow>,
}

/// Properties that at least one block of a site has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SiteFlow {
    /// A model uses the block.
    pub(super) is_used_by_model: bool,
    /// The block's last use comes after the backward pass that follows its allocation.
    pub(super) outlasts: bool,
    /// The block's last use comes before the end of the backward pass that follows its allocation.
    pub(super) ends: bool,
    /// The block was computed from a gradient.
    pub(super) is_fed: bool,
}

impl UseFlows {
    pub(super) fn of(device: &DeviceSnapshot, lives: &[HintedLifetime], backward: &Passes) -> Self {
        let mut found = Self::default();
        if device.uses.is_empty() {
            return found;
        }
        // The positions of results that were computed from a gradient, directly or indirectly.
        let mut fed: HashSet<LogPosition> = HashSet::default();
        for life in lives {
            let Some(uses) = device.uses_of(Some(life.seq)).filter(|uses| !uses.escaped) else { continue };
            let moment = |after_alloc| moment(lives, backward, life.thread, after_alloc);
            let pause = uses.idle.and_then(|idle| Some([moment(idle.from_alloc)?, moment(idle.to_alloc)?]));
            let flow = BlockFlow { last: uses.known_last().and_then(|used| moment(used.after_alloc)), pause };
            let site = found.sites.entry(life.stack).or_default();
            site.is_used_by_model |= flow.is_used_by_model();
            site.is_fed |= fed.contains(&life.from);
            if life.hint == Hint::Backward || life.hint == Hint::Forward && fed.contains(&life.from) {
                fed.extend(flow.last.into_iter().chain(flow.pause.map(|[_, end]| end)).map(|moment| moment.at));
            }
            if let Some((last, next)) = flow.last.zip(passes_after(backward, life).first()) {
                site.outlasts |= next.to < last.at;
                site.ends |= last.at <= next.to;
            }
            found.flows.insert(life.seq, flow);
        }
        found
    }

    pub(super) fn get(&self, life: &HintedLifetime) -> Option<&BlockFlow> {
        self.flows.get(&life.seq)
    }

    pub(super) fn site(&self, stack: StackId) -> SiteFlow {
        self.sites.get(&stack).copied().unwrap_or_default()
    }
}

/// The moment of a use after this alloc; `None` for a use before the log. `lives` are sorted by block number.
fn moment(lives: &[HintedLifetime], backward: &Passes, thread: ThreadId, after_alloc: u64) -> Option<UseMoment> {
    let seq = NonZeroU64::new(after_alloc)?;
    let before = lives.get(lives.binary_search_by_key(&seq, |life| life.seq).ok()?)?;
    let at = Some(before.from).filter(|from| *from > 0)?;
    let phase = if is_in_pass(backward, thread, at) {
        TrainingPhase::Backward
    } else if before.of_stack.in_forward && before.hint != Hint::Step {
        TrainingPhase::Forward
    } else {
        TrainingPhase::Other
    };
    Some(UseMoment { at, phase })
}
