//! The driver's attributes of an address.

use cudarc::driver::sys::CUpointer_attribute_enum::{
    CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR as BASE, CU_POINTER_ATTRIBUTE_MAPPING_SIZE as MAPPING,
    CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID as BLOCK_ID, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE as POOL,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE as RANGE,
};

use super::held::{Held, OwnPool, Program, size_at, word_at};
use super::{Assumption, code, row};
use crate::gpu::Gpu;
use crate::raw::Outcome;

const MIB: usize = 1 << 20;

pub(super) const ROWS: &[Assumption] = &[
    row("MAPPING_SIZE of a pool's block of 1 MiB", "32 MiB", |_| Ok(Held::pool(MIB)?.size_of(MAPPING))),
    row("MAPPING_SIZE of a pool's block of 33 MiB", "64 MiB", |_| Ok(Held::pool(33 * MIB)?.size_of(MAPPING))),
    row("MAPPING_BASE_ADDR of two pool blocks of 1 MiB", "the same", |_| of_two(MIB, BASE)),
    row("MAPPING_BASE_ADDR of two pool blocks of 20 MiB", "different", |_| of_two(20 * MIB, BASE)),
    row("MEMORY_BLOCK_ID of two pool blocks of 1 MiB", "different", |_| of_two(MIB, BLOCK_ID)),
    row("MEMPOOL_HANDLE of a pool's block", "its pool", |gpu| pool_of(&Held::pool(1000)?, gpu)),
    row("MEMPOOL_HANDLE of an own pool's block", "its pool", of_own_pool),
    row("MEMPOOL_HANDLE of a classic block", "code 1", |gpu| pool_of(&Held::classic(1000)?, gpu)),
    row("MEMPOOL_HANDLE of a graph's block", "code 1", |_| {
        Ok(code(word_at(Program::launched(1000, 0)?.address, POOL)))
    }),
    row("RANGE_SIZE of a pool's block of 1000 bytes", "1000 bytes", |_| Ok(Held::pool(1000)?.size_of(RANGE))),
    row("RANGE_SIZE of a classic block of 1000 bytes", "1000 bytes", |_| Ok(Held::classic(1000)?.size_of(RANGE))),
    row("RANGE_SIZE of a graph's block of 1000 bytes", "1000 bytes", |_| {
        Ok(size_at(Program::launched(1000, 0)?.address, RANGE))
    }),
    row("MAPPING_SIZE of a classic block of 1000 bytes", "2 MiB", |_| Ok(Held::classic(1000)?.size_of(MAPPING))),
    row("MAPPING_SIZE of a classic block of 3 MiB", "4 MiB", |_| Ok(Held::classic(3 * MIB)?.size_of(MAPPING))),
];

/// Whether an attribute of two blocks is the same.
fn of_two(size: usize, attribute: cudarc::driver::sys::CUpointer_attribute) -> Outcome<String> {
    let (first, second) = (Held::pool(size)?, Held::pool(size)?);
    Ok(match (first.word(attribute), second.word(attribute)) {
        (Ok(first), Ok(second)) => if first == second { "the same" } else { "different" }.to_owned(),
        (first, _) => code(first),
    })
}

fn pool_of(block: &Held, gpu: &Gpu) -> Outcome<String> {
    Ok(is_pool(block.word(POOL), gpu.pool.addr()))
}

fn is_pool(answer: Outcome<u64>, pool: usize) -> String {
    match answer {
        Ok(found) if found == pool as u64 => "its pool".to_owned(),
        Ok(found) => format!("{found:#x}"),
        refused => code(refused),
    }
}

fn of_own_pool(_gpu: &Gpu) -> Outcome<String> {
    let pool = OwnPool::new()?;
    let block = Held::of_pool(1000, pool.0)?;
    Ok(is_pool(block.word(POOL), pool.0.addr()))
}
