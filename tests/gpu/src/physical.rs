//! Memory with a handle and without an address: physical memory, arrays.

use cudarc::driver::sys::CUdevice_attribute as Attribute;

use crate::gpu::{GPU, needs};
use crate::raw::{self, Outcome};
use crate::table::Table;
use crate::watch::{Did, came_and_went, watch};
use crate::{calls, sharing};

pub(crate) fn rows(table: &mut Table) -> Outcome<()> {
    watch(table, "cuMemCreate, cuMemRelease", || {
        let size = step()?;
        raw::release_physical(raw::physical(size, 0)?)?;
        came_and_went(GPU, size as i64)
    });
    watch(table, "cuMemMap, cuMemUnmap: the last one frees", mapped);
    watch(table, "cuMemRetainAllocationHandle", retained);
    watch(table, "cuMemImportFromShareableHandle, own", imported);
    arrays(table);
    Ok(())
}

/// The smallest size of physical memory.
fn step() -> Outcome<usize> {
    needs(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?;
    calls::granularity()
}

/// The handle is released first, so that the mapping is the last reference to the memory.
fn mapped() -> Outcome<Did> {
    let size = step()?;
    let handle = raw::physical(size, 0)?;
    let address = raw::reserve(size, 0, 0, 0)?;
    raw::map(address, size, 0, handle, 0)?;
    raw::release_physical(handle)?;
    assert_eq!(memtrace::stats(GPU).allocated_bytes.current, size as u64, "it is mapped");
    raw::unmap(address, size)?;
    calls::free_addresses(address, size)?;
    came_and_went(GPU, size as i64)
}

fn retained() -> Outcome<Did> {
    let size = step()?;
    let handle = raw::physical(size, 0)?;
    let address = raw::reserve(size, 0, 0, 0)?;
    raw::map(address, size, 0, handle, 0)?;
    let again = raw::retain_physical(address)?;
    raw::unmap(address, size)?;
    raw::release_physical(handle)?;
    assert_eq!(memtrace::stats(GPU).allocated_bytes.current, size as u64, "there is a handle");
    raw::release_physical(again)?;
    calls::free_addresses(address, size)?;
    came_and_went(GPU, size as i64)
}

/// This process imports its own exported memory: that is one block, not two.
fn imported() -> Outcome<Did> {
    let size = step()?;
    let handle = sharing::physical(size)?;
    let file = sharing::export_physical(handle)?;
    let again = raw::import_physical(file);
    sharing::close(file);
    raw::release_physical(again?)?;
    raw::release_physical(handle)?;
    came_and_went(GPU, size as i64)
}

const FLOAT: u64 = 0x20;

fn arrays(table: &mut Table) {
    watch(table, "cuArrayCreate_v2, cuArrayDestroy", || {
        raw::array_destroy(raw::array(&mut [100, 50, FLOAT | 4 << 32])?)?;
        came_and_went(GPU, 100 * 50 * 16)
    });
    watch(table, "cuArray3DCreate_v2", || {
        raw::array_destroy(raw::deep_array(&mut [16, 16, 16, FLOAT | 1 << 32, 0])?)?;
        came_and_went(GPU, 16 * 16 * 16 * 4)
    });
    watch(table, "cuMipmappedArrayCreate, …Destroy", || {
        raw::mipmapped_array_destroy(raw::mipmapped_array(&mut [64, 64, 0, FLOAT | 1 << 32, 0], 3)?)?;
        came_and_went(GPU, 4 * (64 * 64 + 32 * 32 + 16 * 16))
    });
}
