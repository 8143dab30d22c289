//! Findings on the tensors of models and of training.

use super::finding::{
    Confidence, Cost, Finding, FindingKind, in_its_language, is_large, large, lines, then, then_about, then_at_most,
};
use crate::analysis::{
    Checkpoint, LiveTwice, checkpoints, line_label, peak_in_parts, peak_with_own_step, step_temporaries,
};
use crate::attribute::squared_by;
use crate::memo::Memo;
use crate::recording::DeviceView;
use crate::report::device_memory::time;
use crate::report::tables::first_lines;
use crate::snapshot::{Block, GpuWork};
use crate::units::{Bytes, grouped};

/// A shadowed tensor stays live. If every use is known, `past_last_use` decides instead.
pub(super) fn twice(device: &DeviceView<'_>) -> Vec<Finding> {
    let is_whole = |work: &GpuWork| work.opaque_operations() == 0 && work.totals.lost == 0;
    if !device.uses.is_empty() && device.data().gpu_work.as_ref().is_some_and(is_whole) {
        return Vec::new();
    }
    let saved = |then: Option<u64>, older| then.map_or(older, |then| device.peak.bytes.saturating_sub(then));
    let rows = device.live_twice().iter();
    let large = rows.filter(|row| is_large(saved(row.peak_without, row.older), device));
    large.map(|row| replaced(device, row, saved(row.peak_without, row.older))).collect()
}

/// `saves` is the number of bytes by which the peak becomes smaller.
pub(super) fn replaced(device: &DeviceView<'_>, row: &LiveTwice, saves: u64) -> Finding {
    Finding {
        kind: FindingKind::LiveTwice,
        what: format!("{} blocks of {} live at once, each replaced by the next", grouped(row.count), Bytes(row.size)),
        line: Some(first_lines(&row.lines).join(", then ")),
        cost: Cost::OfPeak(saves),
        confidence: Confidence::Likely,
        why: "they were freed like variables at a function's end; memtrace cannot see whether the older ones are still read.",
        advice: in_its_language(
            device.data(),
            &["Drop each once the next exists: `let mut x = …; x = f(&x)?;`."],
            &["Drop each once the next exists: `x = f(x)`, or `del x`."],
        ),
    }
}

/// candle's `AdamW::step` computes with variables, so each intermediate result keeps the previous one alive.
pub(super) fn optimizer_transient(device: &DeviceView<'_>) -> Vec<Finding> {
    let Some(mut is_transient) = step_temporaries(device) else { return Vec::new() };
    let blocks: Vec<(&Block, u64)> = device
        .peak_weights()
        .filter(|(block, _)| is_transient(block))
        .map(|(block, weight)| (block, weight.bytes))
        .collect();
    let bytes = blocks.iter().map(|(_, bytes)| bytes).sum();
    let Some(largest) = blocks.iter().map(|(block, _)| block).max_by_key(|block| block.size) else { return Vec::new() };
    if !is_large(bytes, device) || bytes < 8 * largest.size {
        return Vec::new();
    }
    let own = peak_with_own_step(device, |record| is_transient(&record.block()));
    vec![own_step(device, bytes, largest, own)]
}

/// `bytes` is the size of a step's temporaries that are live at once.
pub(super) fn own_step(device: &DeviceView<'_>, bytes: u64, largest: &Block, own: Option<u64>) -> Finding {
    Finding {
        kind: FindingKind::OptimizerTransient,
        what: format!("AdamW::step holds {} times its largest parameter for a moment", bytes / largest.size.max(1)),
        line: Some(line_label(device.data(), largest.stack.0)),
        cost: Cost::OfPeak(bytes),
        confidence: Confidence::Certain,
        why: "these blocks were allocated by the step and are live at the peak.",
        advice: lines(&[
            "candle computes the step with variables, so each result keeps the one before it.",
            "A step of your own on `var.as_detached_tensor()` needs 4 times instead (docs/findings.md).",
        ])
        .into_iter()
        .chain(own.map(then))
        .collect(),
    }
}

/// Modules that keep much for the backward pass: those whose recomputation lowers the peak most.
pub(super) fn checkpoint(device: &DeviceView<'_>) -> Vec<Finding> {
    let best = checkpoints(device).into_iter().next().filter(|found| is_large(found.saves, device));
    best.iter().map(checkpointed).collect()
}

pub(super) fn checkpointed(row: &Checkpoint) -> Finding {
    let keeps = if row.count == 1 { "keeps" } else { "keep" };
    Finding {
        kind: FindingKind::Checkpoint,
        what: format!("{} {keeps} up to {} in a call for the backward pass", row.modules, Bytes(row.kept)),
        line: None,
        cost: Cost::OfPeak(row.saves),
        confidence: Confidence::Possible,
        why: "what they keep is known, and can be computed again; that costs time.",
        advice: vec![
            "Free what a call keeps, and compute it again in the backward pass (docs/findings.md has a wrapper)."
                .to_owned(),
            format!(
                "That runs each call twice: here {} calls, {} of the host's time.",
                grouped(row.calls),
                time(row.forward_ns)
            ),
            if row.is_exact { then(row.peak_without) } else { then_about(row.peak_without) },
        ],
    }
}

/// An operator computes a square matrix from a row.
pub(super) fn square(device: &DeviceView<'_>) -> Vec<Finding> {
    let data = device.data();
    let mut squares = Memo::of(|stack| squared_by(data, stack).is_some());
    let found = large(device.peak_weights().filter(|(block, _)| squares.get(block.stack)), device);
    let finding = |(_, bytes, largest): (u64, u64, &Block)| Finding {
        kind: FindingKind::Square,
        what: squared_by(data, largest.stack).map_or_else(String::new, |operator| {
            format!("{operator} makes a square matrix as wide as the tensor is long")
        }),
        line: Some(line_label(data, largest.stack.0)),
        cost: Cost::OfPeak(bytes),
        confidence: Confidence::Certain,
        why: "these blocks were allocated inside it and are live at the peak.",
        advice: lines(&[
            "Work on 16 or more parts of the tensor, and carry the last value over, or sum in a loop of your own.",
        ])
        .into_iter()
        .chain(peak_in_parts(device).map(then_at_most))
        .collect(),
    };
    found.map(finding).into_iter().collect()
}
