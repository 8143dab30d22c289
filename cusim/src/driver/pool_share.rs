//! Sharing of pools between processes, and pools by location.

use super::abi::{Out, answer};
use super::call::allocating;
use super::pool::{cuDeviceGetDefaultMemPool, cuDeviceGetMemPool, cuDeviceSetMemPool, place_of};
use super::process::with;
use super::shareable;
use super::thread::current;
use super::virtual_memory::Location;
use crate::SimMachine;
use crate::code::{Answer, Code, NOT_SUPPORTED, demand, demand_or};
use crate::machine::Ticket;
use crate::memory::PoolPlace;
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
        at_location((location, allocation), |device| cuDeviceGetDefaultMemPool(pool, device), |machine, place| {
            pool.set(machine.pools_at(place)[0])
        });
    fn cuMemGetMemPool(pool: Out<u64>, location: Out<Location>, allocation: u32) =>
        at_location((location, allocation), |device| cuDeviceGetMemPool(pool, device), |machine, place| {
            pool.set(machine.pools_at(place)[1])
        });
    fn cuMemSetMemPool(location: Out<Location>, allocation: u32, pool: u64) =>
        at_location((location, allocation), |device| cuDeviceSetMemPool(device, pool), |machine, place| {
            machine.set_current_pool_at(place, pool)
        });
}

/// Calls `of_device` if the location is a device, and `elsewhere` if it is another place with pools.
fn at_location(
    (location, allocation): (Out<Location>, u32),
    of_device: impl FnOnce(i32) -> Code,
    elsewhere: impl FnOnce(&mut SimMachine, PoolPlace) -> Answer,
) -> Answer {
    let location = location.get()?;
    match place_of(allocation, location)? {
        Some(place) => with(|machine| {
            demand_or(machine.config.pools, NOT_SUPPORTED)?;
            elsewhere(machine, place)
        }),
        None => answer(of_device(location.device)),
    }
}
