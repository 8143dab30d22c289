//! Uses of blocks, from the arguments of kernels: kernels of the program, of cuBLAS and of cuBLASLt.

use std::ffi::c_void;

use cudarc::driver::sys::CUfunction;
use memtrace::snapshot::{BlockUses, RecordKind};
use memtrace::{Builder, Snapshot, StackContext};

use crate::blas::{Library, MATRIX};
use crate::calls;
use crate::gpu::{GPU, past_hooks};
use crate::raw::{self, LEGACY, Outcome};
use crate::table::Table;

pub(crate) fn recording() -> Builder {
    memtrace::builder().context(StackContext::None).uses(true)
}

pub(crate) fn rows(table: &mut Table) -> Outcome<()> {
    kernels(table)?;
    match Library::cublas() {
        Ok(cublas) => {
            used(table, "uses: cublasSgemm_v2", 3, |blocks| cublas.product([blocks[0], blocks[1], blocks[2]]))?;
            used(table, "uses: cublasSgemmBatched", 6, |blocks| batched(&cublas, blocks))?;
        }
        Err(reason) => table.info("uses: cuBLAS", reason),
    }
    match Library::cublas_lt() {
        Ok(lt) => used(table, "uses: cublasLtMatmul", 3, |blocks| lt.lt_product([blocks[0], blocks[1], blocks[2]]))?,
        Err(reason) => table.info("uses: cuBLASLt", reason),
    }
    Ok(())
}

/// The PTX of a module that was loaded before the recording is unknown, so that only the driver knows its layout.
fn kernels(table: &mut Table) -> Outcome<()> {
    const EARLY: &str = "uses: layout from the driver";
    let module = calls::kernels()?;
    let function = calls::function(module, c"scattered")?;
    if past_hooks(c"cuFuncGetParamInfo") == 0 {
        table.info(EARLY, "not there: cuFuncGetParamInfo came with CUDA 12.4");
    } else {
        used(table, EARLY, 3, |blocks| scattered(function, blocks))?;
    }
    calls::module_unload(module)?;
    used(table, "uses: kernel loaded meanwhile", 3, |blocks| {
        let module = calls::kernels().map_err(|code| format!("cuModuleLoadData: {code:?}"))?;
        let function =
            calls::function(module, c"scattered").map_err(|code| format!("cuModuleGetFunction: {code:?}"))?;
        scattered(function, blocks)?;
        calls::synchronise_all().and_then(|()| calls::module_unload(module)).map_err(|code| format!("{code:?}"))
    })
}

/// Launches a kernel with pointers before and after a number, and in a structure.
fn scattered(function: CUfunction, blocks: &[u64]) -> Result<(), String> {
    let (mut first, mut number, mut second) = (blocks[0], 7u32, blocks[1] + 256);
    let mut structure = [1, blocks[2] + 8, 3];
    let mut arguments: [*mut c_void; 4] =
        [(&raw mut first).cast(), (&raw mut number).cast(), (&raw mut second).cast(), (&raw mut structure).cast()];
    calls::launch_kernel(function, &mut arguments, LEGACY).map_err(|code| format!("cuLaunchKernel: {code:?}"))
}

/// Two products, whose matrices only tables of pointers name.
fn batched(cublas: &Library, blocks: &[u64]) -> Result<(), String> {
    let refused = |code| format!("the table of pointers: {code:?}");
    let pairs = raw::alloc_async(size_of_val(blocks), LEGACY).map_err(refused)?;
    calls::copy_in(pairs, blocks).map_err(refused)?;
    let result = cublas.products([pairs, pairs + 16, pairs + 32], 2);
    raw::free_async(pairs, LEGACY).map_err(refused)?;
    result
}

/// A row: `work` launches kernels that use the blocks. An error of `work` says what is not there.
fn used(table: &mut Table, name: &str, count: usize, work: impl FnOnce(&[u64]) -> Result<(), String>) -> Outcome<()> {
    let session = recording().start().expect("no other session is under way");
    // Blocks are found by their sizes.
    let sizes: Vec<usize> = (0..count).map(|at| MATRIX + 512 * at).collect();
    let blocks = sizes.iter().map(|size| raw::alloc_async(*size, LEGACY)).collect::<Outcome<Vec<u64>>>()?;
    blocks.iter().try_for_each(|block| calls::copy_in(*block, &[0; MATRIX / 8]))?;
    let before = operations(&session.snapshot());
    let outcome = work(&blocks);
    calls::synchronise_all()?;
    let snapshot = session.snapshot();
    blocks.iter().try_for_each(|block| raw::free_async(*block, LEGACY))?;
    match outcome {
        Ok(()) => judge(table, name, &snapshot, &sizes, before),
        Err(reason) => table.info(name, reason),
    }
    Ok(())
}

fn operations(snapshot: &Snapshot) -> u64 {
    snapshot.gpu_work.as_ref().map_or(0, |work| work.totals.operations)
}

/// All launches have a known layout, and the last use of each block is known and later than its upload.
fn judge(table: &mut Table, name: &str, snapshot: &Snapshot, sizes: &[usize], before: u64) {
    let work = snapshot.gpu_work.as_ref().expect("uses are recorded");
    let totals = work.totals;
    let uses: Vec<Option<&BlockUses>> = sizes.iter().map(|size| uses_of(snapshot, *size)).collect();
    let last = |uses: &Option<&BlockUses>| uses.and_then(BlockUses::known_last).map_or(0, |last| last.operation);
    let last: Vec<u64> = uses.iter().map(last).collect();
    let is_known = totals.launches > 0 && totals.laid_out == totals.launches;
    let is_uploaded = before == sizes.len() as u64;
    let is_used = last.iter().all(|operation| *operation > before);
    let detail = format!(
        "{} kernels, arguments of {} known\n{before} uploads, last uses by operations {last:?}\n{}",
        totals.launches,
        totals.laid_out,
        work.kernels.join(", ")
    );
    table.check(name, is_known && is_uploaded && is_used, detail);
}

fn uses_of(snapshot: &Snapshot, size: usize) -> Option<&BlockUses> {
    let device = snapshot.device(GPU)?;
    let is_alloc = |kind, bytes: u64| kind == RecordKind::Alloc && bytes == size as u64;
    let record = device.records.iter().find(|record| is_alloc(record.kind, record.size))?;
    device.uses_of(record.alloc_seq)
}
