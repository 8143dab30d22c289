//! Memory of another process.

use std::os::fd::{AsRawFd, OwnedFd};

use cudarc::driver::sys::{CUpointer_attribute, CUresult};
use memtrace::Device;

use crate::exporter::Exporter;
use crate::gpu::pointer_attribute;
use crate::raw::{self, LEGACY, Outcome};
use crate::table::Table;
use crate::watch::{Did, came_and_went, watch};
use crate::{calls, sharing};

/// The only flag, and a required one.
pub(crate) const LAZY_PEER_ACCESS: u32 = 1;

pub(crate) fn rows(table: &mut Table) -> Outcome<()> {
    let exporter = match Exporter::start() {
        Ok(exporter) => exporter,
        Err(reason) => {
            table.info("memory of another process", format!("not tried: {reason}"));
            return Ok(());
        }
    };
    watch(table, "cuIpcOpenMemHandle_v2, …CloseMemHandle", || opened(&exporter));
    const FORBIDDEN: &str = "not tried: the kernel does not hand files of another process over";
    const PHYSICAL: &str = "cuMemImportFromShareableHandle, mapped";
    match exporter.physical() {
        Ok(None) => table.info(PHYSICAL, FORBIDDEN),
        file => watch(table, PHYSICAL, || mapped(&file?.ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?)),
    }
    const POINTER: &str = "cuMemPoolImportPointer, cuMemFreeAsync";
    match exporter.pool() {
        Ok((None, _)) => table.info(POINTER, FORBIDDEN),
        pool => watch(table, POINTER, || {
            let (file, pointer) = pool?;
            of_pool(&file.ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?, pointer)
        }),
    }
    Ok(())
}

/// A block that is opened twice is recorded once, with the driver's size.
fn opened(exporter: &Exporter) -> Outcome<Did> {
    let handle = exporter.classic()?;
    let address = calls::ipc_open(handle, LAZY_PEER_ACCESS)?;
    let again = calls::ipc_open(handle, LAZY_PEER_ACCESS)?;
    let size = said_size(address);
    calls::ipc_close(again)?;
    calls::ipc_close(address)?;
    let came = std::iter::repeat_n(size, if again == address { 1 } else { 2 });
    Ok(came.clone().chain(came.map(|size| -size)).map(|size| (Device::Imported, size)).collect())
}

fn said_size(address: u64) -> i64 {
    let (code, size) = pointer_attribute(address, CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE);
    if code == CUresult::CUDA_SUCCESS { size as i64 } else { 0 }
}

/// Physical memory of the other process, mapped into this one.
fn mapped(file: &OwnedFd) -> Outcome<Did> {
    let size = calls::granularity()?;
    let handle = raw::import_physical(file.as_raw_fd())?;
    let address = raw::reserve(size, 0, 0, 0)?;
    raw::map(address, size, 0, handle, 0)?;
    raw::release_physical(handle)?;
    raw::unmap(address, size)?;
    calls::free_addresses(address, size)?;
    came_and_went(Device::Imported, size as i64)
}

/// A block of the other process's pool.
fn of_pool(file: &OwnedFd, pointer: [u8; 64]) -> Outcome<Did> {
    let pool = sharing::import_pool(file.as_raw_fd())?;
    let address = sharing::import_pointer(pool, pointer)?;
    let size = said_size(address);
    raw::free_async(address, LEGACY)?;
    raw::synchronise(LEGACY)?;
    raw::pool_destroy(pool)?;
    came_and_went(Device::Imported, size)
}
