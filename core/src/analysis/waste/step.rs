//! What the peak would be if blocks were freed before their successors are allocated, or with a custom optimizer step.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::replay::LogReplay;
use crate::analysis::absence::LogChange;
use crate::hashed::by_key;
use crate::memo::Memo;
use crate::recording::DeviceView;
use crate::snapshot::{Block, Category, Record, RecordKind};

impl LogReplay {
    /// `None` if the log does not reproduce the peak.
    pub(super) fn of(device: &DeviceView<'_>) -> Option<Self> {
        Self::with(device, device.lifetimes())
    }

    pub(super) fn with_uses(device: &DeviceView<'_>) -> Option<Self> {
        if device.uses.is_empty() { None } else { Self::of(device) }
    }
}

/// The peak if each of these blocks were freed before its stack allocates again. `None` if the log has lost records.
pub(crate) fn peak_if_replaced<'a>(device: &DeviceView<'_>, blocks: impl Iterator<Item = &'a Block>) -> Option<u64> {
    let log = LogReplay::of(device)?;
    let allocs = device.records.iter().enumerate().filter(|(_, record)| record.kind == RecordKind::Alloc);
    let by_stack = by_key(allocs.map(|(at, record)| (record.stack, at)));
    let changes = |block: &Block| {
        let (at, size) = (log.allocated_at(block.seq?)?, i64::try_from(block.size).ok()?);
        let of_stack = by_stack.get(&block.stack)?;
        let next = *of_stack.get(of_stack.partition_point(|alloc| *alloc <= at))?;
        let until = log.freed_at(block.seq?).unwrap_or(usize::MAX);
        (next < until).then_some([(next, -size), (until, size)])
    };
    Some(log.peak_with(blocks.filter_map(changes).flatten()))
}

/// The most transient memory of a custom optimizer step, as a multiple of the parameter that it updates.
pub(crate) const OWN_STEP: u64 = 4;

/// A test whether a block is a temporary of candle's `AdamW::step`. `None` if the program never calls this function.
pub(crate) fn step_temporaries(device: &DeviceView<'_>) -> Option<impl FnMut(&Block) -> bool> {
    let data = device.data();
    let is_step = |function: &str| function.contains("AdamW") && function.ends_with("step");
    let steps: Vec<bool> = data.stacks.frames.iter().map(|frame| is_step(frame.function_or_empty())).collect();
    let mut in_step =
        Memo::of(move |stack| data.stacks.frame_numbers(stack).any(|frame| steps.get(frame) == Some(&true)));
    let categories = device.categories();
    let is_transient = move |block: &Block| {
        in_step.get(block.stack)
            && !matches!(categories.get(block.seq), Category::OptimizerState | Category::Parameter)
            && device.name(block.seq).is_none()
    };
    data.stacks.frames.iter().any(|frame| is_step(frame.function_or_empty())).then_some(is_transient)
}

/// The peak if the transient blocks of optimizer steps never took more than [`OWN_STEP`] times the largest of those
/// that are live at the time. `None` if the log has lost records.
pub(crate) fn peak_with_own_step(device: &DeviceView<'_>, is_transient: impl FnMut(&Record) -> bool) -> Option<u64> {
    let log = LogReplay::of(device)?;
    let changes = own_step(device, &log, is_transient);
    Some(log.peak_with(changes.into_iter()))
}

/// How a custom optimizer step changes the total of live bytes.
pub(super) fn own_step(
    device: &DeviceView<'_>,
    log: &LogReplay,
    mut is_transient: impl FnMut(&Record) -> bool,
) -> Vec<LogChange> {
    // Number of live transient blocks of each size.
    let mut live: BTreeMap<u64, usize> = BTreeMap::new();
    let mut freed: Vec<(usize, u64)> = Vec::new();
    let mut changes: Vec<LogChange> = Vec::new();
    let (mut total, mut saved) = (0u64, 0u64);
    let mut of_steps: Vec<(usize, bool, u64)> = Vec::new();
    for (at, record) in device.records.iter().enumerate() {
        if record.kind == RecordKind::Alloc && is_transient(record) {
            of_steps.push((at, true, record.size));
            freed.extend(
                record.alloc_seq.and_then(|seq: NonZeroU64| log.freed_at(seq)).map(|until| (until, record.size)),
            );
        }
    }
    of_steps.extend(freed.into_iter().map(|(at, size)| (at, false, size)));
    of_steps.sort_unstable();
    for (at, is_alloc, size) in of_steps {
        let count = live.entry(size).or_default();
        if is_alloc {
            (*count, total) = (*count + 1, total + size);
        } else {
            (*count, total) = (*count - 1, total - size);
            if *count == 0 {
                live.remove(&size);
            }
        }
        let most = live.last_key_value().map_or(0, |(size, _)| OWN_STEP * size);
        let saves = total.saturating_sub(most);
        changes.push((at, saved as i64 - saves as i64));
        saved = saves;
    }
    changes
}
