//! What a call's steps leave behind: blocks that gradients keep, and blocks that are freed with the result's gradient.

use std::num::NonZeroU64;
use std::ops::Range;

use crate::attribute::operator;
use crate::recording::DeviceView;
use crate::snapshot::{Category, GraphNodeKind, Lifetime, NEVER, Record, RecordKind, ThreadId};

/// A block, where the program frees it later (if it does), and its size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freed {
    pub(super) seq: NonZeroU64,
    pub(super) at: Option<usize>,
    pub(super) size: i64,
}

impl Freed {
    pub(super) fn of(life: &Lifetime) -> Self {
        Self { seq: life.seq, at: (life.to != NEVER).then(|| life.to as usize - 1), size: size(life.block.size) }
    }
}

/// Blocks that gradients keep after a call's steps: all that the steps made, except gradients of parameters and of the
/// input. `None` stands for a block that may or may not be such a gradient.
pub(super) fn details(
    device: &DeviceView<'_>,
    thread: ThreadId,
    pass: &Range<usize>,
    input: u64,
) -> Vec<Option<Freed>> {
    let records = device.records.get(pass.clone()).unwrap_or_default().iter();
    let made = records.filter(|record| record.thread == thread && record.kind == RecordKind::Alloc);
    let lives = made.filter_map(|record| device.lifetimes().get(record.alloc_seq?));
    let left = lives.filter(|life| life.to == NEVER || life.to as usize > pass.end);
    let mut found: Vec<(&Lifetime, bool)> = left
        .map(|life| (life, is_detail(device, life, pass.end)))
        .filter(|(_, is_detail)| *is_detail != Some(false))
        .map(|(life, is_detail)| (life, is_detail.is_some()))
        .collect();
    // Without recorded uses, the input's gradient looks like the other blocks. The last sum of the input's size is
    // taken for it.
    let is_of_input = |life: &Lifetime| device.uses.is_empty() && life.block.size == input && is_sum(device, life);
    let of_input = found.iter().rposition(|(life, _)| is_of_input(life));
    of_input.map(|at| found.remove(at));
    found.into_iter().map(|(life, is_known)| is_known.then(|| Freed::of(life))).collect()
}

/// The blocks from before a call's first step that are freed when this step ends, except the gradient of the result.
/// If that gradient is not known, the first block of its size is taken for it.
pub(super) fn freed_with_gradient(
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

/// Whether a variable's gradient in this pass is the sum of several calls' parts.
pub(super) fn has_shared_gradients(device: &DeviceView<'_>, pass: &Range<usize>) -> bool {
    let made = device.records.get(pass.clone()).unwrap_or_default().iter();
    let is_shared = |record: &Record| {
        device.pairings().get(record.alloc_seq).is_some_and(|pairing| pairing.is_added)
            && device.categories().get(record.alloc_seq) == Category::Gradient
            && !may_be_of_constant(device, record.alloc_seq)
    };
    made.filter(|record| record.kind == RecordKind::Alloc).any(is_shared)
}

/// Whether the block is a sum of gradients.
pub(super) fn is_sum(device: &DeviceView<'_>, life: &Lifetime) -> bool {
    let data = device.data();
    operator(data, life.block.stack).is_some_and(|operator| {
        data.settings.rules.is_gradient(operator.root, operator.backward_of.unwrap_or_default())
    })
}

/// Whether the block is not a gradient of a variable; `None` if unknown. If uses were recorded, they decide: nothing
/// uses such a block after the steps. candle's gradient store also has gradients of constants.
pub(super) fn is_detail(device: &DeviceView<'_>, life: &Lifetime, end: usize) -> Option<bool> {
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

/// Whether the block is a gradient whose tensor had no name, so that the tensor may be a constant.
fn may_be_of_constant(device: &DeviceView<'_>, seq: Option<NonZeroU64>) -> bool {
    device.name(seq).is_some_and(|name| name.starts_with("gradient "))
}

/// Whether every variable that a pass reached has a name.
fn are_variables_named(device: &DeviceView<'_>) -> bool {
    let mut variables = device.graph_nodes.iter().filter(|node| node.kind == GraphNodeKind::Variable);
    variables.all(|node| device.name(node.block).is_some())
}

pub(super) fn size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
