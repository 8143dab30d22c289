//! Device memory.

use super::abi::Out;
use super::process::{pause, with};
use super::thread::{current, mode, number};
use crate::Request;
use crate::code::{Answer, INVALID_VALUE};
use crate::faults::Call;
use crate::history::Kind;

driver! {
    fn cuMemAlloc_v2(address: Out<u64>, size: usize) {
        allocate(address, Request { kind: Kind::Classic, size: size as u64, ..Request::default() })
    }

    fn cuMemAllocPitch_v2(address: Out<u64>, pitch: Out<usize>, width: usize, height: usize, element: u32) {
        if !matches!(element, 4 | 8 | 16) {
            return Err(INVALID_VALUE);
        }
        let row = width.checked_next_multiple_of(PITCH).ok_or(INVALID_VALUE)?;
        let size = row.checked_mul(height).ok_or(INVALID_VALUE)? as u64;
        allocate(address, Request { kind: Kind::Classic, size, ..Request::default() })?;
        pitch.set(row)
    }

    fn cuMemAllocManaged(address: Out<u64>, size: usize, _flags: u32) {
        allocate(address, Request { kind: Kind::Managed, size: size as u64, ..Request::default() })
    }

    fn cuMemFree_v2(address: u64) {
        pause(Call::Free);
        let context = current()?;
        with(|machine| {
            machine.context(context)?;
            machine.check_captures(number(), mode())?;
            if address == 0 { Ok(()) } else { machine.free(address, context, 0) }
        })
    }

    fn cuMemAllocAsync(address: Out<u64>, size: usize, stream: u64) {
        let request = Request { kind: Kind::Pool, size: size as u64, stream, ..Request::default() };
        allocate_on_stream(address, request)
    }

    fn cuMemAllocFromPoolAsync(address: Out<u64>, size: usize, pool: u64, stream: u64) {
        let device = with(|machine| Ok(machine.pool_data(pool)?.device))?;
        let request = Request { kind: Kind::Pool, device, size: size as u64, pool, stream, ..Request::default() };
        allocate_on_stream(address, request)
    }

    fn cuMemFreeAsync(address: u64, stream: u64) {
        pause(Call::Free);
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
            let (unused, all) = machine.memory(device);
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

    fn cuMemAdvise_v2(address: u64, size: usize, _advice: u32, _location: u64) {
        with(|machine| machine.check_range(address, size as u64))
    }

    fn cuMemPrefetchAsync_v2(address: u64, size: usize, _location: u64, _flags: u32, _stream: u64) {
        with(|machine| machine.check_range(address, size as u64))
    }
}

per_thread! {
    fn cuMemAllocAsync_ptsz = cuMemAllocAsync(address: Out<u64>, size: usize; stream);
    fn cuMemAllocFromPoolAsync_ptsz = cuMemAllocFromPoolAsync(address: Out<u64>, size: usize, pool: u64; stream);
    fn cuMemFreeAsync_ptsz = cuMemFreeAsync(address: u64; stream);
    fn cuMemPrefetchAsync_v2_ptsz = cuMemPrefetchAsync_v2(address: u64, size: usize, location: u64, flags: u32; stream);
}

/// Rows of pitched memory are multiples of this.
const PITCH: usize = 512;

/// Memory of the current context's device.
fn allocate(address: Out<u64>, request: Request) -> Answer {
    pause(Call::Alloc);
    let context = current()?;
    address.check()?;
    address.set(with(|machine| {
        let device = machine.context(context)?.device;
        machine.check_captures(number(), mode())?;
        machine.allocate(Request { device, context, ..request })
    })?)
}

/// Memory of a pool; without a pool, of the stream's device.
fn allocate_on_stream(address: Out<u64>, request: Request) -> Answer {
    pause(Call::Alloc);
    address.check()?;
    address.set(with(|machine| {
        let context = machine.context_of(request.stream, current())?;
        let device = if request.pool == 0 { machine.context(context)?.device } else { request.device };
        if let Some(address) = machine.captures_allocation(request.stream, device, request.size)? {
            return Ok(address);
        }
        machine.allocate(Request { device, context, ..request })
    })?)
}
