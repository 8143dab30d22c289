//! Memory of another process.

use cudarc::driver::sys::CUpointer_attribute_enum::CU_POINTER_ATTRIBUTE_RANGE_SIZE as RANGE;
use cudarc::driver::sys::CUresult;

use super::held::{Held, size_at};
use super::{Assumption, code, row, size, takes};
use crate::calls;
use crate::exporter::Exporter;
use crate::ipc::LAZY_PEER_ACCESS;
use crate::raw::{self, Outcome};

pub(super) const ROWS: &[Assumption] = &[
    row("cuIpcOpenMemHandle_v2 of the process's own block", "code 201", |_| {
        let block = Held::classic(1000)?;
        Ok(code(calls::ipc_open(calls::ipc_handle(block.address)?, LAZY_PEER_ACCESS)))
    }),
    row("cuIpcGetMemHandle of a pool's block", "code 1", |_| Ok(code(calls::ipc_handle(Held::pool(1000)?.address)))),
    row("another process's 3 MiB, opened: RANGE_SIZE", "3 MiB", |_| opened(|address| size_at(address, RANGE))),
    row("another process's 3 MiB, opened: takes of the device", "0 MiB", |_| {
        let exporter = exporter()?;
        let (bytes, address) = takes(|| calls::ipc_open(exporter.classic()?, LAZY_PEER_ACCESS))?;
        calls::ipc_close(address)?;
        Ok(size(bytes))
    }),
    row("another process's memory, opened twice", "the same address", |_| {
        let exporter = exporter()?;
        let address = calls::ipc_open(exporter.classic()?, LAZY_PEER_ACCESS)?;
        let again = calls::ipc_open(exporter.classic()?, LAZY_PEER_ACCESS);
        let _ = again.map(calls::ipc_close);
        calls::ipc_close(address)?;
        let words = if again == Ok(address) { "the same address" } else { "another address" };
        Ok(if again.is_ok() { words.to_owned() } else { code(again) })
    }),
    row("another process's memory, opened: cuMemFree_v2", "code 1", |_| opened(|address| code(raw::free(address)))),
];

/// A second process, which the machine may forbid.
fn exporter() -> Outcome<Exporter> {
    Exporter::start().map_err(|_| CUresult::CUDA_ERROR_NOT_SUPPORTED)
}

fn opened(ask: impl FnOnce(u64) -> String) -> Outcome<String> {
    let exporter = exporter()?;
    let address = calls::ipc_open(exporter.classic()?, LAZY_PEER_ACCESS)?;
    let answer = ask(address);
    // The driver refuses this if the block was freed.
    let _ = calls::ipc_close(address);
    Ok(answer)
}
