//! The order of a backward pass, as `memtrace::candle::backward` hands it over.

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{Optimizer, SGD};
use memtrace::snapshot::{GraphNode, GraphNodeKind, Lifetime, SnapshotData};
use memtrace::{DeviceView, attribute, open};

use crate::support::{alone, cpu};

/// Bytes of the product and its activation, and of the weights.
const PRODUCT: u64 = 32 * 64 * 4;
const WEIGHTS: u64 = 64 * 64 * 4;

/// `sum(relu(input × weightᵀ))`: the variable, and the loss.
fn small_model() -> (Var, Tensor) {
    let weight = Var::ones((64, 64), DType::F32, &Device::Cpu).unwrap();
    let input = Tensor::ones((32, 64), DType::F32, &Device::Cpu).unwrap();
    let product = input.matmul(&weight.t().unwrap()).unwrap();
    let loss = product.relu().unwrap().sum_all().unwrap();
    (weight, loss)
}

fn kinds(nodes: &[GraphNode]) -> Vec<(GraphNodeKind, u64, bool)> {
    nodes.iter().map(|node| (node.kind, node.bytes, node.block.is_some())).collect()
}

/// Bytes of the backward pass that belong to a block of the forward pass, by the size of that. Without products: on the
/// CPU these take buffers beside their results.
fn paired(data: &SnapshotData) -> Vec<(u64, u64)> {
    let view = DeviceView::of(data, cpu(data));
    let pairs = view.lifetimes().iter().filter_map(|life| Some((life, view.pairings().get(Some(life.seq))?)));
    let mut bytes = std::collections::BTreeMap::new();
    let root = |life: &Lifetime| attribute::operator(view.data(), life.block.stack).map(|operator| operator.root);
    for (life, pairing) in pairs.filter(|(life, _)| root(life) != Some("matmul")) {
        *bytes.entry(pairing.forward).or_insert(0) += life.block.size;
    }
    let size = |forward| view.lifetimes().get(forward).unwrap().block.size;
    bytes.into_iter().map(|(forward, bytes)| (size(forward), bytes)).collect()
}

#[test]
fn the_order_of_a_pass_is_in_snapshots_and_in_streamed_captures() {
    use GraphNodeKind::{End, Result, Variable, View};
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("streamed.memtrace");
    let session = memtrace::builder().stream(file.display().to_string()).start().unwrap();
    let (weight, loss) = small_model();
    let gradients = memtrace::candle::backward(&loss).unwrap();
    let same = loss.backward().unwrap();
    let values = |gradients: &candle_core::backprop::GradStore| {
        gradients.get(&weight).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap()
    };
    assert_eq!(values(&gradients), values(&same));
    let snapshot = session.snapshot();
    let nodes = kinds(&cpu(&snapshot).graph_nodes);
    // The loss is a view of the sum, and both are below the threshold.
    let after_loss = nodes.iter().position(|(_, bytes, _)| *bytes == PRODUCT).unwrap();
    assert!(nodes[..after_loss].iter().all(|(_, bytes, recorded)| *bytes == 4 && !recorded));
    let expected = [
        (Result, PRODUCT, true),
        (Result, PRODUCT, true),
        (View, WEIGHTS, true),
        (Variable, WEIGHTS, true),
        (End, 0, false),
    ];
    assert_eq!(nodes[after_loss..], expected);
    let pairs = paired(&snapshot);
    // Zeros and a sum for each gradient: in the product's step of the input and the turned weight, in the view's of the weight.
    assert_eq!(pairs[0], (PRODUCT, 2 * PRODUCT + 2 * WEIGHTS + 2 * WEIGHTS));
    assert_eq!(pairs.len(), 2, "the product and its activation");
    drop(session);
    let streamed = open(&file).unwrap();
    assert_eq!(cpu(&streamed).graph_nodes, cpu(&snapshot).graph_nodes);
    assert_eq!(paired(&streamed), pairs);
}

#[test]
fn a_step_of_an_optimizer_is_as_without_memtrace_and_has_an_order() {
    let _alone = alone();
    let values = |weight: &Var| weight.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let session = memtrace::start().unwrap();
    let ((one, one_loss), (other, other_loss)) = (small_model(), small_model());
    let mut optimizer = SGD::new(vec![one.clone()], 0.5).unwrap();
    memtrace::candle::backward_step(&mut optimizer, &one_loss).unwrap();
    SGD::new(vec![other.clone()], 0.5).unwrap().backward_step(&other_loss).unwrap();
    assert_eq!(values(&one), values(&other));
    assert!(!paired(&session.snapshot()).is_empty());
}

#[test]
fn without_a_recording_nothing_is_handed_over() {
    let _alone = alone();
    let (weight, loss) = small_model();
    assert!(memtrace::candle::backward(&loss).unwrap().get(&weight).is_some());
    let session = memtrace::start().unwrap();
    assert!(cpu(&session.snapshot()).graph_nodes.is_empty());
}
