//! The rows of a need: the recorded memory, and the memory that CUDA takes in addition.

use std::collections::HashSet;

use super::room::{self, STEP, has_pool};
use super::{Card, NeedRow};
use crate::attribute::{Attribution, library};
use crate::recording::DeviceView;
use crate::snapshot::{CudaState, DeviceSnapshot, GpuWork, StackId};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The largest stack of a kernel's thread, in bytes.
const MOST_STACK: u64 = 2 * KIB;
/// Bytes of the modules of a program without cuBLAS.
const MODULES: u64 = 64 * MIB;
/// Memory that the program requested.
pub(super) const LIVE: &str = "live at the peak";
/// Memory that cuBLAS takes for itself.
pub(super) const WORKSPACE: &str = "cuBLAS workspace";
/// Local memory of all threads that the card can run at once.
pub(in crate::analysis) const STACKS: &str = "kernel stacks";
/// Memory that pools take beyond the live bytes.
pub(super) const POOLS: &str = "rounding and growth of pools";

/// All rows of a need. `more` are rows besides the GPU's own memory.
pub(super) fn rows(device: &DeviceView<'_>, card: &Card, more: impl IntoIterator<Item = NeedRow>) -> Vec<NeedRow> {
    let mut beside = of_process(device, card);
    beside.extend(more);
    let taken = beside.iter().fold(0, |sum: u64, row| sum.saturating_add(row.high));
    let pools = pools(device, card.memory.saturating_sub(taken));
    let rows = [live(device), pools].into_iter().chain(beside);
    rows.filter(|row| row.high > 0).collect()
}

fn live(device: &DeviceView<'_>) -> NeedRow {
    let bytes = device.peak.total();
    let known_by = if is_simulated(device.data()) { "exactly what was requested" } else { "recorded on a GPU" };
    NeedRow::new(LIVE, bytes, bytes, known_by)
}

pub(super) fn is_simulated(data: &Attribution<'_>) -> bool {
    data.health.cuda.state == CudaState::Simulated
}

/// Memory that pools take beyond the live bytes if the program may use `memory` bytes. The lower end is 0. The upper
/// end includes one more step of the pool's growth, because another run may have the same events in another order. On a
/// card with much room, a pool keeps segments that it releases on a full card.
fn pools(device: &DeviceView<'_>, memory: u64) -> NeedRow {
    let (live, roomy) = (device.stats.allocated_bytes.peak, on_a_roomy_card(device));
    let row = |high, known_by| NeedRow::new(POOLS, 0, high, known_by);
    let Some(least) = device.least_room() else { return row(roomy, "simulated, plus a step of 32 MiB") };
    let has_room = memory >= device.stats.reserved_bytes.peak;
    // Above `least`, the model may still run out, because more memory changes where the pool puts blocks.
    if memory < least || has_room || room::suffices(device, memory) {
        row(roomy.min(least.saturating_sub(live) + STEP), "simulated on a full card, plus a step of 32 MiB")
    } else {
        row(roomy, "simulated, plus a step of 32 MiB")
    }
}

/// The most that pools take beyond the live bytes, on a card with more memory than they ask for.
pub(super) fn on_a_roomy_card(device: &DeviceSnapshot) -> u64 {
    let beyond = device.stats.reserved_bytes.peak.saturating_sub(device.stats.allocated_bytes.peak);
    let step = if has_pool(device) { STEP } else { 0 };
    beyond + step
}

/// Memory that CUDA takes for the process.
fn of_process(device: &DeviceView<'_>, card: &Card) -> Vec<NeedRow> {
    let local = most_local(device);
    let known_by = if local > MOST_STACK {
        "1 KiB per thread of the card, to what the largest kernel needs"
    } else {
        "1 to 2 KiB per thread of the card"
    };
    let stacks = [KIB, MOST_STACK.max(local)];
    rows_of_process(device, card.threads(), stacks, known_by)
}

/// The most local memory that a thread of a kernel needs, in bytes. The kernel's launch may have been on another
/// device, or only captured into a graph, or refused.
fn most_local(device: &DeviceView<'_>) -> u64 {
    device.data().gpu_work.as_ref().and_then(GpuWork::most_local).map_or(0, |local| local.bytes)
}

/// The memory that CUDA takes for the recorded process, besides what the balance of its device has in other rows; empty
/// if the device's threads are not known.
pub(in crate::analysis) fn of_recorded(device: &DeviceView<'_>) -> Vec<NeedRow> {
    let Some(threads) = device.memory.and_then(|memory| memory.threads) else { return Vec::new() };
    let (low, local) = (threads.stack, most_local(device));
    let (high, known_by) = match () {
        () if device.data().gpu_work.is_none() => (MOST_STACK, "the context's limit, to 2 KiB, per thread of the card"),
        () if local > low => (local, "the context's limit, to what the largest kernel needs, per thread of the card"),
        () => (low, "the context's limit per thread of the card"),
    };
    let rows = rows_of_process(device, (threads.count, threads.count), [low, high.max(low)], known_by);
    rows.into_iter().filter(|row| row.high > 0).collect()
}

/// The pairs are the fewest and the most threads that have a kernel stack, and the least and the most bytes of a stack.
fn rows_of_process(
    device: &DeviceView<'_>,
    (fewest, most): (u64, u64),
    stacks: [u64; 2],
    known_by: &'static str,
) -> Vec<NeedRow> {
    let has_cublas = has_library(device, "libcublas");
    let recorded = device.live.iter().chain(&device.peak.blocks).any(|block| is_cublas(device.data(), block.stack));
    let row = NeedRow::new;
    vec![
        row(STACKS, stacks[0].saturating_mul(fewest), stacks[1].saturating_mul(most), known_by),
        row(
            "rest of the context",
            (KIB * 9).saturating_mul(fewest) / 10,
            (KIB * 13).saturating_mul(most) / 10,
            "0.9 to 1.3 KiB per thread of the card",
        ),
        row(WORKSPACE, 0, if has_cublas && !recorded { 32 * MIB } else { 0 }, "default: 4 MiB, 32 MiB from Hopper on"),
        row("modules", 0, if has_cublas { 300 * MIB } else { MODULES }, "assumed; loaded at first use"),
    ]
}

/// Whether a library was loaded whose file name begins with `name`.
pub(super) fn has_library(device: &DeviceView<'_>, name: &str) -> bool {
    let mut paths = device.data().objects.iter().filter_map(|object| object.path.as_deref());
    paths.any(|path| path.rsplit('/').next().is_some_and(|file| file.starts_with(name)))
}

/// Whether a library whose name begins with `name` allocated memory on the device.
pub(super) fn allocates(device: &DeviceView<'_>, name: &str) -> bool {
    let blocks = device.lifetimes().iter().map(|life| life.block.stack);
    let stacks: HashSet<StackId> = blocks.chain(device.live.iter().map(|block| block.stack)).collect();
    stacks.into_iter().any(|stack| library(device.data(), stack).is_some_and(|file| file.starts_with(name)))
}

pub(super) fn is_cublas(data: &Attribution<'_>, stack: StackId) -> bool {
    library(data, stack).is_some_and(|name| name.to_lowercase().contains("cublas"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNELS: &str = include_str!("kernels.txt");

    #[test]
    fn candles_kernels_are_within_the_rows_whatever_the_card() {
        let rows = KERNELS.lines().filter(|line| !line.starts_with('#'));
        let rows: Vec<Vec<&str>> = rows.map(|line| line.split(' ').collect()).collect();
        let number = |text: &str| text.parse::<u64>().unwrap();
        for architecture in [75, 80, 86, 89, 90, 100, 120] {
            let modules: Vec<_> = rows.iter().filter(|row| number(row[1]) == architecture).collect();
            assert_eq!(modules.len(), 11);
            // The driver may use whole large pages for each module.
            let bytes = |row: &&Vec<&str>| number(row[3]).next_multiple_of(2 * MIB);
            let exact: u64 = modules.iter().map(|row| number(row[3])).sum();
            let paged: u64 = modules.iter().map(bytes).sum();
            println!("sm_{architecture}: {exact} bytes, {} MiB in whole 2 MiB", paged / MIB);
            assert!(paged < MODULES);
            assert!(modules.iter().all(|row| number(row[4]) <= MOST_STACK));
        }
    }
}
