//! Checkpointing: a module frees what its forward pass keeps for the backward pass, and computes it again when the
//! backward pass reaches it.
//!
//! The log is replayed as if each call of the module were made by the wrapper of docs/findings.md, which is one node of
//! candle's graph. A *step* is what a backward pass does for one node.
//! * When the call ends, its result is copied, and everything that it has kept is freed.
//! * When the backward pass reaches the first step of the call, the wrapper copies the input to a variable and runs the
//!   forward pass again. Then it starts a backward pass of its own with the gradient of the result. It frees all of
//!   this after the last step of its pass.
//! * Then the blocks that the gradients of the wrapper's pass keep are freed, and the gradient of the input is added to
//!   that of the program's pass.
//!
//! The steps of a call are known from [`pairings`](crate::attribute::Pairings). The input is assumed to be the result
//! of the call whose steps come next in the backward pass, and to be used only by the module. With another input, the
//! peak may differ by three times the input's size.

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

/// Modules whose checkpointing lowers the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The paths of the first and the last module, which differ only in numbers. If there is only one module, its path.
    pub modules: String,
    /// Number of modules.
    pub count: u64,
    /// Number of calls that are made twice.
    pub calls: u64,
    /// The most bytes that a call keeps for its backward pass, without its result.
    pub kept: u64,
    /// Host time during which these calls were running, in nanoseconds.
    pub forward_ns: u64,
    /// Reduction of the peak in bytes.
    pub saves: u64,
    /// The peak with checkpointing.
    pub peak_without: u64,
    /// Whether `peak_without` is exact. It is approximate if some blocks may be gradients, which stay, or not, or if
    /// calls share a variable.
    pub is_exact: bool,
}

/// The modules whose checkpointing lowers the peak, largest reduction first. Empty if no pairing is known or the log
/// has lost records.
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

/// What checkpointing saves if the modules of these calls use it. `None` if the peak is not lower.
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
