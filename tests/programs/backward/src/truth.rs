//! Which node each block of a backward pass is for. A scope says it: the copy of candle calls [`reached`] before it handles a
//! node, and until the next one the scope `node ID` is open. The name of a node's own block is the same.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};

use candle_core::op::Op;
use candle_core::{Result, Storage, Tensor, TensorId};
use memtrace::ScopeGuard;

thread_local! {
    static OPEN: RefCell<Option<ScopeGuard>> = const { RefCell::new(None) };
}

/// Of each node the call that its step belongs to, by the definition in the core's `attribute::backward`. `None` if several
/// calls used a view.
#[derive(Default)]
pub(crate) struct Truth {
    owners: RefCell<BTreeMap<String, Option<String>>>,
}

impl Truth {
    /// Runs a backward pass.
    pub(crate) fn during<R>(&self, loss: &Tensor, pass: impl FnOnce() -> Result<R>) -> Result<R> {
        candle_core::backprop::on_node(reached);
        let graph = Graph::of(loss);
        for node in &graph.nodes {
            if !node.is_variable() {
                self.owners.borrow_mut().insert(name(node), graph.owner(node));
                if !is_view(node) {
                    memtrace::candle::tag(node, &name(node));
                }
            }
        }
        let result = pass();
        OPEN.with_borrow_mut(|open| drop(open.take()));
        result
    }

    /// The owner of a node's step: `None` for other scopes, `Some(None)` if it has none.
    pub(crate) fn owner(&self, scope: &str) -> Option<Option<String>> {
        self.owners.borrow().get(scope).cloned()
    }
}

fn reached(node: &Tensor) {
    OPEN.with_borrow_mut(|open| {
        drop(open.take());
        *open = (!node.is_variable()).then(|| memtrace::scope_guard(name(node)));
    });
}

fn name(node: &Tensor) -> String {
    format!("node {:?}", node.id())
}

struct Graph {
    nodes: Vec<Tensor>,
    users: HashMap<TensorId, Vec<Tensor>>,
}

impl Graph {
    fn of(loss: &Tensor) -> Self {
        let mut graph = Self { nodes: Vec::new(), users: HashMap::new() };
        let (mut seen, mut open) = (HashSet::from([loss.id()]), vec![loss.clone()]);
        // Of nodes without a variable below them no step runs, so they use nothing.
        let tracked: HashSet<TensorId> = loss.sorted_nodes().iter().map(|node| node.id()).collect();
        while let Some(node) = open.pop() {
            for operand in operands(&node).into_iter().filter(|operand| tracked.contains(&operand.id())) {
                graph.users.entry(operand.id()).or_default().push(node.clone());
                if seen.insert(operand.id()) {
                    open.push(operand.clone());
                }
            }
            graph.nodes.push(node);
        }
        graph
    }

    fn owner(&self, node: &Tensor) -> Option<String> {
        if !is_view(node) {
            return Some(name(node));
        }
        let users = self.users.get(&node.id()).map_or(&[][..], Vec::as_slice);
        let owners: HashSet<Option<String>> = users.iter().map(|user| self.owner(user)).collect();
        if owners.len() == 1 { owners.into_iter().next().flatten() } else { None }
    }
}

/// Does a node share the block of its operand?
fn is_view(node: &Tensor) -> bool {
    match node.op() {
        Some(Op::Transpose(of, ..) | Op::Permute(of, _) | Op::Broadcast(of) | Op::Narrow(of, ..) | Op::Reshape(of)) => {
            start(node) == start(of)
        }
        _ => false,
    }
}

fn start(tensor: &Tensor) -> *const Storage {
    let (storage, _) = tensor.storage_and_layout();
    &raw const *storage
}

fn operands(node: &Tensor) -> Vec<&Tensor> {
    match node.op() {
        None => Vec::new(),
        _ if node.is_variable() => Vec::new(),
        Some(op) => match op {
            Op::Unary(a, _)
            | Op::Cmp(a, _)
            | Op::Reduce(a, ..)
            | Op::ToDType(a)
            | Op::Copy(a)
            | Op::Broadcast(a)
            | Op::Narrow(a, ..)
            | Op::Reshape(a)
            | Op::ToDevice(a)
            | Op::Transpose(a, ..)
            | Op::Permute(a, _)
            | Op::Elu(a, _)
            | Op::Powf(a, _)
            | Op::CustomOp1(a, _)
            | Op::Affine { arg: a, .. }
            | Op::AvgPool2D { arg: a, .. }
            | Op::MaxPool2D { arg: a, .. }
            | Op::UpsampleNearest1D { arg: a, .. }
            | Op::UpsampleNearest2D { arg: a, .. }
            | Op::UpsampleBilinear2D { arg: a, .. } => vec![a],
            Op::Binary(a, b, _)
            | Op::Matmul(a, b)
            | Op::Gather(a, b, _)
            | Op::IndexSelect(a, b, _)
            | Op::SliceScatter0(a, b, _)
            | Op::CustomOp2(a, b, _)
            | Op::Conv1D { arg: a, kernel: b, .. }
            | Op::Conv2D { arg: a, kernel: b, .. }
            | Op::ConvTranspose1D { arg: a, kernel: b, .. }
            | Op::ConvTranspose2D { arg: a, kernel: b, .. } => vec![a, b],
            Op::Scatter(a, b, c, _)
            | Op::ScatterAdd(a, b, c, _)
            | Op::IndexAdd(a, b, c, _)
            | Op::WhereCond(a, b, c)
            | Op::CustomOp3(a, b, c, _) => vec![a, b, c],
            Op::Cat(all, _) => all.iter().collect(),
        },
    }
}
