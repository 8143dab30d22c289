//! Memory that only graphs keep, at the end and at the peak, and the peak without it.

use std::num::NonZeroU64;

use super::graph::KeptByGraph;
use super::replay::LogReplay;
use crate::analysis::log::peak_record;
use crate::analysis::{bytes_by_line, line_label};
use crate::attribute::Attribution;
use crate::recording::DeviceView;
use crate::snapshot::Block;

/// Blocks that a graph keeps at the peak, and the peak without them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ungraphed {
    pub(crate) blocks: u64,
    pub(crate) bytes: u64,
    /// The line that allocated most of them.
    pub(crate) line: String,
    /// The line of the backward pass that needed the blocks; empty if no pass did.
    pub(crate) pass: String,
    pub(crate) peak_without: u64,
}

/// Whether a block is a temporary that was computed for the last backward pass and is live at the end. Only a graph
/// can hold such a block.
pub(crate) fn is_left_by_a_pass(device: &DeviceView<'_>) -> impl Fn(&Block) -> bool {
    let graphs = device.graphs();
    move |block| block.seq.is_some_and(|seq| graphs.left.contains(&seq))
}

/// Intermediate results that no backward pass needs.
pub(crate) fn without_a_pass(device: &DeviceView<'_>) -> Option<Ungraphed> {
    let (log, at) = device.graphs().log.as_ref().zip(peak_record(device))?;
    ungraphed(device.data(), log, &kept_without_a_pass(device), at, String::new())
}

pub(super) fn kept_without_a_pass<'a>(device: &'a DeviceView<'_>) -> Vec<&'a KeptByGraph> {
    device.graphs().blocks.iter().filter(|kept| kept.is_temporary && kept.pass.is_none()).collect()
}

/// Blocks that a graph keeps after the backward pass that needed them. Those live at the peak are counted, but the new
/// peak lacks those of all iterations. The next pass does not need them: it has fewer nodes than there are results.
pub(crate) fn past_their_pass(device: &DeviceView<'_>) -> Option<Ungraphed> {
    let (log, at) = device.graphs().log.as_ref().zip(peak_record(device))?;
    let kept = kept_past_their_pass(device);
    let pass = pass_of(device, kept.iter().find(|kept| kept.absence.is_at(at))?)?;
    ungraphed(device.data(), log, &kept, at, pass)
}

/// The line of the backward pass that needed a block.
pub(super) fn pass_of(device: &DeviceView<'_>, kept: &KeptByGraph) -> Option<String> {
    let pass = device.graphs().passes.get(kept.pass?)?;
    Some(line_label(device.data(), pass.stack.0))
}

pub(super) fn kept_past_their_pass<'a>(device: &'a DeviceView<'_>) -> Vec<&'a KeptByGraph> {
    let graphs = device.graphs();
    let mut by_pass: Vec<Vec<&KeptByGraph>> = vec![Vec::new(); graphs.passes.len()];
    for kept in &graphs.blocks {
        kept.pass.into_iter().for_each(|pass| by_pass[pass].push(kept));
    }
    let not_needed = |(pass, kept)| graphs.not_needed(device.data(), device, kept, pass);
    by_pass.into_iter().enumerate().flat_map(not_needed).collect()
}

/// The bytes of the temporaries that graphs keep too long and for which `is_one` holds, and the peak without them.
pub(crate) fn peak_without_graphs(device: &DeviceView<'_>, is_one: impl Fn(NonZeroU64) -> bool) -> Option<(u64, u64)> {
    let graphs = device.graphs();
    let kept: Vec<&KeptByGraph> =
        graphs.blocks.iter().filter(|kept| kept.is_temporary && is_one(kept.absence.seq)).collect();
    let bytes = kept.iter().map(|kept| kept.absence.size).sum();
    Some((bytes, graphs.log.as_ref()?.peak_with(kept.iter().flat_map(|kept| kept.absence.changes()))))
}

fn ungraphed(
    data: &Attribution<'_>,
    log: &LogReplay,
    kept: &[&KeptByGraph],
    at: usize,
    pass: String,
) -> Option<Ungraphed> {
    let at_peak: Vec<&&KeptByGraph> = kept.iter().filter(|kept| kept.absence.is_at(at)).collect();
    let by_line = bytes_by_line(data, at_peak.iter().map(|kept| (kept.stack, kept.absence.size)));
    let (line, _) = by_line.into_iter().max_by_key(|(_, bytes)| *bytes)?;
    Some(Ungraphed {
        blocks: at_peak.len() as u64,
        bytes: at_peak.iter().map(|kept| kept.absence.size).sum(),
        line,
        pass,
        peak_without: log.peak_with(kept.iter().flat_map(|kept| kept.absence.changes())),
    })
}
