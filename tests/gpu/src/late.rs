//! A recording that starts while memory is in use.

use memtrace::Session;
use memtrace::analysis::pool_balance;

use crate::gpu::{GPU, Gpu};
use crate::raw::{self, LEGACY, Outcome};
use crate::table::Table;
use crate::watch;

pub(crate) fn rows(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    gpu.settle();
    let blocks = [1000, 5000, (1 << 20) + 1].map(|size| raw::alloc_async(size, LEGACY));
    let [small, medium, large] = blocks;
    let classic = raw::alloc(3000)?;
    let used = gpu.used();
    let session = watch::recording();
    let recorded = raw::alloc_async(700, LEGACY)?;
    let before = before(&session);
    let detail =
        format!("{} bytes, pool USED was {used}", before.map_or("unknown".to_owned(), |bytes| bytes.to_string()));
    table.check("late: in use before", before == Some(used), detail);
    raw::free_async(medium?, LEGACY)?;
    raw::free(large?)?;
    raw::free_async(recorded, LEGACY)?;
    gpu.context.synchronize().expect("the GPU works");
    freed(gpu, &session, table);
    raw::free(classic)?;
    let unknown = session.snapshot().health.unknown_frees;
    table.check(
        "late: a classic block's free",
        unknown == 3,
        format!("{unknown} of 3 frees counted as of unknown blocks"),
    );
    raw::free_async(small?, LEGACY)?;
    gpu.settle();
    Ok(())
}

fn before(session: &Session) -> Option<u64> {
    session.snapshot().device(GPU)?.pool?.used_before
}

/// In the end, only what is left of it is in use in the pool.
fn freed(gpu: &Gpu, session: &Session, table: &mut Table) {
    let snapshot = session.snapshot();
    let device = snapshot.device(GPU).expect("it was recorded");
    let (left, used, unknown) = (device.not_recorded, gpu.used(), snapshot.health.unknown_frees);
    let rest = pool_balance(device).map(|balance| balance.rest);
    let right = (left, unknown, rest) == (used, 2, Some(0));
    let rest = rest.map_or("unknown".to_owned(), |rest| format!("{rest} bytes"));
    let detail = format!(
        "left {left} bytes, pool USED {used}, not explained {rest}; {unknown} of 2 frees counted as of unknown blocks"
    );
    table.check("late: frees of blocks from before", right, detail);
}
