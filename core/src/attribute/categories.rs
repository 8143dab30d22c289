//! Categories of blocks: stated by the program, or inferred from stacks and lifetimes.
//!
//! A block first gets a verdict by itself: from its stack (`hint`), from its thread's passes (`passes`), from the history of
//! its site (`history`), from counting gradients against variables (`gradients`, `torch_gradients`), from growing caches (`growing`,
//! `reordered`), from copies of the model (`copies`) and from the thread that a worker works for (`workers`). Functions in which a model
//! works are found first (`model_functions`). Where that is open and uses were recorded, they decide (`use_flow`). A
//! verdict inferred from a lifetime alone is only likely: other blocks of the same site and size that stay revoke it. Where
//! the evidence does not decide, the category is unknown, and [`Either`] narrows it down if it can.

use std::num::{NonZeroU32, NonZeroU64};

use super::copies::copies_of_models;
use super::gradients::{self, GradientCounts, outlives};
use super::growing::growing;
use super::hint::Hint;
use super::history::AllocationHistory;
use super::lifetimes::{HintedLifetime, hinted};
use super::passes::{Exits, Pass, Passes, WholePasses, exits, pass_at, passes, passes_after};
use super::torch::is_python;
use super::use_flow::{BlockFlow, TrainingPhase, UseFlows, UseMoment};
use super::workers::{PartOf, ProgramsWork};
use super::{AllocationSite, Attribution, allocation_site, model_functions, torch_gradients};
use crate::hashed::{HashMap, HashSet};
use crate::snapshot::{Category, ContextId, DeviceSnapshot, Lifetimes, LogPosition, NEVER, StackId, ThreadId};

/// A block that is freed before this many further blocks are allocated was needed only briefly.
const SOON: usize = 10;

/// The category of each block of a device.
///
/// A category stated by the program (`name_as` and related functions) takes precedence. Otherwise:
///
/// | allocated | freed | category |
/// |---|---|---|
/// | where a rule of [`Rules`](crate::Rules) names a category | | that one, or TEMPORARY if freed soon |
/// | in a matrix kernel or a library that is not Rust | | WORKSPACE |
/// | by a suballocator | | unknown |
/// | as a variable that has gradients | | PARAMETER |
/// | by `copy`, one block for each variable, in one function | | PARAMETER |
/// | in a backward pass, by workers for it, too | within it | AUTOGRAD_DETAIL |
/// | in a backward pass | later | GRADIENT if the pass leaves as many blocks of this size as there are variables of it; AUTOGRAD_DETAIL if there are none, or if the program named the pass's gradients; unknown if it outlives a later pass and no other sum of its site does |
/// | in an optimizer's step | within it | TEMPORARY |
/// | in an optimizer's step | later | OPTIMIZER_STATE |
/// | by the program itself from data, repeatedly | before the next but one is allocated | INPUT |
/// | by `cat`, repeatedly growing by the same amount while the previous block is live and read | | KV_CACHE |
/// | by another operator | soon, or before a repeatedly entered scope ends | TEMPORARY |
/// | by another operator, in a function in which a model works | before the next backward pass begins | TEMPORARY |
/// | by another operator, in a forward pass | after the next backward pass began, before the one after that, and before its site allocates again | ACTIVATION |
///
/// A block that is live at the end, or outlives all of these, gets the category of the other blocks with its stack, if they
/// agree; otherwise it is unknown.
#[derive(Clone, Debug, Default)]
pub struct Categories {
    /// Sorted.
    seqs: Vec<NonZeroU64>,
    /// The category of each, and what it can only be if it is unknown.
    found: Vec<(Category, Option<Either>)>,
    lives: Vec<HintedLifetime>,
    /// Backward passes and steps of optimizers.
    passes: [Passes; 2],
}

/// What a block of unknown category can only be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Either {
    /// A gradient, or another block of the backward pass that a gradient keeps alive.
    GradientOrGraph,
    /// A variable, of a model or an optimizer.
    ModelOrOptimizer,
    /// Replaced by its site's next block in the next iteration: optimizer state, a copy of a parameter, or a result.
    Replaced,
    /// Data that was brought in once and stays: a data set, or weights.
    InputOrWeights,
    /// A block of a suballocator, which hands out parts of it to tensors.
    GivenOut,
}

impl Either {
    /// The label in tables.
    pub fn label(self) -> &'static str {
        match self {
            Self::GradientOrGraph => "unknown (gradient or graph)",
            Self::ModelOrOptimizer => "unknown (kept by model or optimizer)",
            Self::Replaced => "unknown (kept from one iteration to the next)",
            Self::InputOrWeights => "unknown (input or weights)",
            Self::GivenOut => "unknown (given out in parts)",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Is(Category),
    /// Inferred from its lifetime; void if similar blocks stay.
    Likely(Category),
    /// Unknown, and not brief.
    Kept(Option<Either>),
    Open,
}

const TEMPORARY: Verdict = Verdict::Likely(Category::Temporary);

impl Categories {
    /// The category of the block with this number ([`Block::seq`](crate::snapshot::Block::seq)).
    pub fn get(&self, seq: Option<NonZeroU64>) -> Category {
        self.of_block(seq).0
    }

    /// What the block can only be, if its category is unknown but narrowed down.
    pub fn either(&self, seq: Option<NonZeroU64>) -> Option<Either> {
        self.of_block(seq).1
    }

    /// The lifetimes of all blocks that the recording knows, in the order of their allocation, with their categories.
    pub(crate) fn lives(&self) -> impl Iterator<Item = (&HintedLifetime, Category)> {
        self.lives.iter().zip(&self.found).map(|(life, (category, _))| (life, *category))
    }

    /// Where the backward pass, or the optimizer's step, that allocated the block begins.
    pub(crate) fn pass_of(&self, life: &HintedLifetime) -> Option<LogPosition> {
        let mut found = self.passes.iter().filter_map(|passes| pass_at(passes, life));
        found.find(|pass| life.from <= pass.to).map(|pass| pass.from)
    }

    /// The label in tables: the category, or what [`either`](Self::either) knows.
    #[doc(hidden)]
    pub fn label(&self, seq: Option<NonZeroU64>) -> &'static str {
        match self.of_block(seq) {
            (Category::Unknown, Some(either)) => either.label(),
            (category, _) => category.word(),
        }
    }
}

impl Categories {
    /// The categories of all blocks that the recording knows. A [`DeviceView`](crate::DeviceView) has them.
    pub(crate) fn of(data: &Attribution<'_>, device: &DeviceSnapshot, lifetimes: &Lifetimes) -> Self {
        let mut lives = hinted(data, lifetimes);
        model_functions::learn(data, &mut lives);
        let work = Work::of(data, device, &lives);
        let mut names = device.names.iter().filter(|name| name.category != Category::Unknown).peekable();
        // Names and lives are in the same order.
        let mut told = |life: &HintedLifetime| {
            while names.next_if(|name| name.seq < life.seq).is_some() {}
            names.peek().filter(|name| name.seq == life.seq).map(|name| name.category)
        };
        let verdict = |life: &HintedLifetime| match told(life) {
            Some(category) => Verdict::Is(category),
            None if !work.is_python && work.caches.contains(&life.seq) => Verdict::Is(Category::KvCache),
            None => work.verdict(life),
        };
        let verdicts: Vec<Verdict> = lives.iter().map(verdict).collect();
        let mut found = agreed(&lives, &verdicts);
        inherit(&lives, &verdicts, &mut found);
        let passes = [work.backward, work.steps];
        Self { seqs: lives.iter().map(|life| life.seq).collect(), found, lives, passes }
    }

    fn of_block(&self, seq: Option<NonZeroU64>) -> (Category, Option<Either>) {
        let at = seq.and_then(|seq| self.seqs.binary_search(&seq).ok());
        at.and_then(|at| self.found.get(at)).copied().unwrap_or_default()
    }
}

/// The category of each verdict, and what an unknown one can only be.
fn agreed(lives: &[HintedLifetime], verdicts: &[Verdict]) -> Vec<(Category, Option<Either>)> {
    let like = Like::of(lives, verdicts);
    let category = |(life, verdict): (&HintedLifetime, &Verdict)| match verdict {
        Verdict::Is(category) => (*category, None),
        Verdict::Likely(category) if !like.stays(life) => (*category, None),
        Verdict::Likely(_) | Verdict::Open => (Category::Unknown, None),
        Verdict::Kept(either) => (Category::Unknown, *either),
    };
    lives.iter().zip(verdicts).map(category).collect()
}

/// Gives live and open blocks the category of the blocks with the same stack, if those agree.
fn inherit(lives: &[HintedLifetime], verdicts: &[Verdict], found: &mut [(Category, Option<Either>)]) {
    let is_open = |life: &HintedLifetime, verdict: &Verdict| life.to == NEVER || *verdict == Verdict::Open;
    let may = |hint| matches!(hint, Hint::Forward | Hint::Join | Hint::Input | Hint::Step);
    let inherits = |life: &HintedLifetime, verdict: &Verdict, category: Category| {
        category == Category::Unknown && may(life.hint) && is_open(life, verdict)
    };
    let mut of_stack: HashMap<StackId, Option<Category>> = HashMap::default();
    for ((life, verdict), (category, _)) in lives.iter().zip(verdicts).zip(found.iter()) {
        if is_open(life, verdict) {
            continue;
        }
        let known = Some(*category).filter(|known| *known != Category::Unknown);
        of_stack.entry(life.stack).and_modify(|agreed| *agreed = agreed.filter(|_| *agreed == known)).or_insert(known);
    }
    for ((life, verdict), (category, either)) in lives.iter().zip(verdicts).zip(found) {
        if inherits(life, verdict, *category)
            && let Some(agreed) = of_stack.get(&life.stack).copied().flatten()
        {
            (*category, *either) = (agreed, None);
        }
    }
}

/// Blocks that stay, by site and size.
#[derive(Default)]
struct Like(HashMap<(StackId, u64), StayingBlocks>);

#[derive(Default)]
struct StayingBlocks {
    /// They replace each other.
    are_replaced: bool,
    /// Sorted positions of their frees.
    freed: Vec<LogPosition>,
}

impl Like {
    fn of(lives: &[HintedLifetime], verdicts: &[Verdict]) -> Self {
        let mut like = Self::default();
        for (life, verdict) in lives.iter().zip(verdicts) {
            match verdict {
                Verdict::Kept(Some(_)) | Verdict::Is(Category::OptimizerState | Category::Parameter) => {
                    like.0.entry((life.stack, life.size)).or_default().are_replaced = true;
                }
                Verdict::Kept(None) if life.to != NEVER => {
                    like.0.entry((life.stack, life.size)).or_default().freed.push(life.to);
                }
                _ => {}
            }
        }
        // A stable sort uses that most of them are in order.
        like.0.values_mut().for_each(|blocks| blocks.freed.sort());
        like
    }

    /// Is the block like one that stays: the last of a collection that is dropped together, or the last of blocks that replaced
    /// each other?
    fn stays(&self, life: &HintedLifetime) -> bool {
        /// Maximum number of records between the frees of a collection.
        const TOGETHER: LogPosition = 8;
        let Some(StayingBlocks { are_replaced, freed }) = self.0.get(&(life.stack, life.size)) else { return false };
        let next = freed.get(freed.partition_point(|at| *at + TOGETHER < life.to));
        *are_replaced || next.is_some_and(|at| *at <= life.to + TOGETHER)
    }
}

/// The evidence for verdicts.
struct Work {
    /// The program is Python's: lifetimes decide nothing, because variables and forward passes are not known.
    is_python: bool,
    backward: Passes,
    steps: Passes,
    counted: GradientCounts,
    history: AllocationHistory,
    programs: ProgramsWork,
    /// Blocks of copies of a model, and sites of data that comes again and again.
    copies: HashSet<NonZeroU64>,
    inputs: HashSet<StackId>,
    /// Results of a backward pass that outlive a later one, which no other pass leaves at their sites.
    kept_once: HashSet<NonZeroU64>,
    /// The first retained block of each forward pass, judging by the functions on stacks; keyed by where its backward pass begins.
    forward: HashMap<(ThreadId, LogPosition), LogPosition>,
    /// Growing caches, and blocks that they may have begun with.
    caches: HashSet<NonZeroU64>,
    prefixes: HashSet<NonZeroU64>,
    exits: Exits,
    flows: UseFlows,
    whole_passes: WholePasses,
    /// By context, see [`own_scope`].
    own_scopes: Vec<Option<ContextId>>,
}

impl Work {
    fn of(data: &Attribution<'_>, device: &DeviceSnapshot, lives: &[HintedLifetime]) -> Self {
        let exits = exits(device);
        let [backward, steps] = [Hint::Backward, Hint::Step].map(|kind| passes(device, lives, kind, &exits));
        let are_all_known = device.overwritten == 0 && device.peak.not_recorded == 0;
        // Without the lines of inlined calls, some variables are not recognised.
        let is_python = is_python(data);
        let can_count = !data.health.no_line_numbers;
        let counted = match () {
            () if is_python => GradientCounts::of_torch(torch_gradients::gradients(lives, &backward)),
            () if can_count => gradients::count(lives, &backward, are_all_known),
            () => GradientCounts::default(),
        };
        let growing = growing(lives, |life| passes_after(&backward, life).is_empty());
        let (caches, prefixes) = (growing.caches, growing.prefixes);
        let (forward, history) = (forward_passes(lives, &backward), AllocationHistory::of(lives));
        let flows = if is_python { UseFlows::default() } else { UseFlows::of(device, lives, &backward) };
        let own_scopes = (0..data.contexts.len() as u32).map(|context| own_scope(data, ContextId(context))).collect();
        let whole_passes = WholePasses::of(&backward);
        let kept_once = gradients::kept_once(lives, &backward);
        let inputs = inputs(data, lives, &history);
        Self {
            is_python,
            programs: ProgramsWork::of(lives),
            copies: copies_of_models(data, lives),
            inputs,
            kept_once,
            backward,
            steps,
            counted,
            history,
            forward,
            caches,
            prefixes,
            exits,
            flows,
            whole_passes,
            own_scopes,
        }
    }

    /// The verdict from stacks and lifetimes; where that is open, from the uses.
    fn verdict(&self, life: &HintedLifetime) -> Verdict {
        let verdict = self.by_lifetime(life);
        match verdict {
            Verdict::Is(_) | Verdict::Likely(_) => verdict,
            Verdict::Kept(_) | Verdict::Open => self.by_uses(life, verdict).unwrap_or(verdict),
        }
    }

    fn by_uses(&self, life: &HintedLifetime, verdict: Verdict) -> Option<Verdict> {
        let (flow, last) = self.flows.get(life).and_then(|flow| Some((flow, flow.last?)))?;
        match (verdict, life.hint) {
            (Verdict::Kept(Some(Either::ModelOrOptimizer)), _) => self.variable(flow),
            (Verdict::Kept(Some(Either::GradientOrGraph)), _) => {
                let pass = pass_at(&self.backward, life)?;
                (pass.to < last.at && last.phase != TrainingPhase::Backward).then_some(Verdict::Is(Category::Gradient))
            }
            (_, Hint::Forward | Hint::Join) if life.from > 0 => self.result(life, flow, last),
            _ => None,
        }
    }

    /// Something reads a parameter in a pass of the model; an optimizer's state pauses during the whole backward pass.
    fn variable(&self, flow: &BlockFlow) -> Option<Verdict> {
        if flow.is_used_by_model() {
            return Some(Verdict::Is(Category::Parameter));
        }
        let is_state = flow.pause.is_some_and(|[begin, end]| self.whole_passes.is_any_within(begin.at, end.at));
        is_state.then_some(Verdict::Is(Category::OptimizerState))
    }

    /// Of a forward pass: the next backward pass uses an activation last. What is used later, and is then replaced, is a
    /// parameter or an optimizer's state. All blocks of a site must agree.
    fn result(&self, life: &HintedLifetime, flow: &BlockFlow, last: UseMoment) -> Option<Verdict> {
        let next = passes_after(&self.backward, life).first()?;
        let may_be_input = life.of_stack.moves && !life.of_stack.in_forward;
        let site = self.flows.site(life.stack);
        // Data that the program computes is read by the backward pass, too, but no part of the forward pass.
        let is_of_pass = life.of_stack.in_forward || self.has_begun(life, next.from);
        let is_activation = (next.from..=next.to).contains(&last.at) && !site.outlasts && !may_be_input && is_of_pass;
        let is_replaced = next.to < last.at && self.history.allocates_between(life.stack, next.from, life.to);
        // Averages of weights pause, too, but no gradient flows into them.
        let is_state = is_replaced && site.is_fed && !site.ends && flow.pauses(next.from, next.to);
        // A model's function replaces its statistics one by one; what it returns may be collected.
        let may_be_parameter = !life.of_stack.in_forward || self.history.is_replaced(life.stack, life.from, life.to);
        let category = if is_activation {
            Some(Category::Activation)
        } else if is_replaced && site.is_used_by_model && last.phase != TrainingPhase::Backward && may_be_parameter {
            Some(Category::Parameter)
        } else {
            is_state.then_some(Category::OptimizerState)
        };
        category.map(Verdict::Is)
    }

    fn by_lifetime(&self, life: &HintedLifetime) -> Verdict {
        if self.is_python && !matches!(life.hint, Hint::Rule(_) | Hint::Backward | Hint::Step) {
            return Verdict::Open;
        }
        match life.hint {
            Hint::Nothing | Hint::Forward if life.of_stack.is_workers => self.of_worker(life),
            Hint::Workspace => Verdict::Is(Category::Workspace),
            Hint::GivenOut => Verdict::Kept(Some(Either::GivenOut)),
            Hint::Rule(Category::Unknown) => Verdict::Open,
            Hint::Rule(_) if self.is_soon_freed(life) => TEMPORARY,
            Hint::Rule(_) if self.is_short(life) => Verdict::Open,
            Hint::Rule(Category::Parameter) if self.history.is_gone_unused(life) => Verdict::Open,
            Hint::Rule(category) => Verdict::Is(category),
            Hint::Variable if self.counted.parameters.contains(&life.seq) => Verdict::Is(Category::Parameter),
            Hint::Variable => Verdict::Kept(Some(Either::ModelOrOptimizer)),
            Hint::Backward => self.in_backward(life),
            Hint::Step => self.in_step(life),
            Hint::Input => self.input(life),
            Hint::Forward if self.copies.contains(&life.seq) => Verdict::Is(Category::Parameter),
            Hint::Forward | Hint::Join => self.in_forward(life),
            Hint::Nothing if self.is_soon_freed(life) => TEMPORARY,
            Hint::Nothing | Hint::Constant => self.otherwise(life),
        }
    }

    fn of_worker(&self, life: &HintedLifetime) -> Verdict {
        match self.programs.around(life, &self.backward) {
            PartOf::Backward => Verdict::Is(Category::AutogradDetail),
            PartOf::Operator => Verdict::Is(Category::Temporary),
            PartOf::Nothing if self.is_soon_freed(life) => TEMPORARY,
            PartOf::Nothing | PartOf::Either => self.otherwise(life),
        }
    }

    /// Freed before [`SOON`] more blocks were allocated by any thread, and not because its thread ended.
    fn is_soon_freed(&self, life: &HintedLifetime) -> bool {
        self.is_short(life) && self.history.goes_on(life.thread, life.to)
    }

    fn is_short(&self, life: &HintedLifetime) -> bool {
        let is_finite = life.from > 0 && life.to != NEVER;
        is_finite && self.history.allocations(life.from, life.to) < SOON
    }

    /// No evidence: open if the block was brief.
    fn otherwise(&self, life: &HintedLifetime) -> Verdict {
        if self.is_short(life) { Verdict::Open } else { Verdict::Kept(None) }
    }

    fn in_backward(&self, life: &HintedLifetime) -> Verdict {
        let Some(pass) = pass_at(&self.backward, life) else { return Verdict::Kept(None) };
        // Blocks of the pass's own go when it ends; so do its gradients if nobody takes them.
        let in_pass = life.to <= pass.to || !outlives(life, pass) && pass.next.is_some() && self.has_result(life, pass);
        let may_be_gradient = life.of_stack.is_gradient || self.is_python && (life.to == NEVER || outlives(life, pass));
        let is_detail = in_pass || pass.has_gradients || !may_be_gradient;
        if is_detail || self.counted.details.contains(&life.seq) {
            Verdict::Is(Category::AutogradDetail)
        } else if self.kept_once.contains(&life.seq) {
            Verdict::Kept(None)
        } else if self.counted.gradients.contains(&life.seq) {
            Verdict::Is(Category::Gradient)
        } else {
            Verdict::Kept(Some(Either::GradientOrGraph))
        }
    }

    fn has_result(&self, life: &HintedLifetime, pass: &Pass) -> bool {
        self.history.outlive(life.thread, pass.from, pass.to, pass.next.unwrap_or(NEVER))
    }

    fn in_step(&self, life: &HintedLifetime) -> Verdict {
        match pass_at(&self.steps, life) {
            Some(pass) if life.to <= pass.to => Verdict::Is(Category::Temporary),
            Some(pass) if pass.next.is_some_and(|next| life.to < next) => TEMPORARY,
            Some(pass) if pass.is_over => Verdict::Is(Category::OptimizerState),
            _ => Verdict::Open,
        }
    }

    fn input(&self, life: &HintedLifetime) -> Verdict {
        if life.of_stack.in_forward || self.is_short(life) {
            Verdict::Open
        } else if self.inputs.contains(&life.stack) {
            Verdict::Is(Category::Input)
        } else {
            Verdict::Kept(Some(Either::InputOrWeights))
        }
    }

    fn in_forward(&self, life: &HintedLifetime) -> Verdict {
        if life.from == 0 {
            return Verdict::Kept(None);
        }
        let (next, after) = match passes_after(&self.backward, life) {
            [next, rest @ ..] => (next.from, rest.first().map_or(NEVER, |pass| pass.from)),
            [] => (NEVER, NEVER),
        };
        match life.to {
            to if to < next && self.is_temporary(life) => TEMPORARY,
            to if to < next && next != NEVER && self.is_of_inference(life) => TEMPORARY,
            to if next < to && self.history.allocates_between(life.stack, next, to) => {
                Verdict::Kept(Some(Either::Replaced))
            }
            to if next < to && self.is_of_forward_pass(life, next) && (to < after || self.comes_again(life)) => {
                Verdict::Likely(Category::Activation)
            }
            _ => self.otherwise(life),
        }
    }

    fn is_temporary(&self, life: &HintedLifetime) -> bool {
        let is_short = || match self.is_within_its_scope(life) {
            Some(is_within) => is_within && (self.is_short(life) || self.history.is_straight(life)),
            None => self.is_soon_freed(life),
        };
        // A batch picked from a data set is freed with the pass that it was for.
        let may_be_input = life.of_stack.moves && !life.of_stack.in_forward && self.history.spans_forward(life);
        !may_be_input && !self.prefixes.contains(&life.seq) && (is_short() || self.is_brief(life))
    }

    /// A result of a model that no backward pass finds. It may not be part of a cache, so nothing may grow.
    fn is_of_inference(&self, life: &HintedLifetime) -> bool {
        life.of_stack.in_forward && life.hint == Hint::Forward && !life.of_stack.moves && self.caches.is_empty()
    }

    /// A model's result that lives over other passes, and whose site allocates once it is freed.
    fn comes_again(&self, life: &HintedLifetime) -> bool {
        life.of_stack.in_forward && self.history.allocates_between(life.stack, life.to, NEVER)
    }

    /// Its site allocates repeatedly, each time briefly. In training, gradients that the program processes look the same, so the
    /// block must be part of a forward pass; so must a block that overlaps with the next, as sums do.
    fn is_brief(&self, life: &HintedLifetime) -> bool {
        let trains = self.backward.get(&life.thread).is_some_and(|passes| !passes.is_empty());
        (life.of_stack.in_forward || !trains)
            && self.history.is_brief(life.stack, life.of_stack.in_forward && life.hint == Hint::Forward)
    }

    /// Either its stack says so, or the pass had begun before it and its site also allocated before the thread's first backward
    /// pass, when there was nothing to update yet.
    fn is_of_forward_pass(&self, life: &HintedLifetime, next: LogPosition) -> bool {
        let first = self.backward.get(&life.thread).and_then(|passes| passes.first());
        let recurs = first.is_some_and(|first| self.history.allocates_around(life.stack, first.from));
        life.of_stack.in_forward || recurs && self.has_begun(life, next)
    }

    /// Had the forward pass that leads to the backward pass at `next` begun before the block?
    fn has_begun(&self, life: &HintedLifetime, next: LogPosition) -> bool {
        self.forward.get(&(life.thread, next)).is_some_and(|begins| *begins < life.from)
    }

    /// Was it freed before the program left its innermost scope that is not a module? `None` outside of all scopes, and for a
    /// freed block whose scope was entered once: that scope may be the whole program.
    fn is_within_its_scope(&self, life: &HintedLifetime) -> Option<bool> {
        let own = (*self.own_scopes.get(life.context.0 as usize)?)?;
        let exits = self.exits.get(&(life.thread, own))?;
        let left = exits.get(exits.partition_point(|at| *at < life.from))?;
        match life.to <= *left {
            false => Some(false),
            true if exits.len() > 1 => Some(true),
            true => None,
        }
    }
}

/// Sites whose data comes again and again, if that holds for all sites of their line: one line may load the weights of a model by
/// several stacks, and of some each model has one block.
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
        // What outlives the pass after it is not of this one.
        if next.from < life.to && rest.first().is_none_or(|after| life.to < after.from) {
            forward.entry((life.thread, next.from)).or_insert(life.from);
        }
    }
    forward
}
