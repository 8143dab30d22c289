//! Findings on the tensors of models and of training.

use std::collections::{HashMap, HashSet};

use super::finding::{Confidence, Cost, Finding, in_its_language, is_large, large, line_of, lines, then};
use crate::analysis::{LiveTwice, StackTest, live_twice, operator_temporaries};
use crate::attribute::{Categories, has_backward_pass, has_variables, operator, squared_by};
use crate::report::tables::first_lines;
use crate::snapshot::{Block, Category, DeviceSnapshot, Fact, GpuWork, SnapshotData, StackId};
use crate::units::{Bytes, grouped};

/// A shadowed tensor stays live. Where every use is known, `past_last_use` decides it.
pub(super) fn twice(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let is_whole = |work: &GpuWork| work.opaque_operations() == 0 && work.totals.lost == 0;
    if !device.uses.is_empty() && data.gpu_work.as_ref().is_some_and(is_whole) {
        return Vec::new();
    }
    let saved = |then: Option<u64>, older| then.map_or(older, |then| device.peak.bytes.saturating_sub(then));
    let rows = live_twice(data, device).into_iter();
    let large = rows.filter(|row| is_large(saved(row.peak_without, row.older), device));
    let finding = |row: LiveTwice| Finding {
        kind: "live_twice",
        what: format!("{} blocks of {}, each replaced by the next", grouped(row.count), Bytes(row.size)),
        line: Some(first_lines(&row.lines).join(", then ")),
        cost: Cost::OfPeak(saved(row.peak_without, row.older)),
        confidence: Confidence::Likely,
        why: "they were freed like variables at a function's end; reads of the older ones are not seen.",
        advice: in_its_language(
            data,
            &["Drop each once the next exists: `let mut x = …; x = f(&x)?;`."],
            &["Drop each once the next exists: `x = f(x)`, or `del x`."],
        ),
    };
    large.map(finding).collect()
}

/// candle's `AdamW::step` computes with variables, so each intermediate result retains the one before it.
pub(super) fn optimizer_transient(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let is_step = |function: &str| function.contains("AdamW") && function.ends_with("step");
    let steps: Vec<bool> = data.stacks.frames.iter().map(|frame| is_step(frame.function_or_empty())).collect();
    if !steps.contains(&true) {
        return Vec::new();
    }
    let mut in_step =
        StackTest::that(|stack| data.stacks.frame_numbers(stack).any(|frame| steps.get(frame) == Some(&true)));
    let categories = Categories::of(data, device);
    let is_transient = |block: &Block| {
        !matches!(categories.get(block.seq), Category::OptimizerState | Category::Parameter)
            && device.name(block.seq).is_none()
    };
    let blocks: Vec<(&Block, u64)> = device
        .peak_weights()
        .filter(|(block, _)| in_step.has(block.stack) && is_transient(block))
        .map(|(block, weight)| (block, weight.bytes))
        .collect();
    let bytes = blocks.iter().map(|(_, bytes)| bytes).sum();
    let Some(largest) = blocks.iter().map(|(block, _)| block).max_by_key(|block| block.size) else { return Vec::new() };
    if !is_large(bytes, device) || bytes < 8 * largest.size {
        return Vec::new();
    }
    vec![Finding {
        kind: "optimizer_transient",
        what: format!("AdamW::step holds {} times its largest parameter for a moment", bytes / largest.size.max(1)),
        line: Some(line_of(data, largest)),
        cost: Cost::OfPeak(bytes),
        confidence: Confidence::Certain,
        why: "these blocks were allocated by the step and are live at the peak.",
        advice: lines(&[
            "candle computes the step with variables, so each result keeps the one before it.",
            "A step of your own on `var.as_detached_tensor()` needs 4 times instead (docs/findings.md).",
        ]),
    }]
}

/// Results of a forward pass are live at the end.
pub(super) fn kept_graph(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let categories = Categories::of(data, device);
    let of_graph = |block: &Block| matches!(categories.get(block.seq), Category::Activation | Category::AutogradDetail);
    let kept = large(device.live_weights().filter(|(block, _)| of_graph(block)), device);
    let finding = |(count, bytes, largest)| Finding {
        kind: "kept_graph",
        what: format!("{} activations and intermediate results of a backward pass are kept", grouped(count)),
        line: Some(line_of(data, largest)),
        cost: Cost::AtEnd(bytes),
        confidence: Confidence::Certain,
        why: "they are live; a graph that is still needed is no mistake.",
        advice: in_its_language(
            data,
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

/// Tensors are concatenated repeatedly from variables, so each retains the one before it.
pub(super) fn kept_by_variables(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    /// A cache whose blocks replace each other does not have this many sizes at once.
    const SIZES: usize = 8;
    // Training needs them for the backward pass.
    if !has_variables(data) || has_backward_pass(data) {
        return Vec::new();
    }
    let is_join = |stack| operator(data, stack).is_some_and(|found| data.settings.rules.names(Fact::Join, found.root));
    let mut joins = StackTest::that(is_join);
    let mut by_stack: HashMap<StackId, Vec<&Block>> = HashMap::new();
    for block in device.peak.blocks.iter().filter(|block| joins.has(block.stack)) {
        by_stack.entry(block.stack).or_default().push(block);
    }
    let sizes = |blocks: &[&Block]| blocks.iter().map(|block| block.size).collect::<HashSet<_>>().len();
    let kept: Vec<&Block> = by_stack.into_values().filter(|blocks| sizes(blocks) >= SIZES).flat_map(older).collect();
    let bytes: u64 = kept.iter().map(|block| block.size).sum();
    let last = kept.iter().max_by_key(|block| (block.size, block.seq));
    let is_worth = bytes.saturating_mul(20) >= device.peak.total();
    let Some(last) = last.filter(|_| is_worth) else { return Vec::new() };
    vec![Finding {
        kind: "kept_by_variables",
        what: format!(
            "{} joined tensors are live besides the newest, left by a growing cache",
            grouped(kept.len() as u64)
        ),
        line: Some(line_of(data, last)),
        cost: Cost::OfPeak(bytes),
        confidence: Confidence::Likely,
        why: "no backward pass was seen that would need them.",
        advice: lines(&[
            "The program has variables, as of a `VarMap`: each result keeps its arguments. To generate, load weights with",
            "`VarBuilder::from_tensors` or `from_mmaped_safetensors` (docs/findings.md).",
        ]),
    }]
}

fn older(blocks: Vec<&Block>) -> Vec<&Block> {
    let largest = blocks.iter().map(|block| block.size).max();
    blocks.into_iter().filter(|block| Some(block.size) != largest).collect()
}

/// An operator makes a square matrix from a row.
pub(super) fn square(data: &SnapshotData, device: &DeviceSnapshot) -> Vec<Finding> {
    let mut squares = StackTest::that(|stack| squared_by(data, stack).is_some());
    let found = large(device.peak_weights().filter(|(block, _)| squares.has(block.stack)), device);
    let finding = |(_, bytes, largest): (u64, u64, &Block)| Finding {
        kind: "square",
        what: squared_by(data, largest.stack).map_or_else(String::new, |operator| {
            format!("{operator} makes a square matrix as wide as the tensor is long")
        }),
        line: Some(line_of(data, largest)),
        cost: Cost::OfPeak(bytes),
        confidence: Confidence::Certain,
        why: "these blocks were allocated inside it and are live at the peak.",
        advice: lines(&["Work on parts of the tensor and carry the last value over, or sum in a loop of your own."])
            .into_iter()
            .chain(operator_temporaries(data, device).map(|found| then(found.peak_without)))
            .collect(),
    };
    found.map(finding).into_iter().collect()
}
