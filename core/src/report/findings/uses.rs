//! Findings from uses of blocks: memory that no GPU operation needs at the peak, and writes that nothing reads.

use std::collections::BTreeMap;

use super::finding::{Confidence, Cost, Finding, FindingKind, exactly, lines, then, then_at_most};
use super::graphs::after_a_pass;
use super::model::{optimizer_transient, square};
use crate::analysis::{
    IdleMemory, InPlace, OperatorTemporaries, Waste, WasteKind, idle_memory, in_place, line_label,
    operator_temporaries, waste,
};
use crate::attribute::operator;
use crate::recording::DeviceView;
use crate::report::device_memory::time;
use crate::snapshot::{DeadWrite, StackId};
use crate::units::{Bytes, grouped};

/// Memory that could be freed earlier, allocated later, or not at all.
pub(super) fn wasted(device: &DeviceView<'_>) -> Vec<Finding> {
    waste(device).iter().map(|row| wasted_by(device, row)).collect()
}

/// How certain it is that no operation was missed, and why.
fn certainty(refused_imports: u64) -> (Confidence, &'static str) {
    match refused_imports {
        0 => (Confidence::Likely, "every operation in between is known, and none gets the address."),
        _ => (
            Confidence::Possible,
            "no known operation gets the address, but launches through imports that could not be patched are not seen.",
        ),
    }
}

pub(super) fn wasted_by(device: &DeviceView<'_>, row: &Waste) -> Finding {
    let (confidence, why) = certainty(device.data().health.cuda.refused_imports);
    let blocks = bytes_in_blocks(row.bytes, row.blocks);
    let (what, advice) = match row.kind {
        WasteKind::PastLastUse => {
            let advice = if row.pass_line.is_empty() { after(row) } else { after_a_pass(&row.pass_line) };
            (format!("{blocks}, held for {} after the last use (by {})", time(row.idle_ns), row.kernel), advice)
        }
        WasteKind::NeverUsed => (
            format!("{blocks} that no GPU operation uses"),
            vec!["Do not allocate this memory, or allocate it where it is needed.".to_owned()],
        ),
        WasteKind::Early => (
            format!("{blocks}, allocated {} before the first use (by {})", time(row.idle_ns), row.kernel),
            vec![match &*row.use_line {
                "" => "Allocate this memory where it is used first.".to_owned(),
                line => format!("Allocate this memory where it is used first: {line}."),
            }],
        ),
    };
    Finding {
        kind: match row.kind {
            WasteKind::PastLastUse => FindingKind::PastLastUse,
            WasteKind::NeverUsed => FindingKind::NeverUsed,
            WasteKind::Early => FindingKind::AllocatedEarly,
        },
        what,
        line: Some(row.line.clone()).filter(|line| !line.is_empty()),
        cost: Cost::OfPeak(row.saves),
        confidence,
        why,
        advice: advice.into_iter().chain([then(row.peak_without)]).collect(),
    }
}

fn bytes_in_blocks(bytes: u64, blocks: u64) -> String {
    match blocks {
        1 => Bytes(bytes).to_string(),
        count => format!("{} in {} blocks", Bytes(bytes), grouped(count)),
    }
}

/// How to free the block after its last use, depending on the lines of both.
fn after(row: &Waste) -> Vec<String> {
    match &*row.use_line {
        "" => lines(&["Drop the value after its last use, or end its scope there."]),
        line if line == row.line => vec![
            format!("{line} allocates the value, uses it last, and goes on:"),
            "split that line into its calls, so that the value is dropped in between.".to_owned(),
        ],
        line if row.in_one_function => vec![
            format!("Drop the value after its last use at {line}:"),
            "`drop(x)` on the next line, or a block `{ … }` that ends there.".to_owned(),
        ],
        line => vec![
            format!("Drop the value after its last use at {line}, in another function:"),
            "let that function take it by value, or take it out of its owner there: `self.x.take()`.".to_owned(),
        ],
    }
}

/// Memory that could be recomputed, or moved to the host, while nothing uses it.
pub(super) fn idle(device: &DeviceView<'_>) -> Vec<Finding> {
    idle_memory(device).iter().map(idle_by).collect()
}

pub(super) fn idle_by(row: &IdleMemory) -> Finding {
    let until = match (&*row.kernel, &*row.use_line) {
        ("", _) => String::new(),
        (kernel, "") => format!(", until {kernel}"),
        (kernel, line) => format!(", until {kernel} at {line}"),
    };
    Finding {
        kind: FindingKind::Idle,
        what: format!(
            "{} unused for {} or more GPU operations in a row, {} of the host's time{until}",
            bytes_in_blocks(row.bytes, row.blocks),
            grouped(row.operations),
            time(row.idle_ns)
        ),
        line: Some(row.line.clone()).filter(|line| !line.is_empty()),
        cost: Cost::OfPeak(row.saves),
        confidence: Confidence::Possible,
        why: "the blocks are idle at the peak; freeing them costs the time to recompute or move the values.",
        advice: vec![
            format!(
                "Compute the values again where they are used, or move them to the host: {} there and back,",
                time(row.transfer_ns())
            ),
            format!("if the link moves {} a second (an assumption: PCIe 4.0, 16 lanes).", Bytes(IdleMemory::HOST_LINK)),
            format!("The peak would be at most {}, if unneeded memory is freed, too.", exactly(row.peak_without)),
        ],
    }
}

/// Outputs of element-wise operators that could overwrite an input.
pub(super) fn over_inputs(device: &DeviceView<'_>) -> Vec<Finding> {
    in_place(device).iter().map(over_input).collect()
}

pub(super) fn over_input(row: &InPlace) -> Finding {
    let from = if row.input_line.is_empty() { String::new() } else { format!(" from {}", row.input_line) };
    let (function, of) = match row.operands {
        1 => ("inplace_op1", "an `InplaceOp1`"),
        _ => ("inplace_op2", "an `InplaceOp2`"),
    };
    Finding {
        kind: FindingKind::InPlace,
        what: format!(
            "{} of output of {}, whose input{from} has the same size and is not used afterwards",
            bytes_in_blocks(row.bytes, row.blocks),
            row.operator
        ),
        line: Some(row.line.clone()).filter(|line| !line.is_empty()),
        cost: Cost::OfPeak(row.saves),
        confidence: Confidence::Possible,
        why: "the input's last use is the output's first; whether the operator reads each element once is not known.",
        advice: vec![
            format!("Write the output over the input: candle's `Tensor::{function}` with {of} of your own, whose"),
            format!("`cuda_fwd` does {} on the GPU. candle does not differentiate it.", row.operator),
            format!("The peak would be at most {}, if unneeded memory is freed, too.", exactly(row.peak_without)),
        ],
    }
}

/// An operator whose workspace is many times the size of its inputs and outputs. `square` and `optimizer_transient`
/// take precedence.
pub(super) fn temporaries(device: &DeviceView<'_>) -> Vec<Finding> {
    let is_covered = || !square(device).is_empty() || !optimizer_transient(device).is_empty();
    let found = operator_temporaries(device).filter(|_| !is_covered());
    found.iter().map(temporaries_of).collect()
}

pub(super) fn temporaries_of(row: &OperatorTemporaries) -> Finding {
    let least = if row.are_inputs_known { "" } else { "at least " };
    Finding {
        kind: FindingKind::OperatorTemporaries,
        what: format!(
            "{} needs {} while it runs, {least}{} times its inputs and outputs",
            row.operator,
            bytes_in_blocks(row.bytes, row.blocks),
            grouped(row.times())
        ),
        line: Some(row.line.clone()).filter(|line| !line.is_empty()),
        cost: Cost::OfPeak(row.saves),
        confidence: Confidence::Certain,
        why: "the call allocates these blocks and frees them again.",
        advice: vec![
            format!("Call it on {} or more parts of the tensor, one after another.", OperatorTemporaries::PARTS),
            then_at_most(row.peak_without),
        ],
    }
}

/// Blocks that are filled, or copied to, twice before anything reads them.
pub(super) fn written_twice(device: &DeviceView<'_>) -> Vec<Finding> {
    let data = device.data();
    let Some(work) = &data.gpu_work else { return Vec::new() };
    let mut sites: BTreeMap<(StackId, u32, u32), (u64, u64)> = BTreeMap::new();
    for uses in &device.uses {
        // Only candle can change what a backward pass writes.
        let is_backward = |stack| operator(data, stack).is_some_and(|operator| operator.is_backward);
        let Some(DeadWrite { bytes, first, second, stack }) =
            uses.dead_write.filter(|dead| dead.stack != StackId::NONE && !is_backward(dead.stack))
        else {
            continue;
        };
        let (all, count) = sites.entry((stack, first.0, second.0)).or_default();
        *all = all.saturating_add(bytes);
        *count += 1;
    }
    let most = sites.into_iter().max_by_key(|(_, (bytes, _))| *bytes);
    let finding = |((stack, first, second), (bytes, count)): ((StackId, u32, u32), (u64, u64))| {
        let name = |id| work.kernel(crate::snapshot::KernelId(id));
        Finding {
            kind: FindingKind::WrittenTwice,
            what: format!(
                "{} times, {} writes a block that {} overwrites before anything reads it",
                grouped(count),
                name(first),
                name(second)
            ),
            line: Some(line_label(data, stack.0)),
            cost: Cost::Written(bytes),
            confidence: Confidence::Likely,
            why: "no operation in between gets the address.",
            advice: lines(&[
                "Allocate without filling where an upload or a copy follows: build the tensor from its data.",
            ]),
        }
    };
    most.filter(|(_, (bytes, _))| *bytes >= device.peak.bytes / 10).map(finding).into_iter().collect()
}
