//! Sharing of pools between processes, and pools by location.

use super::abi::{ALLOCATION_MANAGED, ALLOCATION_PINNED, LOCATION_DEVICE, LOCATION_LAST, Out, answer};
use super::call::allocating;
use super::pool::{cuDeviceGetDefaultMemPool, cuDeviceGetMemPool, cuDeviceSetMemPool};
use super::process::with;
use super::shareable;
use super::thread::current;
use super::virtual_memory::Location;
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED, demand, demand_or};
use crate::machine::Ticket;
use crate::own::PAGE;

driver! {
    fn cuMemPoolExportToShareableHandle(file: Out<i32>, pool: u64, kind: u32, flags: u64) {
        file.check()?;
        let handles = with(|machine| Ok(machine.pool_data(pool)?.handles))?;
        demand_or(kind == shareable::FILE, NOT_SUPPORTED)?;
        demand(handles & kind != 0 && flags == 0)?;
        file.set(shareable::export(pool, PAGE as u64)?)
    }

    /// The file descriptor is passed as a pointer. Which pool the file names makes no difference.
    fn cuMemPoolImportFromShareableHandle(pool: Out<u64>, file: usize, kind: u32, flags: u64) {
        demand_or(kind == shareable::FILE, NOT_SUPPORTED)?;
        demand(flags == 0)?;
        shareable::read(file as i32)?;
        let context = current()?;
        with(|machine| {
            let device = machine.context(context)?.device;
            pool.set(machine.create_pool(device, 0, true))
        })
    }

    fn cuMemPoolExportPointer(data: Out<Ticket>, address: u64) =>
        with(|machine| data.set(machine.ticket_of_pool(address)?));

    fn cuMemPoolImportPointer(address: Out<u64>, pool: u64, data: Out<Ticket>) =>
        allocating(address, |machine, context| machine.import_pointer(pool, data.get()?, context));
    fn cuMemGetDefaultMemPool(pool: Out<u64>, location: Out<Location>, allocation: u32) =>
        answer(cuDeviceGetDefaultMemPool(pool, device_of(location, allocation)?));
    fn cuMemGetMemPool(pool: Out<u64>, location: Out<Location>, allocation: u32) =>
        answer(cuDeviceGetMemPool(pool, device_of(location, allocation)?));
    fn cuMemSetMemPool(location: Out<Location>, allocation: u32, pool: u64) =>
        answer(cuDeviceSetMemPool(device_of(location, allocation)?, pool));
}

/// The device of a location. Pools of managed and of host memory are not simulated.
fn device_of(location: Out<Location>, allocation: u32) -> Answer<i32> {
    let Location { kind, device } = location.get()?;
    match (allocation, kind) {
        (ALLOCATION_PINNED, LOCATION_DEVICE) => Ok(device),
        (ALLOCATION_PINNED, 1..=LOCATION_LAST) | (ALLOCATION_MANAGED, ..=LOCATION_LAST) => Err(NOT_SUPPORTED),
        _ => Err(INVALID_VALUE),
    }
}
