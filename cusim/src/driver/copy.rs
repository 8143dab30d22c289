//! Copies. Asynchronous copies are also complete when they return.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::abi::Out;
use super::call::{in_context, unless_captured};
use super::process::{pause, with};
use crate::SimMachine;
use crate::code::{Answer, INVALID_VALUE};
use crate::config::Results;
use crate::faults::CallKind;
use crate::machine::node_type::COPY;
use CopyEnd::{Device, Either, Host};

/// `CUDA_MEMCPY2D`.
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
    fn cuMemcpyHtoD_v2(to: u64, from: u64, size: usize) | cuMemcpyHtoD_v2_ptds() =>
        in_context(|| copy(Device(to), Host(from), size));
    fn cuMemcpyDtoH_v2(to: u64, from: u64, size: usize) | cuMemcpyDtoH_v2_ptds() =>
        in_context(|| copy(Host(to), Device(from), size));
    fn cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) | cuMemcpyDtoD_v2_ptds() =>
        in_context(|| copy(Device(to), Device(from), size));
    fn cuMemcpy(to: u64, from: u64, size: usize) | cuMemcpy_ptds() =>
        in_context(|| copy(Either(to), Either(from), size));
    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, size: usize, stream: u64) | cuMemcpyHtoDAsync_v2_ptsz(stream) =>
        unless_captured(stream, COPY, || copy(Device(to), Host(from), size));
    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, size: usize, stream: u64) | cuMemcpyDtoHAsync_v2_ptsz(stream) =>
        unless_captured(stream, COPY, || copy(Host(to), Device(from), size));
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, size: usize, stream: u64) | cuMemcpyDtoDAsync_v2_ptsz(stream) =>
        unless_captured(stream, COPY, || copy(Device(to), Device(from), size));
    fn cuMemcpyAsync(to: u64, from: u64, size: usize, stream: u64) | cuMemcpyAsync_ptsz(stream) =>
        unless_captured(stream, COPY, || copy(Either(to), Either(from), size));

    fn cuMemcpyPeer(to: u64, to_context: u64, from: u64, from_context: u64, size: usize) {
        check_contexts(to_context, from_context)?;
        copy(Device(to), Device(from), size)
    }

    fn cuMemcpyPeerAsync(to: u64, to_context: u64, from: u64, from_context: u64, size: usize, stream: u64)
    | cuMemcpyPeerAsync_ptsz(stream) {
        check_contexts(to_context, from_context)?;
        unless_captured(stream, COPY, || copy(Device(to), Device(from), size))
    }

    fn cuMemcpy2D_v2(rows: Out<Rows>) | cuMemcpy2D_v2_ptds() | cuMemcpy2DUnaligned_v2() | cuMemcpy2DUnaligned_v2_ptds() =>
        in_context(|| copy_rows(rows.get()?));

    fn cuMemcpy2DAsync_v2(rows: Out<Rows>, stream: u64) | cuMemcpy2DAsync_v2_ptsz(stream) {
        let rows = rows.get()?;
        unless_captured(stream, COPY, || copy_rows(rows))
    }
}

fn check_contexts(one: u64, other: u64) -> Answer {
    with(|machine| machine.context(one).and(machine.context(other)).map(|_| ()))
}

/// One end of a copy: its address, and in which memory the address must lie.
#[derive(Clone, Copy)]
enum CopyEnd {
    Device(u64),
    Host(u64),
    Either(u64),
}

impl CopyEnd {
    fn address(self) -> u64 {
        match self {
            Device(address) | Host(address) | Either(address) => address,
        }
    }

    fn check(self, machine: &SimMachine, size: u64) -> Answer {
        match self {
            Device(address) => machine.check_device_range(address, size),
            Host(address) | Either(address) => machine.check_range(address, size),
        }
    }
}

/// If all copied bytes are zero, replaces them by values that kernels might have computed.
fn write_results(copied: &mut [u8], results: Results) {
    static COPIES: AtomicU64 = AtomicU64::new(0);
    if copied.iter().all(|byte| *byte == 0) {
        let copy = COPIES.fetch_add(1, Relaxed);
        for (element, bytes) in copied.chunks_mut(4).enumerate() {
            bytes.copy_from_slice(&results.value(copy, element as u64).to_le_bytes()[..bytes.len()]);
        }
    }
}

fn copy(to: CopyEnd, from: CopyEnd, size: usize) -> Answer {
    pause(CallKind::Copy);
    let results = with(|machine| {
        machine.check(CallKind::Copy, size as u64)?;
        if size > 0 {
            to.check(machine, size as u64)?;
            from.check(machine, size as u64)?;
        }
        Ok(machine.config.results)
    })?;
    if size > 0 {
        // SAFETY: device ranges lie in live blocks, as checked above, and host ranges are the caller's. The lock is not
        // held; a program that frees memory during a copy is wrong on a GPU, too.
        unsafe { std::ptr::copy(from.address() as *const u8, to.address() as *mut u8, size) };
    }
    if let (Host(to), true) = (to, results != Results::Zeros) {
        // SAFETY: the copy has written these bytes.
        write_results(unsafe { std::slice::from_raw_parts_mut(to as *mut u8, size) }, results);
    }
    Ok(())
}

fn copy_rows(rows: Rows) -> Answer {
    for row in 0..rows.height {
        copy(rows.to.row(row)?, rows.from.row(row)?, rows.width)?;
    }
    Ok(())
}

/// `CUmemorytype`. Arrays (3) are not simulated.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const UNIFIED: u32 = 4;

impl Side {
    fn row(&self, row: usize) -> Answer<CopyEnd> {
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
