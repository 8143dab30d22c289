//! The rows of a need: what was recorded, and what CUDA takes beside it.

use super::{Card, NeedRow};
use crate::attribute::Attribution;
use crate::recording::DeviceView;
use crate::snapshot::{CudaState, DeviceSnapshot, StackId};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// What the program asked for.
pub(super) const LIVE: &str = "live at the peak";
/// What pools take beyond.
pub(super) const POOLS: &str = "rounding and growth of pools";
/// A pool grows by steps of this size.
const STEP: u64 = 32 * MIB;

pub(super) fn rows(device: &DeviceView<'_>, card: &Card) -> Vec<NeedRow> {
    let rows = [live(device), pools(device)].into_iter().chain(of_process(device, card));
    rows.filter(|row| row.high > 0).collect()
}

fn live(device: &DeviceView<'_>) -> NeedRow {
    let bytes = device.peak.total();
    let known_by = if is_simulated(device.data()) { "what was asked for, exactly" } else { "recorded on a GPU" };
    NeedRow { what: LIVE, low: bytes, high: bytes, known_by: known_by.to_owned() }
}

fn is_simulated(data: &Attribution<'_>) -> bool {
    data.health.cuda.state == CudaState::Simulated
}

/// What pools reserved beyond the live bytes: no less than nothing, and a step more where another order of events needs one.
fn pools(device: &DeviceSnapshot) -> NeedRow {
    let (live, used) = (device.stats.allocated_bytes.peak, device.stats.reserved_bytes.peak);
    let beyond = used.saturating_sub(live);
    let step = if device.pool.is_some_and(|pool| pool.reserved_high > 0) { STEP } else { 0 };
    NeedRow { what: POOLS, low: 0, high: beyond + step, known_by: "simulated, and a step of 32 MiB".to_owned() }
}

/// What CUDA takes for the process.
fn of_process(device: &DeviceView<'_>, card: &Card) -> Vec<NeedRow> {
    let (fewest, most) = card.threads();
    let stack = |bytes: u64, of| bytes * of;
    let library = |name: &str| device.data().objects.iter().any(|object| is_library(object.path.as_deref(), name));
    let has_cublas = library("libcublas");
    let recorded = device.live.iter().chain(&device.peak.blocks).any(|block| is_cublas(device.data(), block.stack));
    let row = |what, low, high, known_by: &str| NeedRow { what, low, high, known_by: known_by.to_owned() };
    vec![
        row("kernel stacks", stack(KIB, fewest), stack(2 * KIB, most), "1 to 2 KiB a thread of the card"),
        row(
            "rest of the context",
            stack(KIB, fewest) * 9 / 10,
            stack(KIB, most) * 13 / 10,
            "0.9 to 1.3 KiB a thread of the card",
        ),
        row(
            "cuBLAS workspace",
            0,
            if has_cublas && !recorded { 32 * MIB } else { 0 },
            "default: 4 MiB, from Hopper on 32",
        ),
        row("modules", 0, if has_cublas { 300 * MIB } else { 64 * MIB }, "assumed; loaded at first use"),
    ]
}

fn is_library(path: Option<&str>, name: &str) -> bool {
    path.and_then(|path| path.rsplit('/').next()).is_some_and(|file| file.starts_with(name))
}

fn is_cublas(data: &Attribution<'_>, stack: StackId) -> bool {
    crate::attribute::library(data, stack).is_some_and(|name| name.to_lowercase().contains("cublas"))
}
