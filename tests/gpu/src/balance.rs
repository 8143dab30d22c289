//! The balance of a device's memory: the sum of its rows must be what the driver reports as taken.

use std::sync::Arc;

use cudarc::driver::CudaContext;
use memtrace::analysis::{Balance, BalanceItem, NeedRow, balance};
use memtrace::{Device, DeviceView, Session};

use crate::gpu::Gpu;
use crate::graphs::{done, holding};
use crate::raw::{self, LEGACY, Outcome};
use crate::table::Table;
use crate::{calls, watch};

const MIB: usize = 1 << 20;

pub(crate) fn rows(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    gpu.settle();
    first(gpu, table)?;
    match calls::device_count()? {
        1 => table.info("balance of a second device", "there is none: not tried"),
        _ => second(table)?,
    }
    gpu.context.bind_to_thread().expect("the primary context is a live one");
    Ok(())
}

/// Blocks of each kind that this device supports.
fn first(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    let session = watch::recording();
    let blocks = [1000, 3 * MIB + 1].map(|size| raw::alloc_async(size, LEGACY));
    let classic = raw::alloc(MIB + 1)?;
    let own = calls::own_pool()?;
    let of_own = raw::alloc_from_pool(5000, own, LEGACY)?;
    let physical = calls::granularity().and_then(|size| raw::physical(size, 0));
    let array = raw::array(&mut [256, 256, 0x20 | 1 << 32]);
    let graph = holding(2 * MIB as u64, LEGACY);
    calls::synchronise_all()?;
    judge("the first device", &session, 0, table)?;
    if let Ok(((graph, program), address)) = graph {
        raw::free_async(address, LEGACY)?;
        done(graph, program, LEGACY)?;
        calls::trim_graphs(0)?;
    }
    array.into_iter().try_for_each(raw::array_destroy)?;
    physical.into_iter().try_for_each(raw::release_physical)?;
    raw::free_async(of_own, LEGACY)?;
    raw::synchronise(LEGACY)?;
    raw::pool_destroy(own)?;
    raw::free(classic)?;
    blocks.into_iter().try_for_each(|block| raw::free_async(block?, LEGACY))?;
    gpu.settle();
    Ok(())
}

fn second(table: &mut Table) -> Outcome<()> {
    let session = watch::recording();
    let context: Arc<CudaContext> = CudaContext::new(1).map_err(|error| error.0)?;
    let (pool, classic) = (raw::alloc_async(2 * MIB + 1, LEGACY)?, raw::alloc(5000)?);
    calls::synchronise_all()?;
    judge("a second device", &session, 1, table)?;
    raw::free(classic)?;
    raw::free_async(pool, LEGACY)?;
    context.synchronize().map_err(|error| error.0)?;
    raw::pool_trim(raw::default_pool(1)?, 0)
}

/// Three tries, because other processes may take memory meanwhile.
fn judge(which: &str, session: &Session, ordinal: u32, table: &mut Table) -> Outcome<()> {
    let mut found = (None, 0);
    for _ in 0..3 {
        let before = calls::taken()?;
        let snapshot = session.snapshot();
        let device = snapshot.device(Device::Cuda(ordinal));
        found = (device.and_then(|device| balance(&DeviceView::of(&snapshot, device))), before);
        if found.0.as_ref().is_some_and(|balance| balance.used == before) {
            break;
        }
    }
    let name = format!("balance of {which}");
    match found {
        (Some(balance), taken) => add(&name, &balance, taken, table),
        (None, _) => table.check(&name, false, "the driver could not be asked"),
    }
    Ok(())
}

fn add(name: &str, balance: &Balance, taken: u64, table: &mut Table) {
    let sum: i64 = balance.rows.iter().map(|row| row.bytes).sum();
    let bytes_of = |item| balance.rows.iter().find(|row| row.item == item).map_or(0, |row| row.bytes);
    let (unexplained, not_seen) = (bytes_of(BalanceItem::Unexplained), bytes_of(BalanceItem::NotSeen));
    let right = sum == taken as i64 && unexplained >= 0 && not_seen == 0;
    let rows: Vec<String> = balance.rows.iter().map(|row| format!("{}: {}", words(&row.item), row.bytes)).collect();
    let lines: Vec<String> = rows.chunks(4).map(|few| few.join(", ")).collect();
    table.check(name, right, format!("rows sum to {sum}, cuMemGetInfo says {taken} taken\n{}", lines.join("\n")));
    let part = |part: &NeedRow| format!("{}: {} to {}", part.what, part.low, part.high);
    let parts: Vec<String> = balance.unexplained.iter().map(part).collect();
    let none = "no parts: less than a context is assumed to take";
    let text = if parts.is_empty() { none.to_owned() } else { parts.join(", ") };
    table.info(&format!("{name}: the unexplained {unexplained}"), text);
}

fn words(item: &BalanceItem) -> String {
    match item {
        BalanceItem::Live(kind) => format!("live {kind:?}").to_lowercase(),
        BalanceItem::Library(name) => format!("library {name}"),
        BalanceItem::Unexplained => "unexplained (contexts, modules, other processes)".to_owned(),
        BalanceItem::NotSeen => "in use by the pools and not seen".to_owned(),
        BalanceItem::PoolSlack => "unused in the pools".to_owned(),
        BalanceItem::GraphSlack => "unused by graphs".to_owned(),
        BalanceItem::ClassicSlack => "unused in classic segments".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    }
}
