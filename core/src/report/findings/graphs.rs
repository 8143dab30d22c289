//! Findings on what candle's autograd graph keeps alive.

use std::collections::HashSet;

use super::finding::{Confidence, Cost, Finding, FindingKind, in_its_language, large, lines, then_at_most};
use super::growth::growth;
use crate::analysis::{Ungraphed, is_left_by_a_pass, line_label, past_their_pass, without_a_pass};
use crate::attribute::{has_backward_pass, has_variables, operator};
use crate::hashed::by_key;
use crate::memo::Memo;
use crate::recording::DeviceView;
use crate::snapshot::{Block, Category, DeviceSnapshot, Fact};
use crate::units::grouped;

/// Results of a forward pass are live at the end.
pub(super) fn kept_graph(device: &DeviceView<'_>) -> Vec<Finding> {
    let categories = device.categories();
    let of_graph = |block: &Block| matches!(categories.get(block.seq), Category::Activation | Category::AutogradDetail);
    let is_left = is_left_by_a_pass(device);
    let kept = large(device.live_weights().filter(|(block, _)| of_graph(block) || is_left(block)), device);
    let finding = |(count, bytes, largest): (u64, u64, &Block)| Finding {
        kind: FindingKind::KeptGraph,
        what: format!("{} activations and intermediate results of a backward pass are kept", grouped(count)),
        line: Some(line_label(device.data(), largest.stack.0)),
        cost: Cost::AtEnd(bytes),
        confidence: Confidence::Likely,
        why: "they are live; a graph that is still needed is no mistake.",
        advice: in_its_language(
            device.data(),
            &[
                "A retained loss or gradient retains its graph: keep `loss.to_scalar()` or",
                "`tensor.detach()`, and drop the `GradStore` (docs/findings.md).",
            ],
            &[
                "A retained loss or output retains its graph: keep `loss.item()` or `tensor.detach()`, and drop",
                "gradients with `optimizer.zero_grad(set_to_none=True)`.",
            ],
        ),
    };
    kept.map(finding).into_iter().collect()
}

/// Results that were computed from variables are kept although no backward pass needs them. For example, if tensors are
/// concatenated repeatedly, each result keeps the previous one alive.
pub(super) fn kept_by_variables(device: &DeviceView<'_>) -> Vec<Finding> {
    let found = without_a_pass(device).filter(|found| is_worth(found, device));
    let results = found.map(|found| never_needed(&found, device));
    results.into_iter().chain(kept_joins(device)).max_by_key(Finding::rank).into_iter().collect()
}

fn kept_joins(device: &DeviceView<'_>) -> Option<Finding> {
    let data = device.data();
    /// The fewest sizes that such joined tensors have. A cache whose blocks replace each other has fewer sizes at once.
    const SIZES: usize = 8;
    // Training needs the joined tensors for the backward pass.
    if !has_variables(data) || has_backward_pass(data) {
        return None;
    }
    let is_join = |stack| operator(data, stack).is_some_and(|found| data.settings.rules.names(Fact::Join, found.root));
    let mut joins = Memo::of(is_join);
    let joined = device.peak.blocks.iter().filter(|block| joins.get(block.stack));
    let by_stack = by_key(joined.map(|block| (block.stack, block)));
    let sizes = |blocks: &[&Block]| blocks.iter().map(|block| block.size).collect::<HashSet<_>>().len();
    let kept: Vec<&Block> = by_stack.into_values().filter(|blocks| sizes(blocks) >= SIZES).flat_map(older).collect();
    let bytes: u64 = kept.iter().map(|block| block.size).sum();
    let last = kept.iter().max_by_key(|block| (block.size, block.seq));
    let is_worth = bytes.saturating_mul(20) >= device.peak.total();
    let last = last.filter(|_| is_worth)?;
    Some(Finding {
        kind: FindingKind::KeptByVariables,
        what: format!(
            "{} joined tensors are live besides the newest, left by a growing cache",
            grouped(kept.len() as u64)
        ),
        line: Some(line_label(data, last.stack.0)),
        cost: Cost::OfPeak(bytes),
        confidence: Confidence::Likely,
        why: "no backward pass was seen that would need them.",
        advice: lines(&[
            "The program has variables (a `VarMap`): each result keeps its arguments. To generate, load weights with",
            "`VarBuilder::from_tensors` or `from_mmaped_safetensors` (docs/findings.md).",
        ]),
    })
}

/// Does the change save at least a twentieth of the peak?
fn is_worth(found: &Ungraphed, device: &DeviceSnapshot) -> bool {
    let saves = device.peak.bytes.saturating_sub(found.peak_without);
    saves > 0 && saves >= device.peak.bytes / 20
}

pub(super) fn never_needed(found: &Ungraphed, device: &DeviceSnapshot) -> Finding {
    Finding {
        kind: FindingKind::KeptByVariables,
        what: format!("{} intermediate results are kept that no backward pass needs", grouped(found.blocks)),
        line: Some(found.line.clone()),
        cost: Cost::OfPeak(device.peak.bytes.saturating_sub(found.peak_without)),
        confidence: Confidence::Likely,
        why: "they outlive their statements and are freed after their result, as a graph is, and no backward pass begins while they are live.",
        advice: vec![
            "A result that is computed from variables keeps what it was computed from. Compute it here with weights that are".to_owned(),
            "detached: `var.as_detached_tensor()`, or a model from `VarBuilder::from_tensors`; or keep `x.detach()` of it.".to_owned(),
            then_at_most(found.peak_without),
        ],
    }
}

/// The graph of a loss stays alive after its backward pass.
pub(super) fn kept_loss(device: &DeviceView<'_>) -> Vec<Finding> {
    let found = past_their_pass(device).filter(|found| is_worth(found, device));
    // The growth finding covers what accumulates. If uses of blocks were recorded, `past_last_use` decides instead.
    let found = found.filter(|_| device.uses.is_empty() && growth(device).is_empty());
    found.map(|found| kept_after_its_pass(&found, device)).into_iter().collect()
}

pub(super) fn kept_after_its_pass(found: &Ungraphed, device: &DeviceSnapshot) -> Finding {
    Finding {
        kind: FindingKind::KeptLoss,
        what: format!("{} results of a forward pass are kept after their backward pass", grouped(found.blocks)),
        line: Some(found.line.clone()),
        cost: Cost::OfPeak(device.peak.bytes.saturating_sub(found.peak_without)),
        confidence: Confidence::Likely,
        why: "they are freed after their result, as a graph is, and there are more of them than the next backward pass has nodes.",
        advice: after_a_pass(&found.pass).into_iter().chain([then_at_most(found.peak_without)]).collect(),
    }
}

fn older(blocks: Vec<&Block>) -> Vec<&Block> {
    let largest = blocks.iter().map(|block| block.size).max();
    blocks.into_iter().filter(|block| Some(block.size) != largest).collect()
}

/// How to release what the graph of a loss keeps.
pub(super) fn after_a_pass(line: &str) -> Vec<String> {
    vec![
        format!("The graph of the backward pass at {line} keeps this memory. Drop the loss, the outputs that it was"),
        "computed from, and the `GradStore`, before the next forward pass begins.".to_owned(),
    ]
}

#[cfg(test)]
#[path = "graphs_tests.rs"]
mod tests;
