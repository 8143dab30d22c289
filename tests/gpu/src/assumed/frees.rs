//! Failing frees, and what the end of a context frees.

use super::held::{Held, known};
use super::{Assumption, code, row};
use crate::gpu::Gpu;
use crate::raw::{self, LEGACY, Outcome};

pub(super) const ROWS: &[Assumption] = &[
    row("a classic block that was freed is", "code 1", |_| {
        let block = Held::classic(1000)?;
        let address = block.address;
        block.free()?;
        Ok(known(address))
    }),
    row("a pool's block that was freed, not synchronised, is", "code 1", |_| {
        let block = Held::pool(1000)?;
        let address = block.address;
        block.free()?;
        Ok(known(address))
    }),
    row("a pool's block freed twice by cuMemFreeAsync", "code 1", |gpu| {
        let block = Held::pool(1000)?;
        let address = block.address;
        block.free()?;
        gpu.context.synchronize().map_err(|error| error.0)?;
        Ok(code(raw::free_async(address, LEGACY)))
    }),
    row("a free of the middle of a pool's block", "code 1", |_| {
        let block = Held::pool(1000)?;
        Ok(code(raw::free_async(block.address + 256, LEGACY)))
    }),
    row("cuMemFreeAsync on a thread without a context", "code 201", |_| without_context(Held::pool(1000)?)),
    row("cuMemFree_v2 on a thread without a context", "code 201", |_| without_context(Held::classic(1000)?)),
    row("a classic block whose context ended is", "code 1", |gpu| ended(gpu, || raw::alloc(1000), raw::free)),
    row("a managed block whose context ended is", "code 1", |gpu| ended(gpu, || raw::managed(1000, 1), raw::free)),
    row("a pool's block whose context ended is", "code 1", |gpu| {
        ended(gpu, || raw::alloc_async(1000, LEGACY), |address| raw::free_async(address, LEGACY))
    }),
];

fn without_context(block: Held) -> Outcome<String> {
    let (address, free) = (block.address, block.way());
    let freed = std::thread::spawn(move || free(address)).join().expect("it does not panic");
    let answer = code(freed);
    if freed.is_ok() {
        std::mem::forget(block);
    }
    Ok(answer)
}

/// The result code of a query for a block's address after its context has ended.
fn ended(gpu: &Gpu, alloc: fn() -> Outcome<u64>, free: fn(u64) -> Outcome<()>) -> Outcome<String> {
    let context = raw::context_create(std::ptr::null_mut(), 0, 0)?;
    let block = alloc();
    raw::context_destroy(context)?;
    gpu.context.bind_to_thread().map_err(|error| error.0)?;
    let block = block?;
    let answer = known(block);
    if answer == "code 0" {
        let _ = free(block);
    }
    Ok(answer)
}
