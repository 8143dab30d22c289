//! Copies and fills.

use std::ffi::c_int;

use super::nodes;
use super::regions::Region;
use super::submit::{LOOKED, Looked, looked, submit};
use crate::hook::cuda::capture::capture_of;
use crate::hook::cuda::functions::{answer, cuPointerGetAttribute};
use crate::hook::cuda::pointers::CallerPtr;
use crate::hook::cuda::types::Stream;
use crate::record::memory::{OwnVec, System, try_push};
use crate::record::uses::{self, OperationKind, UseAccess, UseTable};

/// Whether the ends of a copy are on the device or the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hook::cuda) enum CopyKind {
    ToDevice,
    ToHost,
    OnDevice,
    /// The driver determines it from the addresses.
    Unified,
}

/// The source of a longer copy from the host is not searched for addresses.
const LONGEST_TABLE: usize = 64 << 10;
const WORD: usize = size_of::<u64>();

/// Enters an operation whose blocks are known by their addresses.
fn operate(name: &str, work: OperationKind, stream: Stream, ends: &[(u64, UseAccess)]) {
    match capture_of(stream) {
        Some(capture) => nodes::capture(capture, name.as_bytes(), work, ends),
        None => submit(stream, |table, touched| {
            ends.iter().for_each(|(address, access)| table.collect(*address, *access, touched));
            Some((table.kernels.id(name.as_bytes()), work))
        }),
    }
}

pub(in crate::hook::cuda) fn copy(
    name: &str,
    kind: CopyKind,
    to: u64,
    from: u64,
    size: usize,
    stream: Stream,
) -> Looked {
    if size == 0 {
        return LOOKED;
    }
    looked(|| {
        let kind = settled(kind, to, from);
        let writes = (to, UseAccess::Write(to, size as u64));
        match kind {
            CopyKind::ToDevice => operate(name, OperationKind::Copy, stream, &[writes]),
            CopyKind::ToHost => operate(name, OperationKind::Copy, stream, &[(from, UseAccess::CopyFrom)]),
            CopyKind::OnDevice | CopyKind::Unified => {
                operate(name, OperationKind::Copy, stream, &[(from, UseAccess::CopyFrom), writes]);
            }
        }
        let is_captured = capture_of(stream).is_some();
        uses::with(|table| {
            if !is_captured {
                table.overwritten(to, size as u64);
            }
            match kind {
                CopyKind::ToDevice => hold(table, to, from, size),
                CopyKind::OnDevice => table.copy_held(from, to),
                CopyKind::ToHost | CopyKind::Unified => {}
            }
        });
    })
}

/// The kind of a copy; a unified one is determined from its addresses, if possible. It becomes `ToDevice`, for which
/// memtrace reads the source, only if the source is host memory.
fn settled(kind: CopyKind, to: u64, from: u64) -> CopyKind {
    if kind != CopyKind::Unified {
        return kind;
    }
    let (is_to, is_from) = uses::with(|table| (table.has(to), table.has(from))).unwrap_or_default();
    match (is_to, is_from) {
        (true, false) if !is_device_memory(from) => CopyKind::ToDevice,
        (true, true) => CopyKind::OnDevice,
        _ => CopyKind::Unified,
    }
}

fn is_device_memory(address: u64) -> bool {
    const MEMORY_TYPE: c_int = 2;
    const DEVICE: u64 = 2;
    answer(|value| cuPointerGetAttribute(value, MEMORY_TYPE, address)).is_some_and(|kind| kind & 0xffff == DEVICE)
}

/// Finds addresses of blocks among the words of a copy from the host. From then on, the block of the destination
/// counts as containing these addresses.
fn hold(table: &mut UseTable, to: u64, from: u64, size: usize) {
    if size > LONGEST_TABLE {
        return;
    }
    let start = CallerPtr::<u64>::from_raw(std::ptr::with_exposed_provenance(from as usize));
    let mut found = OwnVec::new_in(System);
    for offset in (0..(size / WORD) * WORD).step_by(WORD) {
        let Some(word) = start.part::<u64>(offset).read_unaligned() else { break };
        if table.has(word) && !try_push(&mut found, word) {
            table.escape(word);
        }
    }
    for offset in (0..(size + 1).saturating_sub(super::arguments::TENSOR_MAP)).step_by(WORD * 8) {
        let map = if table.has_tensor_maps() { start.part(offset).read_unaligned() } else { None };
        if let Some(address) = map.and_then(|block| table.tensor_map(&block)) {
            try_push(&mut found, address);
        }
    }
    found.iter().for_each(|address| table.hold(to, *address));
}

pub(in crate::hook::cuda) fn fill(name: &str, to: u64, size: usize, stream: Stream) -> Looked {
    fill_2d(name, to, (size, size, 1), stream)
}

/// Fills rows. The tuple is the pitch, the width in bytes, and the number of rows.
pub(in crate::hook::cuda) fn fill_2d(
    name: &str,
    to: u64,
    (pitch, width, height): (usize, usize, usize),
    stream: Stream,
) -> Looked {
    if width == 0 || height == 0 {
        return LOOKED;
    }
    looked(|| {
        let size = width.saturating_mul(height) as u64;
        let access = if pitch == width || height == 1 { UseAccess::Write(to, size) } else { UseAccess::WriteRows };
        operate(name, OperationKind::Fill, stream, &[(to, access)]);
        if capture_of(stream).is_none() && access != UseAccess::WriteRows {
            uses::with(|table| table.overwritten(to, size));
        }
    })
}

/// Handles a word that the device writes or waits for.
pub(in crate::hook::cuda) fn value(name: &str, address: u64, stream: Stream) -> Looked {
    looked(|| operate(name, OperationKind::Copy, stream, &[(address, UseAccess::Unknown)]))
}

/// Handles a call with a list of operations. The list is not read, so the call counts as using any block.
pub(in crate::hook::cuda) fn batch(name: &str, stream: Stream) -> Looked {
    looked(|| operate(name, OperationKind::Opaque, stream, &[]))
}

pub(in crate::hook::cuda) fn copy_rows<const PLACE: usize, const REST: usize, const DIMENSIONS: usize>(
    name: &str,
    region: CallerPtr<Region<PLACE, REST, DIMENSIONS>>,
    stream: Stream,
) -> Looked {
    looked(|| {
        if let Some(region) = region.read() {
            let mut list = [(0, UseAccess::Unknown); 2];
            let count = list.iter_mut().zip(region.ends()).map(|(place, end)| *place = end).count();
            operate(name, OperationKind::Copy, stream, list.get(..count).unwrap_or_default());
        }
    })
}
