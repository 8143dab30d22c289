//! Copies. All are done when they return, the asynchronous ones too.

use super::abi::Out;
use super::process::{pause, with};
use super::thread::current;
use crate::Machine;
use crate::code::{Answer, INVALID_VALUE};
use crate::faults::Call;
use crate::machine::node_type;
use End::{Device, Either, Host};

/// A copy of rows: `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Rows {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
}

/// One side of a copy of rows.
#[repr(C)]
#[derive(Clone, Copy)]
struct Side {
    x: usize,
    y: usize,
    memory_type: u32,
    host: u64,
    device: u64,
    array: u64,
    pitch: usize,
}

driver! {
    fn cuMemcpyHtoD_v2(to: u64, from: u64, size: usize) {
        current()?;
        copy(Device(to), Host(from), size)
    }

    fn cuMemcpyDtoH_v2(to: u64, from: u64, size: usize) {
        current()?;
        copy(Host(to), Device(from), size)
    }

    fn cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) {
        current()?;
        copy(Device(to), Device(from), size)
    }

    fn cuMemcpy(to: u64, from: u64, size: usize) {
        current()?;
        copy(Either(to), Either(from), size)
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, size: usize, stream: u64) {
        copy_on(stream, Device(to), Host(from), size)
    }

    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, size: usize, stream: u64) {
        copy_on(stream, Host(to), Device(from), size)
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, stream: u64) {
        copy_on(stream, Device(to), Device(from), size)
    }

    fn cuMemcpyAsync(to: u64, from: u64, size: usize, stream: u64) {
        copy_on(stream, Either(to), Either(from), size)
    }

    fn cuMemcpyPeer(to: u64, to_context: u64, from: u64, from_context: u64, size: usize) {
        check_contexts(to_context, from_context)?;
        copy(Device(to), Device(from), size)
    }

    fn cuMemcpyPeerAsync(to: u64, to_context: u64, from: u64, from_context: u64, size: usize, stream: u64) {
        check_contexts(to_context, from_context)?;
        copy_on(stream, Device(to), Device(from), size)
    }

    fn cuMemcpy2D_v2(rows: Out<Rows>) {
        current()?;
        copy_rows(rows.get()?)
    }

    fn cuMemcpy2DUnaligned_v2(rows: Out<Rows>) {
        current()?;
        copy_rows(rows.get()?)
    }

    fn cuMemcpy2DAsync_v2(rows: Out<Rows>, stream: u64) {
        let rows = rows.get()?;
        if is_captured(stream, node_type::COPY)? { Ok(()) } else { copy_rows(rows) }
    }
}

per_thread! {
    fn cuMemcpyHtoDAsync_v2_ptsz = cuMemcpyHtoDAsync_v2(to: u64, from: u64, size: usize; stream);
    fn cuMemcpyDtoHAsync_v2_ptsz = cuMemcpyDtoHAsync_v2(to: u64, from: u64, size: usize; stream);
    fn cuMemcpyDtoDAsync_v2_ptsz = cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize; stream);
    fn cuMemcpyAsync_ptsz = cuMemcpyAsync(to: u64, from: u64, size: usize; stream);
    fn cuMemcpyPeerAsync_ptsz =
        cuMemcpyPeerAsync(to: u64, to_context: u64, from: u64, from_context: u64, size: usize; stream);
    fn cuMemcpy2DAsync_v2_ptsz = cuMemcpy2DAsync_v2(rows: Out<Rows>; stream);
}

same! {
    fn cuMemcpyHtoD_v2_ptds = cuMemcpyHtoD_v2(to: u64, from: u64, size: usize);
    fn cuMemcpyDtoH_v2_ptds = cuMemcpyDtoH_v2(to: u64, from: u64, size: usize);
    fn cuMemcpyDtoD_v2_ptds = cuMemcpyDtoD_v2(to: u64, from: u64, size: usize);
    fn cuMemcpy_ptds = cuMemcpy(to: u64, from: u64, size: usize);
    fn cuMemcpy2D_v2_ptds = cuMemcpy2D_v2(rows: Out<Rows>);
    fn cuMemcpy2DUnaligned_v2_ptds = cuMemcpy2DUnaligned_v2(rows: Out<Rows>);
}

/// That work can be put on the stream.
pub(super) fn check_stream(stream: u64) -> Answer {
    with(|machine| machine.context_of(stream, current()).map(|_| ()))
}

/// Whether work on a stream is captured as a node, and must not be done.
pub(super) fn is_captured(stream: u64, kind: u32) -> Answer<bool> {
    check_stream(stream)?;
    with(|machine| machine.captures(stream, kind))
}

fn check_contexts(one: u64, other: u64) -> Answer {
    with(|machine| machine.context(one).and(machine.context(other)).map(|_| ()))
}

/// One end of a copy, an address: who may have it.
#[derive(Clone, Copy)]
enum End {
    Device(u64),
    Host(u64),
    Either(u64),
}

impl End {
    fn address(self) -> u64 {
        match self {
            Device(address) | Host(address) | Either(address) => address,
        }
    }

    fn check(self, machine: &Machine, size: u64) -> Answer {
        match self {
            Device(address) => machine.check_device_range(address, size),
            Host(address) | Either(address) => machine.check_range(address, size),
        }
    }
}

fn copy(to: End, from: End, size: usize) -> Answer {
    pause(Call::Copy);
    with(|machine| {
        machine.check_copy(size as u64)?;
        if size == 0 {
            return Ok(());
        }
        to.check(machine, size as u64)?;
        from.check(machine, size as u64)
    })?;
    if size > 0 {
        // SAFETY: device ranges lie in live blocks, checked above; host ranges are the caller's word. The
        // machine's lock is not held: a program that frees what it copies is wrong on a GPU too.
        unsafe { std::ptr::copy(from.address() as *const u8, to.address() as *mut u8, size) };
    }
    Ok(())
}

fn copy_on(stream: u64, to: End, from: End, size: usize) -> Answer {
    if is_captured(stream, node_type::COPY)? { Ok(()) } else { copy(to, from, size) }
}

fn copy_rows(rows: Rows) -> Answer {
    for row in 0..rows.height {
        copy(rows.to.row(row)?, rows.from.row(row)?, rows.width)?;
    }
    Ok(())
}

/// Memory types of a side. The one that is left out here is an array, which is not simulated.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const UNIFIED: u32 = 4;

impl Side {
    fn row(&self, row: usize) -> Answer<End> {
        let rows_before = self.y.checked_add(row).and_then(|rows| rows.checked_mul(self.pitch)).ok_or(INVALID_VALUE)?;
        let offset = rows_before.checked_add(self.x).ok_or(INVALID_VALUE)? as u64;
        let at = |base: u64| base.checked_add(offset).ok_or(INVALID_VALUE);
        match self.memory_type {
            HOST => at(self.host).map(Host),
            DEVICE => at(self.device).map(Device),
            UNIFIED => at(self.device).map(Either),
            _ => Err(INVALID_VALUE),
        }
    }
}
