//! Memory pools (stream-ordered allocation).

use super::abi::{
    ALLOCATION_MANAGED, ALLOCATION_PINNED, LOCATION_DEVICE, LOCATION_HOST, LOCATION_HOST_NUMA, LOCATION_NONE, Out,
};
use super::process::{with, with_device};
use super::thread::{mode, number};
use super::virtual_memory::Location;
use crate::SimMachine;
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED, demand, demand_or};
use crate::history::BlockKind;
use crate::memory::{PoolPlace, SimPool};

/// The first fields of `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct PoolProperties {
    allocation: u32,
    handles: u32,
    location: u32,
    device: i32,
}

driver! {
    fn cuDeviceGetDefaultMemPool(pool: Out<u64>, device: i32) =>
        with_device(device, |machine, device| pool.set(machine.default_pool(device)));
    fn cuDeviceGetMemPool(pool: Out<u64>, device: i32) =>
        with_device(device, |machine, device| pool.set(machine.current_pool(device)));
    fn cuDeviceSetMemPool(device: i32, pool: u64) =>
        with_device(device, |machine, device| machine.set_current_pool(device, pool));

    fn cuMemPoolCreate(pool: Out<u64>, properties: Out<PoolProperties>) {
        let PoolProperties { allocation, handles, location, device } = properties.get()?;
        if let Some(place) = place_of(allocation, Location { kind: location, device })? {
            // A pool of the host whose location names no NUMA node cannot be shared. All other pools here can.
            demand(handles == 0 || location != LOCATION_HOST)?;
            return with(|machine| {
                demand_or(machine.config.pools, NOT_SUPPORTED)?;
                pool.set(machine.create_pool_at(place, handles))
            });
        }
        with_device(device, |machine, device| {
            demand_or(machine.config.pools, NOT_SUPPORTED)?;
            pool.set(machine.create_pool(device, handles, false))
        })
    }

    fn cuMemPoolDestroy(pool: u64) => with(|machine| machine.destroy_pool(pool));

    fn cuMemPoolTrimTo(pool: u64, keep: usize) =>
        without_captures(|machine| machine.trim(pool, keep as u64));

    fn cuMemPoolGetAttribute(pool: u64, attribute: u32, value: Out<u64>) =>
        without_captures(|machine| get_attribute(machine.pool_data(pool)?, attribute, value));

    fn cuMemPoolSetAttribute(pool: u64, attribute: u32, value: Out<u64>) =>
        without_captures(|machine| set_attribute(machine.pool_data_mut(pool)?, attribute, value));

    fn cuMemPoolSetAccess(pool: u64, _descriptions: usize, _count: usize) =>
        with(|machine| machine.pool_data(pool).map(|_| ()));

    fn cuMemPoolGetAccess(flags: Out<u32>, pool: u64, _location: usize) {
        with(|machine| machine.pool_data(pool).map(|_| ()))?;
        flags.set(READ_AND_WRITE)
    }
}

/// Where the memory of a pool is; `None` for the memory of the location's device. For a location that pools cannot have,
/// the documentation of `cuMemPoolCreate` states an invalid value.
pub(super) fn place_of(allocation: u32, Location { kind, device }: Location) -> Answer<Option<PoolPlace>> {
    let place = |of| {
        Ok(Some(PoolPlace {
            kind: of,
            location: (kind, if matches!(kind, LOCATION_NONE | LOCATION_HOST) { 0 } else { device }),
        }))
    };
    match (allocation, kind) {
        (ALLOCATION_PINNED, LOCATION_DEVICE) => Ok(None),
        (ALLOCATION_PINNED, LOCATION_HOST | LOCATION_HOST_NUMA) => place(BlockKind::HostPool),
        (ALLOCATION_MANAGED, ..=LOCATION_HOST_NUMA) => place(BlockKind::ManagedPool),
        _ => Err(INVALID_VALUE),
    }
}

const READ_AND_WRITE: u32 = 3;

const RELEASE_THRESHOLD: u32 = 4;
const RESERVED: u32 = 5;
const RESERVED_HIGH: u32 = 6;
const USED: u32 = 7;
const USED_HIGH: u32 = 8;

/// Runs an action unless a capture forbids it. In that case the call fails, and such captures become invalid.
fn without_captures(action: impl FnOnce(&mut SimMachine) -> Answer) -> Answer {
    with(|machine| {
        machine.check_captures(number(), mode())?;
        action(machine)
    })
}

fn get_attribute(pool: &SimPool, attribute: u32, value: Out<u64>) -> Answer {
    match attribute {
        // Whether blocks are reused across streams: always, in the simulator.
        1..=3 => value.cast::<i32>().set(1),
        RELEASE_THRESHOLD => value.set(pool.threshold),
        RESERVED => value.set(pool.counters.reserved),
        RESERVED_HIGH => value.set(pool.counters.reserved_high),
        USED => value.set(pool.counters.used),
        USED_HIGH => value.set(pool.counters.used_high),
        _ => Err(INVALID_VALUE),
    }
}

/// Sets an attribute. The release threshold can be set, and the high-water marks can be reset.
fn set_attribute(pool: &mut SimPool, attribute: u32, value: Out<u64>) -> Answer {
    match attribute {
        1..=3 => _ = value.cast::<i32>().get()?,
        RELEASE_THRESHOLD => pool.threshold = value.get()?,
        RESERVED_HIGH | USED_HIGH if value.get()? != 0 => return Err(INVALID_VALUE),
        RESERVED_HIGH => pool.counters.reserved_high = pool.counters.reserved,
        USED_HIGH => pool.counters.used_high = pool.counters.used,
        _ => return Err(INVALID_VALUE),
    }
    Ok(())
}
