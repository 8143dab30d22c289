//! Virtual memory management: physical memory with a handle, address ranges, and mappings.

use super::abi::{ALLOCATION_PINNED, LOCATION_DEVICE, LOCATION_LAST, Out};
use super::process::{pause, with};
use super::shareable;
use super::thread::current;
use crate::SimMachine;
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED, demand, demand_or};
use crate::faults::CallKind;
use crate::history::BlockKind;
use crate::machine::{Access, AllocationProperties, GRANULARITY};

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Location {
    pub(super) kind: u32,
    pub(super) device: i32,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct AccessDescription {
    location: Location,
    flags: u32,
}

driver! {
    fn cuMemCreate(handle: Out<u64>, size: usize, properties: Out<AllocationProperties>, flags: u64) {
        pause(CallKind::Alloc);
        handle.check()?;
        let properties = check_properties(properties)?;
        demand(flags == 0)?;
        let context = current().unwrap_or(0);
        handle.set_with(|machine| machine.create_virtual(BlockKind::Virtual, size as u64, properties, context))
    }

    fn cuMemRelease(handle: u64) {
        pause(CallKind::Free);
        let context = current().unwrap_or(0);
        with(|machine| machine.release_virtual(handle, context))
    }

    fn cuMemRetainAllocationHandle(handle: Out<u64>, address: u64) {
        with(|machine| {
            let found = machine.mapped_at(address)?;
            handle.check()?;
            handle.set(machine.retain_virtual(found)?)
        })
    }

    fn cuMemGetAllocationPropertiesFromHandle(properties: Out<AllocationProperties>, handle: u64) =>
        with(|machine| properties.set(machine.virtual_memory(handle)?.properties));

    fn cuMemGetAllocationGranularity(granularity: Out<usize>, properties: Out<AllocationProperties>, option: u32) {
        check_properties(properties)?;
        if option > 1 { Err(INVALID_VALUE) } else { granularity.set(GRANULARITY as usize) }
    }

    fn cuMemAddressReserve(address: Out<u64>, size: usize, alignment: usize, _hint: u64, flags: u64) {
        address.check()?;
        demand(flags == 0)?;
        address.set_with(|machine| machine.reserve_addresses(size as u64, alignment as u64))
    }

    fn cuMemAddressFree(address: u64, size: usize) => with(|machine| machine.free_addresses(address, size as u64));

    /// According to `cuda.h`, `offset` must be zero.
    fn cuMemMap(address: u64, size: usize, offset: usize, handle: u64, flags: u64) {
        demand(offset == 0 && flags == 0)?;
        let context = current().unwrap_or(0);
        with(|machine| machine.map(address, size as u64, handle, context))
    }

    fn cuMemUnmap(address: u64, size: usize) {
        let context = current().unwrap_or(0);
        with(|machine| machine.unmap(address, size as u64, context))
    }

    fn cuMemSetAccess(address: u64, size: usize, descriptions: Out<AccessDescription>, count: usize) {
        with(|machine| {
            for index in 0..count {
                let AccessDescription { location, flags } = descriptions.at(index).get()?;
                set_access(machine, (address, size as u64), location, u64::from(flags))?;
            }
            Ok(())
        })
    }

    fn cuMemGetAccess(flags: Out<u64>, location: Out<Location>, address: u64) {
        let Location { kind, device } = location.get()?;
        with(|machine| {
            let device = if kind == LOCATION_DEVICE { machine.device(device)? } else { return Err(INVALID_VALUE) };
            flags.set(machine.access(address, device)?)
        })
    }

    fn cuMemExportToShareableHandle(to: Out<i32>, handle: u64, kind: u32, flags: u64) {
        to.check()?;
        let memory = with(|machine| machine.virtual_memory(handle))?;
        demand_or(kind == shareable::FILE, NOT_SUPPORTED)?;
        demand(memory.properties.handles & kind != 0 && flags == 0)?;
        to.set(shareable::export(handle, memory.size)?)
    }

    /// The file descriptor is passed as a pointer.
    fn cuMemImportFromShareableHandle(handle: Out<u64>, file: usize, kind: u32) {
        pause(CallKind::Alloc);
        handle.check()?;
        demand_or(kind == shareable::FILE, NOT_SUPPORTED)?;
        let found = shareable::read(file as i32)?;
        let context = current().unwrap_or(0);
        handle.set_with(|machine| match found.handle {
            Some(own) => machine.retain_virtual(own),
            None => machine.create_virtual(BlockKind::Imported, found.size, of_import(machine, context), context),
        })
    }
}

fn check_properties(properties: Out<AllocationProperties>) -> Answer<AllocationProperties> {
    let given = properties.get()?;
    match (given.allocation, given.location) {
        (ALLOCATION_PINNED, LOCATION_DEVICE) => Ok(given),
        // Host memory is not simulated.
        (ALLOCATION_PINNED, ..=LOCATION_LAST) if given.location > 0 => Err(NOT_SUPPORTED),
        _ => Err(INVALID_VALUE),
    }
}

fn of_import(machine: &SimMachine, context: u64) -> AllocationProperties {
    let device = machine.context(context).map_or(0, |context| context.device as i32);
    let (allocation, location) = (ALLOCATION_PINNED, LOCATION_DEVICE);
    AllocationProperties { allocation, handles: shareable::FILE, location, device, of_windows: 0, flags: 0 }
}

/// Sets access rights. The host's access is not simulated.
fn set_access(machine: &mut SimMachine, (address, size): (u64, u64), location: Location, flags: u64) -> Answer {
    demand(location.kind == LOCATION_DEVICE && matches!(flags, 0 | 1 | Access::READ_AND_WRITE))?;
    let device = machine.device(location.device)?;
    machine.set_access(address, size, device, flags)
}
