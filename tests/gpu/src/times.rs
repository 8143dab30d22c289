//! Time in allocation calls according to the recording, and the cost of a growing pool.

use cudarc::driver::sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD as THRESHOLD;
use cudarc::driver::sys::CUmemoryPool;
use memtrace::Snapshot;
use memtrace::analysis::{churn, time_in_driver};
use memtrace::snapshot::{CallTime, DeviceSnapshot};

use crate::calls;
use crate::gpu::{GPU, Gpu};
use crate::raw::{self, LEGACY, Outcome};
use crate::table::Table;
use crate::watch;

const MIB: usize = 1 << 20;
const PAIRS: u64 = 200;
const STEPS: u64 = 10;

pub(crate) fn rows(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    gpu.settle();
    // While a block is in use the pool keeps its reserved memory.
    let held = raw::alloc_async(MIB, LEGACY)?;
    pairs(table, "time: pool, 4 KiB", || raw::free_async(raw::alloc_async(4096, LEGACY)?, LEGACY))?;
    pairs(table, "time: classic, 4 KiB", || raw::free(raw::alloc(4096)?))?;
    pairs(table, "time: classic, 4 MiB", || raw::free(raw::alloc(4 * MIB)?))?;
    raw::free_async(held, LEGACY)?;
    gpu.settle();
    let threshold = Threshold::of(gpu.pool)?;
    for (name, bytes) in [("time: release threshold 0", 0), ("time: release threshold u64::MAX", u64::MAX)] {
        threshold.set(bytes)?;
        growth(gpu, table, name)?;
    }
    drop(threshold);
    gpu.settle();
    Ok(())
}

/// A changed attribute of a pool, which is restored on drop.
struct Threshold {
    pool: CUmemoryPool,
    before: u64,
}

impl Threshold {
    fn of(pool: CUmemoryPool) -> Outcome<Self> {
        Ok(Self { pool, before: calls::pool_attribute(pool, THRESHOLD)? })
    }

    fn set(&self, bytes: u64) -> Outcome<()> {
        calls::set_threshold(self.pool, bytes)
    }
}

impl Drop for Threshold {
    fn drop(&mut self) {
        let _ = self.set(self.before);
    }
}

/// The recorded time of calls that found memory in the pool, or took it from the device.
fn pairs(table: &mut Table, name: &str, pair: impl Fn() -> Outcome<()>) -> Outcome<()> {
    let session = watch::recording();
    (0..PAIRS).try_for_each(|_| pair())?;
    let snapshot = session.snapshot();
    let time = time_in_driver(device(&snapshot));
    let counted = (time.allocs, time.frees) == (PAIRS, PAIRS);
    let each = |ns: u64, calls: u64| ns / calls.max(1);
    let (alloc, free) = (each(time.alloc_ns, time.allocs), each(time.free_ns, time.frees));
    let detail = format!("{} + {} calls; {alloc} ns an allocation, {free} ns a free", time.allocs, time.frees);
    if counted {
        table.info(name, detail)
    } else {
        table.check(name, false, format!("{detail}; {PAIRS} were made"))
    }
    Ok(())
}

fn device(snapshot: &Snapshot) -> &DeviceSnapshot {
    snapshot.device(GPU).expect("it was recorded")
}

/// A program that frees everything and synchronizes at each step.
fn growth(gpu: &Gpu, table: &mut Table, name: &str) -> Outcome<()> {
    let session = watch::recording();
    for _ in 0..STEPS {
        raw::free_async(raw::alloc_async(40 * MIB, LEGACY)?, LEGACY)?;
        gpu.context.synchronize().expect("the GPU works");
    }
    let snapshot = session.snapshot();
    let device = device(&snapshot);
    let sum = |of: fn(&CallTime) -> u64| device.calls.iter().map(of).sum::<u64>();
    let (growing, growing_ns) = (sum(|time| time.growing), sum(|time| time.growing_ns));
    let (allocs, alloc_ns) = (sum(|time| time.allocs), sum(|time| time.alloc_ns));
    let others = match allocs - growing {
        0 => String::new(),
        others => format!(", {} ns each of the others", (alloc_ns - growing_ns) / others),
    };
    let again = churn(device).map_or(0, |churn| churn.bytes >> 20);
    let each = growing_ns / growing.max(1);
    let grew = format!("{growing} of {allocs} allocations of 40 MiB took memory of the device, {each} ns each{others}");
    let detail = format!("{grew}\n{again} MiB were taken that the pool had before");
    table.info(name, detail);
    Ok(())
}
