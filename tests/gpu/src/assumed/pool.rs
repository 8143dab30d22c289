//! Pools: sizes, growth, and when memory is released.

use cudarc::driver::sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as THRESHOLD;
use cudarc::driver::sys::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR as BASE;

use super::held::{Held, Made, OwnPool};
use super::{Assumption, code, row, size, takes, when};
use crate::calls;
use crate::gpu::Gpu;
use crate::raw::{self, LEGACY, Outcome};

const MIB: usize = 1 << 20;

pub(super) const ROWS: &[Assumption] = &[
    row("pool: sizes are rounded up to multiples of", "512 bytes", rounding),
    row("pool: a block of 0 bytes, and USED", "code 0, 512 bytes", nothing),
    row("pool: USED falls after cuMemFreeAsync on an idle stream", "at once", |gpu| falls(gpu, Held::free)),
    row("pool: USED falls after cuMemFree_v2", "at once", |gpu| falls(gpu, |block| block.freed_by(raw::free))),
    row("pool: an empty one grows for 1 MiB by", "32 MiB", |gpu| grows(gpu, MIB)),
    row("pool: an empty one grows for 33 MiB by", "64 MiB", |gpu| grows(gpu, 33 * MIB)),
    row("pool: an empty one grows for 65 MiB by", "96 MiB", |gpu| grows(gpu, 65 * MIB)),
    row("pool: with 20 MiB of 32 in use it grows for 20 MiB by", "32 MiB", |gpu| {
        let _first = Held::pool(20 * MIB)?;
        let before = gpu.reserved();
        let _second = Held::pool(20 * MIB)?;
        Ok(size(gpu.reserved() - before))
    }),
    row("pool: growth for 1 MiB, by cuMemGetInfo", "32 MiB", |_| {
        takes(|| Held::pool(MIB)).map(|(bytes, _block)| size(bytes))
    }),
    row("pool: 20 MiB freed on a stream, 20 MiB for another: RESERVED", "32 MiB", |gpu| {
        Held::pool(20 * MIB)?.free()?;
        let other = Made::new(Made::APART)?;
        let block = raw::alloc_async(20 * MIB, other.0)?;
        let reserved = gpu.reserved();
        raw::free_async(block, other.0)?;
        Ok(size(reserved))
    }),
    row("pool: one of two segments unused: RESERVED when synchronised", "32 MiB", |gpu| {
        let (first, _second) = (Held::pool(20 * MIB)?, Held::pool(20 * MIB)?);
        first.free()?;
        gpu.context.synchronize().map_err(|error| error.0)?;
        Ok(size(gpu.reserved()))
    }),
    row("pool: RESERVED when all was freed, not synchronised", "32 MiB", |gpu| left(gpu, || Ok(()))),
    row("pool: RESERVED after cuStreamSynchronize", "0 MiB", |gpu| left(gpu, || raw::synchronise(LEGACY))),
    row("pool: RESERVED after cuEventSynchronize", "0 MiB", |gpu| left(gpu, event)),
    row("pool: RESERVED after cuCtxSynchronize", "0 MiB", |gpu| left(gpu, calls::synchronise_all)),
    row("pool: RESERVED after a trim to 0 without a synchronise", "0 MiB", |gpu| {
        left(gpu, || raw::pool_trim(gpu.pool, 0))
    }),
    row("pool: release threshold of the default one", "0 MiB", |gpu| {
        calls::pool_attribute(gpu.pool, THRESHOLD).map(size)
    }),
    row("pool: release threshold of a new one", "0 MiB", |_| {
        calls::pool_attribute(OwnPool::new()?.0, THRESHOLD).map(size)
    }),
    row("pool: three unused segments of 32 MiB, threshold 40 MiB: kept", "64 MiB", threshold),
    row("pool: three unused segments, trimmed to 32 MiB: which stays", "the lowest", stays),
    row("pool: cuMemPoolDestroy of the default one", "code 1", |gpu| Ok(code(raw::pool_destroy(gpu.pool)))),
    row("pool: destroyed before its block: destroy, free", "code 0, code 0", destroyed),
    row("pool: the current one is destroyed; current is then", "the default one", current),
];

/// The unit that explains the size of every block, or the sizes that it does not explain.
fn rounding(gpu: &Gpu) -> Outcome<String> {
    let mut moved = Vec::new();
    for size in [1, 257, 513, 1000, 4097, 65_537, MIB + 1] {
        let before = gpu.used();
        let _block = Held::pool(size)?;
        moved.push((size as u64, gpu.used().saturating_sub(before)));
    }
    let unit = 1u64 << moved.iter().fold(0, |all, (_, used)| all | used).trailing_zeros().min(21);
    let others = moved.iter().filter(|(size, used)| size.next_multiple_of(unit) != *used).count();
    Ok(if others == 0 { size(unit) } else { format!("{}, {others} of 7 take more", size(unit)) })
}

fn nothing(gpu: &Gpu) -> Outcome<String> {
    let before = gpu.used();
    let block = Held::pool(0);
    let used = gpu.used() - before;
    let answer = code(block.as_ref().map_err(|code| *code).map(|_| ()));
    Ok(format!("{answer}, {}", size(used)))
}

fn falls(gpu: &Gpu, free: impl FnOnce(Held) -> Outcome<()>) -> Outcome<String> {
    let block = Held::pool(1000)?;
    gpu.context.synchronize().map_err(|error| error.0)?;
    free(block)?;
    when(gpu, || Ok(gpu.used()), 0)
}

fn grows(gpu: &Gpu, size_of_block: usize) -> Outcome<String> {
    let _block = Held::pool(size_of_block)?;
    Ok(size(gpu.reserved()))
}

/// RESERVED after a free and a further action.
fn left(gpu: &Gpu, act: impl FnOnce() -> Outcome<()>) -> Outcome<String> {
    let block = Held::pool(MIB)?;
    gpu.context.synchronize().map_err(|error| error.0)?;
    block.free()?;
    act()?;
    Ok(size(gpu.reserved()))
}

fn event() -> Outcome<()> {
    let event = calls::event(0)?;
    let waited = calls::event_record(event, LEGACY).and_then(|()| calls::event_synchronise(event));
    calls::event_destroy(event)?;
    waited
}

/// The start addresses of three segments of 32 MiB without blocks.
fn three_unused(gpu: &Gpu) -> Outcome<Vec<u64>> {
    let blocks = [(); 3].map(|()| Held::pool(20 * MIB));
    let bases = blocks.iter().map(|block| block.as_ref().map_err(|code| *code)?.word(BASE));
    let bases = bases.collect::<Outcome<_>>()?;
    gpu.context.synchronize().map_err(|error| error.0)?;
    Ok(bases)
}

fn threshold(gpu: &Gpu) -> Outcome<String> {
    let before = calls::pool_attribute(gpu.pool, THRESHOLD)?;
    three_unused(gpu)?;
    calls::set_threshold(gpu.pool, 40 << 20)?;
    let waited = calls::synchronise_all();
    calls::set_threshold(gpu.pool, before)?;
    waited?;
    Ok(size(gpu.reserved()))
}

fn stays(gpu: &Gpu) -> Outcome<String> {
    let mut bases = three_unused(gpu)?;
    raw::pool_trim(gpu.pool, 32 << 20)?;
    let left = gpu.reserved();
    if left != 32 << 20 {
        return Ok(format!("{} stay", size(left)));
    }
    bases.sort_unstable();
    // The pool has no other gap for it.
    let base = Held::pool(20 * MIB)?.word(BASE)?;
    let names = ["the lowest", "the middle one", "the highest"];
    let at = bases.iter().position(|other| *other == base);
    Ok(at.and_then(|at| names.get(at)).map_or("another one".to_owned(), |name| (*name).to_owned()))
}

fn destroyed(_gpu: &Gpu) -> Outcome<String> {
    let pool = OwnPool::new()?;
    let block = Held::of_pool(1000, pool.0)?;
    let destroyed = code(raw::pool_destroy(pool.0));
    std::mem::forget(pool);
    Ok(format!("{destroyed}, {}", code(block.free())))
}

fn current(gpu: &Gpu) -> Outcome<String> {
    let pool = OwnPool::new()?;
    calls::choose_pool(0, pool.0)?;
    drop(pool);
    let now = calls::current_pool(0);
    calls::choose_pool(0, gpu.pool)?;
    Ok(if now? == gpu.pool { "the default one" } else { "another one" }.to_owned())
}
