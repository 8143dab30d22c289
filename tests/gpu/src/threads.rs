//! Two threads that free each other's blocks, whose addresses are reused soon.

use std::collections::HashSet;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use memtrace::{Snapshot, StackContext};

use crate::gpu::{GPU, Gpu};
use crate::raw::{self, LEGACY, Outcome};
use crate::table::Table;

const ROUNDS: usize = 20_000;
/// Blocks that each thread keeps to the end.
const KEPT: usize = 16;

/// `unit` is the pool's rounding.
pub(crate) fn rows(gpu: &Gpu, unit: u64, table: &mut Table) -> Outcome<()> {
    gpu.settle();
    // A device without pools has no blocks to exchange.
    raw::free_async(raw::alloc_async(600, LEGACY)?, LEGACY)?;
    gpu.settle();
    let before = gpu.used();
    let builder = memtrace::builder().max_entries(8 * ROUNDS).context(StackContext::None);
    let session = builder.start().expect("no other session is under way");
    let kept = exchange(gpu);
    gpu.context.synchronize().expect("the GPU works");
    let used = gpu.used().saturating_sub(before);
    judge(&session.snapshot(), used, unit, table);
    kept.into_iter().try_for_each(|block| raw::free_async(block, LEGACY))
}

fn judge(snapshot: &Snapshot, used: u64, unit: u64, table: &mut Table) {
    let device = snapshot.device(GPU).expect("it was recorded");
    let live: u64 = device.live.iter().map(|block| block.size).sum();
    let rounded: u64 = device.live.iter().map(|block| block.size.next_multiple_of(unit)).sum();
    let addresses: HashSet<u64> = device.records.iter().map(|record| record.address).collect();
    let health = &snapshot.health;
    let detail = format!("ledger {live} bytes in {} blocks, rounded up {rounded}, pool USED {used}", device.live.len());
    table.check("two threads: ledger equals the pool", used == rounded && device.live.len() == 2 * KEPT, detail);
    let all = 4 * ROUNDS - 2 * KEPT;
    let none = (health.missed_frees, health.unknown_frees, health.refused_frees) == (0, 0, 0);
    let detail = format!(
        "{} records of {all}, {} addresses; {} frees missed, {} unknown, {} refused",
        device.records.len(),
        addresses.len(),
        health.missed_frees,
        health.unknown_frees,
        health.refused_frees
    );
    table.check("two threads: no call missed", none && device.records.len() == all, detail);
}

/// Returns what is left.
fn exchange(gpu: &Gpu) -> Vec<u64> {
    let (to_second, from_first) = sync_channel(4);
    let (to_first, from_second) = sync_channel(4);
    // `gpu` holds the pool's handle, which stays on this thread.
    let context = &gpu.context;
    std::thread::scope(|scope| {
        let first = scope.spawn(move || work(context.clone(), 0, to_second, from_second));
        let second = scope.spawn(move || work(context.clone(), 1, to_first, from_first));
        [first, second].into_iter().flat_map(|thread| thread.join().expect("it does not panic")).collect()
    })
}

type Context = std::sync::Arc<cudarc::driver::CudaContext>;

/// Sends its blocks to the other thread, frees those that it receives, and keeps the last ones.
fn work(context: Context, number: usize, to: SyncSender<u64>, from: Receiver<u64>) -> Vec<u64> {
    context.bind_to_thread().expect("the context is a live one");
    let free = |block| raw::free_async(block, LEGACY).expect("the block is a live one");
    let mut kept = Vec::new();
    for round in 0..ROUNDS {
        let block = raw::alloc_async(600 + number + 2 * (round % 100), LEGACY).expect("there is memory");
        if round >= ROUNDS - KEPT {
            kept.push(block);
        } else if to.send(block).is_err() {
            break;
        }
        from.try_iter().take(1).for_each(free);
    }
    drop(to);
    from.into_iter().for_each(free);
    kept
}
