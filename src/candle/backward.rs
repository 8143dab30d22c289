//! A backward pass whose order the recording knows.

use std::collections::HashMap;

use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor};
use candle_nn::Optimizer;
use memtrace_core::snapshot::{Device, GraphNodeKind};

use super::tags::block_of;
use crate::device::IntoDevice;
use crate::record::{HandedOverNode, own, recorder};

/// Calls [`Tensor::backward`] and returns its result. The recording gets the order in which the pass goes through the
/// graph. So tables by forward line and by layer attribute the pass's allocations to the forward pass.
///
/// To get this order, memtrace calls [`Tensor::sorted_nodes`], which the pass then calls once more. Without a
/// recording, only the pass runs.
///
/// # Errors
/// The errors of [`Tensor::backward`].
///
/// ```
/// # #[global_allocator] static ALLOC: memtrace::Alloc = memtrace::Alloc::system();
/// use candle_core::{DType, Device, Tensor, Var};
///
/// let session = memtrace::start()?;
/// let weight = Var::ones((64, 64), DType::F32, &Device::Cpu)?;
/// let loss = weight.matmul(&weight.t()?)?.sqr()?.sum_all()?;
/// let gradients = memtrace::candle::backward(&loss)?; // instead of loss.backward()?
/// assert!(gradients.get(&weight).is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn backward(loss: &Tensor) -> Result<GradStore> {
    let _over = HandedOver::of(loss);
    loss.backward()
}

/// Does what candle's [`Optimizer::backward_step`] does by default, but calls memtrace's [`backward`] for the pass. If
/// an optimizer has a `backward_step` of its own, that is not called.
///
/// # Errors
/// The errors of [`Optimizer::backward_step`].
pub fn backward_step(optimizer: &mut impl Optimizer, loss: &Tensor) -> Result<()> {
    let gradients = backward(loss)?;
    optimizer.step(&gradients)
}

/// A running backward pass whose nodes the recorder got. Dropping this value tells the recorder that the pass is over.
struct HandedOver(Option<Device>);

impl HandedOver {
    fn of(loss: &Tensor) -> Self {
        if !recorder::is_recording() || own(keeps_gradients) {
            return Self(None);
        }
        let device = loss.device().into_device();
        own(|| {
            let nodes = nodes(loss, device);
            recorder::hand_over(device, nodes.into_iter());
        });
        Self(Some(device))
    }
}

impl Drop for HandedOver {
    fn drop(&mut self) {
        let end = HandedOverNode { address: None, bytes: 0, kind: GraphNodeKind::End };
        if let Some(device) = self.0 {
            recorder::hand_over(device, std::iter::once(end));
        }
    }
}

/// Whether the variable `CANDLE_GRAD_DO_NOT_DETACH` makes candle keep the graphs of gradients. If so, the frees of
/// gradients do not show which call used a view, so the recorder gets no nodes.
fn keeps_gradients() -> bool {
    std::env::var("CANDLE_GRAD_DO_NOT_DETACH").is_ok_and(|value| !value.is_empty() && value != "0")
}

/// The graph's nodes in the order in which the pass visits them. If several nodes share a block, the last of them owns
/// the block: a view comes before the tensor that it is a view of.
fn nodes(loss: &Tensor, device: Device) -> Vec<HandedOverNode> {
    let sorted = loss.sorted_nodes();
    let blocks: Vec<_> = sorted.iter().map(|node| block(node)).collect();
    let owners: HashMap<_, usize> = blocks.iter().copied().zip(0..).collect();
    let node = |((node, block), at)| of(node, block, block.is_some() && owners.get(&block) == Some(&at), device);
    sorted.into_iter().zip(blocks).zip(0..).map(node).collect()
}

fn of(node: &Tensor, block: Option<(Device, u64)>, owns: bool, device: Device) -> HandedOverNode {
    let kind = match (node.is_variable(), owns) {
        (true, _) => GraphNodeKind::Variable,
        (false, true) => GraphNodeKind::Result,
        (false, false) => GraphNodeKind::View,
    };
    let address = block.filter(|(on, _)| *on == device).map(|(_, address)| address);
    HandedOverNode { address, bytes: (node.elem_count() * node.dtype().size_in_bytes()) as u64, kind }
}

fn block(tensor: &Tensor) -> Option<(Device, u64)> {
    let (storage, _) = tensor.storage_and_layout();
    block_of(&storage).map(|(device, block, _)| (device, block.into_inner()))
}
