//! The program's own pools: creation, choice, trimming, destruction.

use cudarc::driver::sys::{CUmemPool_attribute as Attribute, CUmemoryPool};
use memtrace::snapshot::DeviceMemory;

use crate::calls;
use crate::gpu::{GPU, Gpu};
use crate::raw::{self, LEGACY, Outcome};
use crate::table::Table;
use crate::watch::{self, came_and_went, watch};

const MIB: usize = 1 << 20;

pub(crate) fn rows(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    watch(table, "cuMemPoolCreate, …Destroy: a block of it", || {
        let pool = calls::own_pool()?;
        raw::free_async(raw::alloc_from_pool(3100, pool, LEGACY)?, LEGACY)?;
        raw::synchronise(LEGACY)?;
        raw::pool_destroy(pool)?;
        came_and_went(GPU, 3100)
    });
    watch(table, "cuDeviceSetMemPool: a block of that pool", || {
        let pool = calls::own_pool()?;
        calls::choose_pool(0, pool)?;
        let block = raw::alloc_async(3200, LEGACY);
        calls::choose_pool(0, gpu.pool)?;
        raw::free_async(block?, LEGACY)?;
        raw::synchronise(LEGACY)?;
        raw::pool_destroy(pool)?;
        came_and_went(GPU, 3200)
    });
    counted(table)?;
    with_live_block(table)
}

/// Compares a snapshot's numbers of the program's pools with the driver's.
fn counted(table: &mut Table) -> Outcome<()> {
    let session = watch::recording();
    let pool = calls::own_pool()?;
    let block = raw::alloc_from_pool(5 * MIB, pool, LEGACY)?;
    let seen = || session.snapshot().device(GPU).and_then(|gpu| gpu.memory).unwrap_or_default();
    let held = (of_own(seen()), says(pool)?);
    raw::free_async(block, LEGACY)?;
    raw::synchronise(LEGACY)?;
    raw::pool_trim(pool, 0)?;
    let trimmed = (of_own(seen()), says(pool)?);
    raw::pool_destroy(pool)?;
    let destroyed = seen().own_pools;
    let right = held.0 == held.1 && trimmed.0 == trimmed.1 && destroyed == 0;
    let text = |(seen, says): ((u64, u64, u64), (u64, u64, u64))| format!("{seen:?}, driver {says:?}");
    let detail = format!(
        "(pools, USED, RESERVED) with a block of 5 MiB: {}\nfreed and trimmed: {}; destroyed: {destroyed} pools",
        text(held),
        text(trimmed)
    );
    table.check("own pools in a snapshot", right, detail);
    Ok(())
}

fn of_own(memory: DeviceMemory) -> (u64, u64, u64) {
    (memory.own_pools, memory.own_pools_used, memory.own_pools_reserved)
}

fn says(pool: CUmemoryPool) -> Outcome<(u64, u64, u64)> {
    let used = calls::pool_attribute(pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
    Ok((1, used, calls::pool_attribute(pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?))
}

/// A pool is destroyed while one of its blocks is live. Whatever the driver does, the ledger must agree.
fn with_live_block(table: &mut Table) -> Outcome<()> {
    let session = watch::recording();
    let pool = calls::own_pool()?;
    let block = raw::alloc_from_pool(3300, pool, LEGACY)?;
    let live = || memtrace::stats(GPU).allocated_bytes.current;
    let destroyed = raw::pool_destroy(pool);
    let between = live();
    let freed = raw::free_async(block, LEGACY);
    raw::synchronise(LEGACY)?;
    let after = live();
    let right = after == if freed.is_ok() { 0 } else { 3300 };
    let detail = format!("destroyed {destroyed:?}, ledger {between} bytes; freed {freed:?}, ledger {after} bytes");
    table.check("a pool destroyed before its block", right, detail);
    drop(session);
    Ok(())
}
