//! One of the two recordings: its kinds of work, and their memory.

use std::collections::{HashMap, HashSet};

use super::table::{PairNumber, operator_of_node};
use crate::analysis::labels::operator_label;
use crate::analysis::live::LiveSet;
use crate::analysis::temporaries::short_lived;
use crate::attribute::{Attribution, Operator, is_of_optimizer, library, operator};
use crate::recording::DeviceView;
use crate::snapshot::{Block, ContextId, RecordKind, StackId, Weight};

/// The common property by which operators of two programs are paired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PairKey {
    Forward(PairNumber),
    /// The backward pass of the operation.
    Backward(PairNumber),
    /// The operation, called by a backward pass. It is not known for which operation the pass computed a gradient.
    InBackward(PairNumber),
    /// The step of an optimizer, regardless of its operators.
    OptimizerStep,
}

impl PairKey {
    pub(super) fn title(self) -> String {
        match self {
            Self::Forward(number) => number.name().to_owned(),
            Self::Backward(number) => format!("backward of {}", number.name()),
            Self::InBackward(number) => format!("backward: {}", number.name()),
            Self::OptimizerStep => "optimizer step".to_owned(),
        }
    }
}

/// A kind of work of one program: an operator or an optimizer step.
#[derive(Debug, Default)]
pub(super) struct WorkKind {
    pub(super) label: String,
    pub(super) operator: String,
    /// The keys by which it can be paired, the best first. Empty if the operator is not known.
    pub(super) keys: Vec<PairKey>,
    is_backward: bool,
    /// Whether its blocks may be kept: whether it is an operator of the forward pass that computes with other tensors.
    is_kept: bool,
    pub(super) at_peak: Weight,
    pub(super) kept: Weight,
    pub(super) temporary: Weight,
}

pub(super) struct PairSide {
    is_torch: bool,
    pub(super) kinds: Vec<WorkKind>,
    by_stack: HashMap<(StackId, ContextId), usize>,
    by_label: HashMap<String, usize>,
}

impl PairSide {
    pub(super) fn of(live: &LiveSet<'_>) -> Self {
        let (device, data) = (live.device, live.device.data());
        let (kinds, is_torch) = (Vec::new(), data.is_python());
        let mut side = Self { is_torch, kinds, by_stack: HashMap::new(), by_label: HashMap::new() };
        for (block, weight) in live.weights() {
            side.kind(data, block).at_peak += weight;
        }
        for free in short_lived(&device.records) {
            side.kind(data, &free.block()).temporary += device.weight(free.size);
        }
        for block in side.kept(device) {
            side.kind(data, &block).kept += device.weight(block.size);
        }
        side
    }

    /// All keys by which the operators of this side can be paired.
    pub(super) fn keys(&self) -> HashSet<PairKey> {
        self.kinds.iter().flat_map(|kind| kind.keys.iter().copied()).collect()
    }

    fn kind(&mut self, data: &Attribution<'_>, block: &Block) -> &mut WorkKind {
        let (stack, context) = (block.stack, block.context);
        let number = self.by_stack.get(&(stack, context)).copied().unwrap_or_else(|| {
            let kind = work_kind(data, self.is_torch, stack, context);
            let next = self.kinds.len();
            let number = *self.by_label.entry(kind.label.clone()).or_insert(next);
            if number == next {
                self.kinds.push(kind);
            }
            self.by_stack.insert((stack, context), number);
            number
        });
        &mut self.kinds[number]
    }

    /// Blocks that the forward pass keeps for a backward pass: live when the pass begins, and freed later. Of several
    /// backward passes, the one with most such memory counts.
    fn kept(&mut self, device: &DeviceView<'_>) -> Vec<Block> {
        let mut live: HashMap<_, (usize, Block)> = HashMap::new();
        let (mut begun, mut is_in_pass) = (Vec::new(), false);
        let mut lives = Vec::new();
        for (at, record) in device.records.iter().enumerate() {
            let block = record.block();
            let kind = self.kind(device.data(), &block);
            match record.kind {
                RecordKind::Alloc => {
                    if kind.is_backward && !is_in_pass {
                        begun.push(at);
                    }
                    is_in_pass = kind.is_backward || is_in_pass && !kind.is_kept;
                    if kind.is_kept {
                        live.insert(record.alloc_seq, (at, block));
                    }
                }
                RecordKind::Free => lives.extend(live.remove(&record.alloc_seq).map(|(from, block)| (from, at, block))),
            }
        }
        let lived = |(from, to, block): &(usize, usize, Block)| (*from, *to, device.weight(block.size).bytes);
        let Some(most) = fullest(&begun, lives.iter().map(lived)) else { return Vec::new() };
        lives.retain(|(from, to, _)| *from < most && most < *to);
        lives.into_iter().map(|(_, _, block)| block).collect()
    }
}

/// Of these moments, the one at which the most bytes are live. `moments` are sorted. `lives` have a start, an end, and
/// bytes.
fn fullest(moments: &[usize], lives: impl Iterator<Item = (usize, usize, u64)>) -> Option<usize> {
    let mut changes = vec![0_i128; moments.len() + 1];
    for (from, to, bytes) in lives {
        changes[moments.partition_point(|moment| *moment <= from)] += i128::from(bytes);
        changes[moments.partition_point(|moment| *moment < to)] -= i128::from(bytes);
    }
    let mut live = 0;
    let totals = changes.iter().map(|change| {
        live += change;
        live
    });
    moments.iter().copied().zip(totals).max_by_key(|(_, live)| *live).map(|(moment, _)| moment)
}

fn work_kind(data: &Attribution<'_>, is_torch: bool, stack: StackId, context: ContextId) -> WorkKind {
    let label = operator_label(data, stack.0);
    let Some(found) = operator(data, stack).filter(|_| library(data, stack).is_none()) else {
        return WorkKind { label, ..WorkKind::default() };
    };
    let plain = Operator { is_backward: false, backward_of: None, ..found }.to_string();
    if is_of_optimizer(data, stack, context) {
        let (label, keys) = (format!("optimizer step: {plain}"), vec![PairKey::OptimizerStep]);
        return WorkKind { label, operator: plain, keys, ..WorkKind::default() };
    }
    let keys = keys(&found, is_torch);
    let is_data = |key: &PairKey| matches!(key, PairKey::Forward(number) if number.is_data());
    let is_kept = !found.is_backward && !keys.first().is_some_and(is_data);
    WorkKind { label, operator: plain, keys, is_backward: found.is_backward, is_kept, ..WorkKind::default() }
}

/// The keys by which an operator can be paired: the operation whose gradient it computes, or else its root, then its
/// leaf.
fn keys(operator: &Operator<'_>, is_torch: bool) -> Vec<PairKey> {
    let lines = |name: &str| if is_torch { PairNumber::of_torch(name) } else { PairNumber::of_candle(name) }.to_vec();
    let (names, key): (Vec<String>, fn(PairNumber) -> PairKey) = match operator.backward_of {
        Some(node) if is_torch => (vec![operator_of_node(node)], PairKey::Backward),
        Some(alternatives) => (alternatives.split('|').map(str::to_owned).collect(), PairKey::Backward),
        // Outside of all nodes, PyTorch sums the gradients of operands that were broadcast.
        None if is_torch && operator.is_backward && operator.root == "sum" => {
            (vec!["expand".to_owned()], PairKey::Backward)
        }
        None => {
            let key = if operator.is_backward { PairKey::InBackward } else { PairKey::Forward };
            (vec![operator.root.to_owned(), operator.leaf.to_owned()], key)
        }
    };
    names.iter().flat_map(|name| lines(name)).map(key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_moment_is_the_one_within_most_lives() {
        let lives = [(0, 4, 10), (1, 9, 5), (6, 9, 6), (7, 8, 100)];
        assert_eq!(fullest(&[2, 5, 7], lives.into_iter()), Some(2));
        assert_eq!(fullest(&[5, 7], lives.into_iter()), Some(7));
        assert_eq!(fullest(&[], lives.into_iter()), None);
    }
}
