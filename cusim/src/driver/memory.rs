//! Device memory: allocation, free, queries.

use super::abi::Out;
use super::call::{allocating, freeing};
use super::process::{pause, with};
use super::thread::{current, mode, number};
use crate::AllocationRequest;
use crate::code::{Answer, INVALID_VALUE, NOT_SUPPORTED, demand, demand_or};
use crate::faults::CallKind;
use crate::history::BlockKind;

driver! {
    fn cuMemAlloc_v2(address: Out<u64>, size: usize) =>
        allocate(address, AllocationRequest::new(BlockKind::Classic, size as u64));

    fn cuMemAllocPitch_v2(address: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32) {
        demand(matches!(element, 4 | 8 | 16))?;
        let row = width.checked_next_multiple_of(PITCH).ok_or(INVALID_VALUE)?;
        let size = row.checked_mul(height).ok_or(INVALID_VALUE)? as u64;
        allocate(address, AllocationRequest::new(BlockKind::Classic, size))?;
        pitch.set(row)
    }

    fn cuMemAllocManaged(address: Out<u64>, size: usize, _flags: u32) =>
        allocate(address, AllocationRequest::new(BlockKind::Managed, size as u64));

    fn cuMemFree_v2(address: u64) {
        freeing(|machine, context| {
            machine.context(context)?;
            machine.check_captures(number(), mode())?;
            if address == 0 { Ok(()) } else { machine.free(address, context, 0) }
        })
    }

    fn cuMemAllocAsync(address: Out<u64>, size: usize, stream: u64) | cuMemAllocAsync_ptsz(stream) {
        let request = AllocationRequest { stream, ..AllocationRequest::new(BlockKind::Pool, size as u64) };
        allocate_on_stream(address, request)
    }

    fn cuMemAllocFromPoolAsync(address: Out<u64>, size: usize, pool: u64, stream: u64)
    | cuMemAllocFromPoolAsync_ptsz(stream) {
        let (device, kind) = with(|machine| machine.pool_data(pool).map(|pool| (pool.device, pool.kind)))?;
        let request = AllocationRequest { device, pool, stream, ..AllocationRequest::new(kind, size as u64) };
        allocate_on_stream(address, request)
    }

    fn cuMemFreeAsync(address: u64, stream: u64) | cuMemFreeAsync_ptsz(stream) {
        pause(CallKind::Free);
        with(|machine| {
            let context = machine.context_of(stream, current())?;
            if address == 0 || machine.captures_free(stream, address)? {
                return Ok(());
            }
            machine.free(address, context, stream)
        })
    }

    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let context = current()?;
        with(|machine| {
            machine.check_captures(number(), mode())?;
            let device = machine.context(context)?.device;
            let (unused, all) = machine.memory_info(device);
            free.set(unused as usize)?;
            total.set(all as usize)
        })
    }

    fn cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, address: u64) {
        with(|machine| {
            let block = machine.block_around(address).ok_or(INVALID_VALUE)?;
            base.offer(block.address);
            size.offer(block.size as usize);
            Ok(())
        })
    }

    fn cuMemAdvise_v2(address: u64, size: usize, _advice: u32, _location: u64) =>
        with(|machine| machine.check_range(address, size as u64));
    fn cuMemPrefetchAsync_v2(address: u64, size: usize, _location: u64, _flags: u32, _stream: u64)
    | cuMemPrefetchAsync_v2_ptsz() =>
        with(|machine| machine.check_range(address, size as u64));
}

/// Rows of pitched memory are multiples of this, in bytes.
const PITCH: usize = 512;

/// Allocates on the current context's device.
fn allocate(address: Out<u64>, request: AllocationRequest) -> Answer {
    allocating(address, |machine, context| {
        let device = machine.context(context)?.device;
        machine.check_captures(number(), mode())?;
        machine.allocate(AllocationRequest { device, context, ..request })
    })
}

/// Allocates from a pool, by default from the current one of the stream's device.
fn allocate_on_stream(address: Out<u64>, request: AllocationRequest) -> Answer {
    pause(CallKind::Alloc);
    address.set_with(|machine| {
        let context = machine.context_of(request.stream, current())?;
        let device = if request.pool == 0 { machine.context(context)?.device } else { request.device };
        // Nodes for host or managed memory are not simulated.
        let is_captured = machine.captured_graph(request.stream)?.is_some();
        demand_or(!is_captured || request.kind == BlockKind::Pool, NOT_SUPPORTED)?;
        if let Some(address) = machine.captures_allocation(request.stream, device, request.size)? {
            return Ok(address);
        }
        machine.allocate(AllocationRequest { device, context, ..request })
    })
}
