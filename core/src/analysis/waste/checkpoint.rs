//! Checkpointing: a module frees what its forward pass keeps for the backward pass, and computes it again when that arrives there.
//!
//! The log is replayed as if each call of the module were made by the wrapper of docs/findings.md, which is one node of candle's graph:
//! * When the call ends, its result is copied, and all that it has kept is freed.
//! * Where the backward pass reaches the first step of the call, the wrapper copies the input to a variable, runs the forward pass once
//!   more, begins a pass of its own with the gradient of the result, and frees all of that after its last step.
//! * What its gradients keep is freed, and the gradient of the input is added to that of the program's pass.
//!
//! Which steps are the call's is known from [`pairings`](crate::attribute::Pairings). The input is supposed to be what the call after it in the
//! backward pass returned, and to be used by the module alone; with another input, the peak may differ by three times its size.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU64;
use std::ops::Range;

use super::replay::{LogReplay, Stop};
use crate::analysis::scopes::name_pattern;
use crate::attribute::{module, operator};
use crate::recording::DeviceView;
use crate::snapshot::{Category, ContextId, GraphNodeKind, Lifetime, NEVER, Record, RecordKind, ThreadId};

/// Modules, or one, with which the peak is lower if they are checkpointed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The paths of the first and the last module, which differ in numbers only; one path if it is one module.
    pub modules: String,
    /// Number of modules.
    pub count: u64,
    /// Calls that are made twice.
    pub calls: u64,
    /// The most that a call keeps for its backward pass, without its result.
    pub kept: u64,
    /// Time of the host in which these calls were running, in nanoseconds.
    pub forward_ns: u64,
    /// Reduction of the peak.
    pub saves: u64,
    /// The peak then.
    pub peak_without: u64,
    /// Otherwise it is near that: for some blocks it is not known whether they are gradients, which stay, or calls share a variable.
    pub is_exact: bool,
}

/// The scalar of the pass within, and its gradient.
const SCALAR: i64 = 4;

/// What checkpointing modules saves, the largest reduction of the peak first. Nothing if no pairing is known, and if the log has lost
/// records.
pub fn checkpoints(device: &DeviceView<'_>) -> Vec<Checkpoint> {
    if device.pairings().is_empty() {
        return Vec::new();
    }
    let Some(log) = LogReplay::of(device) else { return Vec::new() };
    let steps = Steps::of(device);
    let found = families(device).into_iter().filter_map(|calls| checkpoint(device, &log, &steps, &calls));
    let mut found: Vec<Checkpoint> = found.collect();
    found.sort_by_key(|found| (found.peak_without, found.forward_ns));
    found
}

/// `None` if nothing is saved.
fn checkpoint(device: &DeviceView<'_>, log: &LogReplay, steps: &Steps, calls: &[ModuleCall]) -> Option<Checkpoint> {
    let replayed = || calls.iter().filter_map(|call| Some((call, Replayed::of(device, steps, call)?)));
    let (calls, replayed): (Vec<&ModuleCall>, Vec<Replayed>) = replayed().unzip();
    let gone = replayed.iter().flat_map(|call| call.details.iter().map(|block| block.seq)).collect();
    let peak_without = log.peak_with_stops(replayed.iter().flat_map(|call| call.stops(&gone)).collect());
    let saves = device.peak.bytes.checked_sub(peak_without).filter(|saves| *saves > 0)?;
    let mut paths: Vec<&str> = Vec::new();
    for call in &calls {
        if !paths.contains(&&*call.path) {
            paths.push(&call.path);
        }
    }
    let ends: Vec<&str> = paths.first().into_iter().chain(paths.get(1..)?.last()).copied().collect();
    Some(Checkpoint {
        modules: ends.join(" … "),
        count: paths.len() as u64,
        calls: replayed.len() as u64,
        kept: replayed.iter().map(|call| call.kept - call.result).max().unwrap_or(0).unsigned_abs(),
        forward_ns: calls.iter().map(|call| call.to_ns - call.from_ns).sum(),
        saves,
        peak_without,
        is_exact: replayed.iter().all(|call| call.is_exact),
    })
}

/// A call of a module.
#[derive(Clone, Debug)]
struct ModuleCall {
    path: String,
    thread: ThreadId,
    from_ns: u64,
    to_ns: u64,
    /// Its records, and those of other threads between them.
    records: Range<usize>,
}

/// The calls of modules; of those whose paths differ in numbers only, together.
fn families(device: &DeviceView<'_>) -> Vec<Vec<ModuleCall>> {
    let data = device.data();
    let is_module = |context: ContextId| data.contexts.get(context.0 as usize).is_some_and(|node| node.module);
    let mut found: BTreeMap<String, Vec<ModuleCall>> = BTreeMap::new();
    let mut open: HashMap<(ThreadId, ContextId), u64> = HashMap::new();
    for mark in device.marks.iter().filter(|mark| is_module(mark.context)) {
        let key = (mark.thread, mark.context);
        if mark.enter {
            open.insert(key, mark.time_ns);
            continue;
        }
        let Some((from_ns, path)) = open.remove(&key).zip(module(data, mark.context)) else { continue };
        let at = |ns| device.records.partition_point(|record| record.time_ns <= ns);
        let (to_ns, records) = (mark.time_ns, at(from_ns)..at(mark.time_ns));
        let pattern = name_pattern(&path);
        found.entry(pattern).or_default().push(ModuleCall { path, thread: mark.thread, from_ns, to_ns, records });
    }
    found.into_values().collect()
}

/// The blocks of backward passes whose forward call is known, with the positions of their allocs.
struct Steps {
    by_forward: HashMap<NonZeroU64, Vec<usize>>,
    /// In the order of the log, with the forward calls.
    all: Vec<(usize, NonZeroU64)>,
}

impl Steps {
    fn of(device: &DeviceView<'_>) -> Self {
        let place = |life: &Lifetime| {
            let forward = device.pairings().get(Some(life.seq))?.forward;
            Some((life.from.checked_sub(1)? as usize, forward))
        };
        let all: Vec<(usize, NonZeroU64)> = device.lifetimes().iter().filter_map(place).collect();
        let mut by_forward: HashMap<NonZeroU64, Vec<usize>> = HashMap::new();
        all.iter().for_each(|(at, forward)| by_forward.entry(*forward).or_default().push(*at));
        Self { by_forward, all }
    }

    /// The first and last block of the steps of these calls, and the call whose step is first. `None` if another call's step is in between.
    fn within(&self, calls: &HashSet<NonZeroU64>) -> Option<(usize, usize, NonZeroU64)> {
        let of = |call: &NonZeroU64| {
            let places = self.by_forward.get(call)?;
            Some((*places.first()?, *places.last()?, *call))
        };
        let (first, _, call) = calls.iter().filter_map(of).min()?;
        let last = calls.iter().filter_map(of).map(|(_, last, _)| last).max()?;
        let between = self.all.get(self.after(first)..)?.iter().take_while(|(at, _)| *at <= last);
        between.into_iter().all(|(_, forward)| calls.contains(forward)).then_some((first, last, call))
    }

    /// The gradient with which a step at this place begins: the last block of its size that steps before it made and that is live.
    fn gradient_before<'d>(&self, device: &'d DeviceView<'_>, pass: &Range<usize>, size: u64) -> Option<&'d Lifetime> {
        let before = self.all.get(..self.all.partition_point(|(at, _)| *at < pass.start))?.iter().rev();
        let lives = before.filter_map(|(at, _)| device.lifetimes().get(device.records.get(*at)?.alloc_seq?));
        let mut of_size = lives.filter(|life| life.block.size == size && life.to as usize > pass.start);
        of_size.find(|life| is_sum(device, life) && is_detail(device, life, pass.end) != Some(false))
    }

    /// The first of all steps that comes after this one.
    fn after(&self, at: usize) -> usize {
        self.all.partition_point(|(place, _)| *place <= at)
    }
}

/// A block that the program frees later, if it does: where, and its size.
#[derive(Clone, Copy, Debug)]
struct Freed {
    seq: NonZeroU64,
    at: Option<usize>,
    size: i64,
}

impl Freed {
    fn of(life: &Lifetime) -> Self {
        Self { seq: life.seq, at: (life.to != NEVER).then(|| life.to as usize - 1), size: size(life.block.size) }
    }
}

/// A call that is made twice.
struct Replayed {
    /// Its end.
    end: usize,
    /// What it allocates and frees itself, in order.
    own: Vec<i64>,
    /// Sum of what it keeps.
    kept: i64,
    /// Blocks other than its result that it keeps.
    activations: Vec<Freed>,
    /// Blocks of its steps, other than gradients, that are there after the last one.
    details: Vec<Freed>,
    /// Blocks that are freed with the gradient of the result, which the wrapper's node has to its end.
    of_result: Vec<Freed>,
    /// Which blocks these are is known, and no variable of it is another call's, too.
    is_exact: bool,
    result: i64,
    input: i64,
    /// From the first alloc of its first step to the alloc after its last one.
    pass: Range<usize>,
}

impl Replayed {
    fn of(device: &DeviceView<'_>, steps: &Steps, call: &ModuleCall) -> Option<Self> {
        let records = device.records.get(call.records.clone())?;
        let own = records.iter().filter(|record| record.thread == call.thread);
        let of = |kind| own.clone().filter(move |record| record.kind == kind);
        let made: HashSet<NonZeroU64> = of(RecordKind::Alloc).filter_map(|record| record.alloc_seq).collect();
        let (first, last, result) = steps.within(&made)?;
        let lives = || of(RecordKind::Alloc).filter_map(|record| device.lifetimes().get(record.alloc_seq?));
        let end = call.records.end;
        let kept = || lives().filter(|life| life.to == NEVER || life.to as usize > end);
        // The result is the last of what the backward pass knows, and lives on.
        kept().filter(|life| steps.by_forward.contains_key(&life.seq)).last().filter(|life| life.seq == result)?;
        let (_, before) = *steps.all.get(steps.after(last))?;
        let input = device.lifetimes().get(before).filter(|life| (life.from as usize) <= call.records.start)?;
        let after = device.records.get(last + 1..)?.iter();
        let next = after.take_while(|record| record.kind != RecordKind::Alloc || record.thread != call.thread).count();
        let pass = first..last + 1 + next;
        let change = |record: &&Record| match (record.kind, record.alloc_seq) {
            (RecordKind::Alloc, _) => Some(size(record.size)),
            (_, Some(seq)) if made.contains(&seq) => Some(-size(record.size)),
            _ => None,
        };
        let result = device.lifetimes().get(result)?;
        let mut details = details(device, call.thread, &pass, input.block.size);
        let gradient = steps.gradient_before(device, &pass, result.block.size);
        details.extend(gradient.filter(|life| life.to as usize > pass.end).map(|life| Some(Freed::of(life))));
        let places = steps.by_forward.get(&result.seq)?;
        let (of_first, of_result) = ((first, *places.last()?), (gradient.map(|life| life.seq), result.block.size));
        Some(Self {
            end,
            own: own.clone().filter_map(|record| change(&record)).collect(),
            kept: kept().map(|life| size(life.block.size)).sum(),
            activations: kept().filter(|life| life.seq != result.seq).map(Freed::of).collect(),
            of_result: freed_with_gradient(device, call.thread, of_first, of_result),
            is_exact: details.iter().all(Option::is_some) && !has_shared_gradients(device, &pass),
            details: details.into_iter().flatten().collect(),
            result: size(result.block.size),
            input: size(input.block.size),
            pass,
        })
    }

    /// What happens beside the log. What is `gone` is a detail of a call, and freed before.
    fn stops<'a>(&'a self, gone: &'a HashSet<NonZeroU64>) -> impl Iterator<Item = Stop> + 'a {
        let Self { end, kept, result, input, pass, .. } = self;
        let copied = Stop::before(*end, vec![*result, -kept]);
        let of_result = || self.of_result.iter().filter(|block| !gone.contains(&block.seq));
        let beside: i64 = self.details.iter().chain(of_result()).map(|block| block.size).sum();
        // The gradient of the result is there twice.
        let own_pass = [SCALAR, SCALAR, *result, *result, -result, -SCALAR];
        let begins = [&[*input], &self.own[..], &own_pass].concat();
        let all = begins.iter().sum::<i64>();
        let ends = vec![-(all - result) - beside, *input, *input, -input, -input, -result];
        let again = [Stop::before(pass.start, begins), Stop::before(pass.end, ends).first()];
        let freed = self.activations.iter().chain(&self.details).chain(of_result());
        let freed = freed.filter_map(|block| Some(Stop::with(block.at?, block.size)));
        again.into_iter().chain([copied]).chain(freed)
    }
}

/// What gradients keep after the steps: all that these made, other than gradients of parameters and of the input. `None` in place of what
/// may be either.
fn details(device: &DeviceView<'_>, thread: ThreadId, pass: &Range<usize>, input: u64) -> Vec<Option<Freed>> {
    let records = device.records.get(pass.clone()).unwrap_or_default().iter();
    let made = records.filter(|record| record.thread == thread && record.kind == RecordKind::Alloc);
    let lives = made.filter_map(|record| device.lifetimes().get(record.alloc_seq?));
    let left = lives.filter(|life| life.to == NEVER || life.to as usize > pass.end);
    let mut found: Vec<(&Lifetime, bool)> = left
        .map(|life| (life, is_detail(device, life, pass.end)))
        .filter(|(_, is_detail)| *is_detail != Some(false))
        .map(|(life, is_detail)| (life, is_detail.is_some()))
        .collect();
    // Without uses the gradient of the input is a detail like others: the last of its size.
    let is_of_input = |life: &Lifetime| device.uses.is_empty() && life.block.size == input && is_sum(device, life);
    let of_input = found.iter().rposition(|(life, _)| is_of_input(life));
    of_input.map(|at| found.remove(at));
    found.into_iter().map(|(life, is_known)| is_known.then(|| Freed::of(life))).collect()
}

/// What the end of the first step frees of what was made before, other than the gradient of the result itself: the first of its size, if that
/// is not known.
fn freed_with_gradient(
    device: &DeviceView<'_>,
    thread: ThreadId,
    (first, last): (usize, usize),
    (gradient, size): (Option<NonZeroU64>, u64),
) -> Vec<Freed> {
    let after = device.records.get(last + 1..).unwrap_or_default().iter();
    let frees = after.take_while(|record| record.kind == RecordKind::Free || record.thread != thread);
    let lives = frees.filter_map(|record| device.lifetimes().get(record.alloc_seq?));
    let mut found: Vec<&Lifetime> = lives.filter(|life| life.from as usize <= first).collect();
    let is_gradient = |life: &&Lifetime| gradient.map_or(life.block.size == size, |gradient| life.seq == gradient);
    let gradient = found.iter().position(is_gradient);
    gradient.map(|at| found.remove(at));
    found.into_iter().map(Freed::of).collect()
}

/// Is a gradient of a variable the sum of several calls' parts?
fn has_shared_gradients(device: &DeviceView<'_>, pass: &Range<usize>) -> bool {
    let made = device.records.get(pass.clone()).unwrap_or_default().iter();
    let is_shared = |record: &Record| {
        device.pairings().get(record.alloc_seq).is_some_and(|pairing| pairing.is_added)
            && device.categories().get(record.alloc_seq) == Category::Gradient
            && !may_be_of_constant(device, record.alloc_seq)
    };
    made.filter(|record| record.kind == RecordKind::Alloc).any(is_shared)
}

/// Is it the sum of gradients?
fn is_sum(device: &DeviceView<'_>, life: &Lifetime) -> bool {
    let data = device.data();
    operator(data, life.block.stack).is_some_and(|operator| {
        data.settings.rules.is_gradient(operator.root, operator.backward_of.unwrap_or_default())
    })
}

/// Is it no gradient of a variable? By uses: nothing uses it after the steps. The store has gradients of constants, too.
fn is_detail(device: &DeviceView<'_>, life: &Lifetime, end: usize) -> Option<bool> {
    let category = device.categories().get(Some(life.seq));
    let may_be_of_constant = may_be_of_constant(device, Some(life.seq));
    if category == Category::Gradient && !may_be_of_constant {
        return Some(false);
    }
    if device.uses.is_empty() {
        let is_known =
            if may_be_of_constant { are_variables_named(device) } else { category == Category::AutogradDetail };
        return is_known.then_some(true);
    }
    let last = device.uses_of(Some(life.seq))?.known_last()?;
    let after = device.lifetimes().get(NonZeroU64::new(last.after_alloc)?)?;
    Some((after.from as usize) <= end)
}

/// A gradient whose tensor had no name.
fn may_be_of_constant(device: &DeviceView<'_>, seq: Option<NonZeroU64>) -> bool {
    device.name(seq).is_some_and(|name| name.starts_with("gradient "))
}

/// Has each variable that a pass went back to a name?
fn are_variables_named(device: &DeviceView<'_>) -> bool {
    let mut variables = device.graph_nodes.iter().filter(|node| node.kind == GraphNodeKind::Variable);
    variables.all(|node| device.name(node.block).is_some())
}

fn size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
