//! Memory outside of pools: classic, managed, physical, arrays; modules and contexts.

use super::held::Held;
use super::{Assumption, code, row, size, takes, when};
use crate::gpu::Gpu;
use crate::raw::{self, Outcome};
use crate::{calls, sharing};

const MIB: usize = 1 << 20;

pub(super) const ROWS: &[Assumption] = &[
    row("cuMemAlloc_v2 of 0 bytes", "code 1", |_| Ok(code(Held::classic(0)))),
    row("cuMemAlloc_v2 of 1000 bytes takes of the device", "2 MiB", |_| {
        takes(|| Held::classic(1000)).map(|(bytes, _block)| size(bytes))
    }),
    row("cuMemAlloc_v2 of 1000 bytes more takes", "0 MiB", |_| {
        let _first = Held::classic(1000)?;
        takes(|| Held::classic(1000)).map(|(bytes, _block)| size(bytes))
    }),
    row("cuMemAlloc_v2 of 3 MiB takes of the device", "4 MiB", |_| {
        takes(|| Held::classic(3 * MIB)).map(|(bytes, _block)| size(bytes))
    }),
    row("cuMemFree_v2 of the only block gives the memory back", "at once", |gpu| {
        let before = calls::taken()?;
        Held::classic(MIB)?.free()?;
        when(gpu, calls::taken, before)
    }),
    row("cuMemAlloc_v2: two blocks of 1 byte lie apart by", "256 bytes", |_| {
        let (first, second) = (Held::classic(1)?, Held::classic(1)?);
        Ok(size(first.address.abs_diff(second.address)))
    }),
    row("cuMemAllocPitch_v2: bytes of a row of 100", "512 bytes", |_| {
        let (address, pitch) = raw::alloc_pitch(100, 3)?;
        raw::free(address)?;
        Ok(size(pitch as u64))
    }),
    row("cuMemAllocManaged of 3 MiB takes of the device", "0 MiB", |_| {
        takes(|| Held::managed(3 * MIB)).map(|(bytes, _block)| size(bytes))
    }),
    row("cuArrayCreate_v2 of 100 x 50 x 16 bytes takes", "80000 bytes", array),
    row("cuMemCreate: sizes are multiples of", "2 MiB", |_| Ok(size(calls::granularity()? as u64))),
    row("cuMemCreate of 1 byte", "code 1", |_| Ok(code(Held::physical(1)))),
    row("cuMemCreate of the smallest size takes", "2 MiB", |_| {
        takes(|| Held::physical(calls::granularity()?)).map(|(bytes, _memory)| size(bytes))
    }),
    row("cuMemMap at an offset of half the memory", "code 1", |_| {
        mapped(|address, step, handle| Ok(code(raw::map(address, step, step, handle, 0))))
    }),
    row("cuMemUnmap of half a mapping", "code 1", |_| {
        mapped(|address, step, handle| {
            raw::map(address, 2 * step, 0, handle, 0)?;
            let half = code(raw::unmap(address, step));
            let _ = raw::unmap(address, 2 * step);
            Ok(half)
        })
    }),
    row("cuMemRetainAllocationHandle gives", "the same handle", |_| {
        mapped(|address, step, handle| {
            raw::map(address, 2 * step, 0, handle, 0)?;
            let again = raw::retain_physical(address);
            raw::unmap(address, 2 * step)?;
            raw::release_physical(again?)?;
            Ok(compared(handle, again?))
        })
    }),
    row("own physical memory, exported and imported", "the same handle", imported),
    row("cuMemRelease while it is mapped gives the memory back", "when unmapped", released),
    row("a module with an empty kernel takes", "0 MiB", |_| {
        let (bytes, module) = takes(calls::module)?;
        calls::module_unload(module)?;
        Ok(size(bytes))
    }),
];

fn array(_gpu: &Gpu) -> Outcome<String> {
    let (bytes, array) = takes(|| raw::array(&mut [100, 50, 0x20 | 4 << 32]))?;
    raw::array_destroy(array)?;
    Ok(size(bytes))
}

/// An address range and physical memory, both of twice the granularity.
fn mapped(ask: impl FnOnce(u64, usize, u64) -> Outcome<String>) -> Outcome<String> {
    let step = calls::granularity()?;
    let memory = Held::physical(2 * step)?;
    let address = raw::reserve(2 * step, 0, 0, 0)?;
    let answer = ask(address, step, memory.address);
    calls::free_addresses(address, 2 * step)?;
    answer
}

fn compared(handle: u64, again: u64) -> String {
    if handle == again { "the same handle" } else { "another handle" }.to_owned()
}

fn imported(_gpu: &Gpu) -> Outcome<String> {
    let handle = sharing::physical(calls::granularity()?)?;
    let file = sharing::export_physical(handle);
    let again = file.and_then(raw::import_physical);
    file.into_iter().for_each(sharing::close);
    raw::release_physical(handle)?;
    raw::release_physical(again?)?;
    Ok(compared(handle, again?))
}

fn released(_gpu: &Gpu) -> Outcome<String> {
    let step = calls::granularity()?;
    let before = calls::taken()?;
    let memory = Held::physical(step)?;
    let address = raw::reserve(step, 0, 0, 0)?;
    raw::map(address, step, 0, memory.address, 0)?;
    memory.free()?;
    let early = calls::taken()? <= before;
    raw::unmap(address, step)?;
    let late = calls::taken()? <= before;
    calls::free_addresses(address, step)?;
    Ok(if early {
        "at once"
    } else if late {
        "when unmapped"
    } else {
        "not when unmapped"
    }
    .to_owned())
}
