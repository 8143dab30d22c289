//! Checkpointing: a module frees what its forward pass keeps for the backward pass, and computes it again when that arrives there.
//!
//! The log is replayed as if each call of the module were made by the wrapper of docs/findings.md, which is one node of candle's graph:
//! * When the call ends, its result is copied, and all that it has kept is freed.
//! * Where the backward pass reaches the first step of the call, the wrapper copies the input to a variable, runs the forward pass once
//!   more, begins a pass of its own with the gradient of the result, and frees all of that after its last step.
//! * What its gradients keep is freed, and the gradient of the input is added to that of the program's pass.
//!
//! Which steps are the call's is known from [`pairings`](crate::attribute::Pairings). The input is supposed to be what the call after it in the
//! backward pass returned, and to be used by the module alone; with another input, the peak may differ by three times its size.

mod calls;
mod details;
mod replayed;
mod steps;

use std::collections::HashSet;

use self::calls::{ModuleCall, families};
use self::replayed::Replayed;
use self::steps::Steps;
use super::replay::LogReplay;
use crate::recording::DeviceView;

/// Modules, or one, with which the peak is lower if they are checkpointed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The paths of the first and the last module, which differ in numbers only; one path if it is one module.
    pub modules: String,
    /// Number of modules.
    pub count: u64,
    /// Calls that are made twice.
    pub calls: u64,
    /// The most that a call keeps for its backward pass, without its result.
    pub kept: u64,
    /// Time of the host in which these calls were running, in nanoseconds.
    pub forward_ns: u64,
    /// Reduction of the peak.
    pub saves: u64,
    /// The peak then.
    pub peak_without: u64,
    /// Otherwise it is near that: for some blocks it is not known whether they are gradients, which stay, or calls share a variable.
    pub is_exact: bool,
}

/// What checkpointing modules saves, the largest reduction of the peak first. Nothing if no pairing is known, and if the log has lost
/// records.
pub fn checkpoints(device: &DeviceView<'_>) -> Vec<Checkpoint> {
    if device.pairings().is_empty() {
        return Vec::new();
    }
    let Some(log) = LogReplay::of(device) else { return Vec::new() };
    let steps = Steps::of(device);
    let found = families(device).into_iter().filter_map(|calls| checkpoint(device, &log, &steps, &calls));
    let mut found: Vec<Checkpoint> = found.collect();
    found.sort_by_key(|found| (found.peak_without, found.forward_ns));
    found
}

/// `None` if nothing is saved.
fn checkpoint(device: &DeviceView<'_>, log: &LogReplay, steps: &Steps, calls: &[ModuleCall]) -> Option<Checkpoint> {
    let replayed = || calls.iter().filter_map(|call| Some((call, Replayed::of(device, steps, call)?)));
    let (calls, replayed): (Vec<&ModuleCall>, Vec<Replayed>) = replayed().unzip();
    let gone = replayed.iter().flat_map(|call| call.details.iter().map(|block| block.seq)).collect();
    let peak_without = log.peak_with_stops(replayed.iter().flat_map(|call| call.stops(&gone)).collect());
    let saves = device.peak.bytes.checked_sub(peak_without).filter(|saves| *saves > 0)?;
    let mut known = HashSet::new();
    let paths: Vec<&str> = calls.iter().map(|call| &*call.path).filter(|path| known.insert(*path)).collect();
    let ends: Vec<&str> = paths.first().into_iter().chain(paths.get(1..)?.last()).copied().collect();
    Some(Checkpoint {
        modules: ends.join(" … "),
        count: paths.len() as u64,
        calls: replayed.len() as u64,
        kept: replayed.iter().map(|call| call.kept - call.result).max().unwrap_or(0).unsigned_abs(),
        forward_ns: calls.iter().map(|call| call.to_ns - call.from_ns).sum(),
        saves,
        peak_without,
        is_exact: replayed.iter().all(|call| call.is_exact),
    })
}
