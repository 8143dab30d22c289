//! Compares the ledger with the driver's counters: used and reserved bytes, attributes of blocks.

use cudarc::driver::sys::CUpointer_attribute;
use memtrace::stats;

use crate::gpu::{GPU, Gpu, pointer_attribute};
use crate::raw::{self, LEGACY, Outcome};
use crate::table::Table;
use crate::watch;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const SIZES: [usize; 13] = [1, 255, 256, 257, 511, 512, 513, 1000, 4096, 64 * KIB + 1, MIB + 1, 2 * MIB + 1, 33 * MIB];

/// How much USED grows for blocks of many sizes. Returns the rounding that explains it.
pub(crate) fn used(gpu: &Gpu, table: &mut Table) -> Outcome<u64> {
    gpu.settle();
    let _session = watch::recording();
    let (mut moved, mut ledger) = (Vec::new(), Vec::new());
    for size in SIZES {
        let before = (gpu.used(), live());
        let block = raw::alloc_async(size, LEGACY)?;
        moved.push(gpu.used().saturating_sub(before.0));
        ledger.push(live() - before.1);
        raw::free_async(block, LEGACY)?;
        gpu.settle();
    }
    let exact = ledger.iter().zip(SIZES).all(|(moved, size)| *moved == size as u64);
    table.check("ledger: bytes as asked for", exact && live() == 0, format!("{} sizes, 1 byte to 33 MiB", SIZES.len()));
    // At most 2 MiB, the driver's largest page, in case USED does not change at all.
    let unit = 1u64 << moved.iter().fold(0, |all, delta| all | delta).trailing_zeros().min(21);
    table.info("pool USED for a block of", rounding(&moved, unit));
    Ok(unit)
}

fn live() -> u64 {
    stats(GPU).allocated_bytes.current
}

/// Each size with the bytes that it took, and whether one unit explains them all.
fn rounding(moved: &[u64], unit: u64) -> String {
    let pairs: Vec<String> = SIZES.iter().zip(moved).map(|(size, delta)| format!("{size}: {delta}")).collect();
    let mut lines: Vec<String> = pairs.chunks(5).map(|few| few.join(", ")).collect();
    let differs = |pair: &(usize, &u64)| (pair.0 as u64).next_multiple_of(unit) != *pair.1;
    let others: Vec<String> = SIZES.into_iter().zip(moved).filter(differs).map(|(size, _)| size.to_string()).collect();
    lines.push(match &others[..] {
        [] => format!("each is its size rounded up to a multiple of {unit}"),
        _ => format!("all are multiples of {unit}, but more than rounding to it explains: {}", others.join(", ")),
    });
    lines.join("\n")
}

/// The steps in which an empty pool grows, and what it keeps.
pub(crate) fn reserved(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    gpu.settle();
    let mut steps = vec![gpu.reserved()];
    let mut blocks = Vec::new();
    for _ in 0..100 {
        blocks.push(raw::alloc_async(MIB, LEGACY)?);
        steps.push(gpu.reserved());
    }
    steps.dedup();
    let large = raw::alloc_async(65 * MIB, LEGACY)?;
    let with_large = gpu.reserved();
    for block in blocks.into_iter().chain([large]) {
        raw::free_async(block, LEGACY)?;
    }
    gpu.context.synchronize().expect("the GPU works");
    let after = gpu.reserved();
    gpu.settle();
    let steps: Vec<String> = steps.into_iter().map(mib).collect();
    let detail = format!(
        "100 blocks of 1 MiB: {} MiB\nand one of 65 MiB: {} MiB\nall freed and synchronised: {} MiB, trimmed: {} MiB",
        steps.join(", "),
        mib(with_large),
        mib(after),
        mib(gpu.reserved())
    );
    table.info("pool RESERVED grows", detail);
    Ok(())
}

fn mib(bytes: u64) -> String {
    let text = format!("{:.2}", bytes as f64 / MIB as f64);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The driver's attributes of an address of each kind.
pub(crate) fn pointers(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    gpu.settle();
    let pool = raw::alloc_async(3 * MIB, LEGACY)?;
    let classic = raw::alloc(3 * MIB)?;
    table.info("attributes of a pool's block", attributes(pool));
    table.info("attributes of a classic block", attributes(classic));
    raw::free(classic)?;
    raw::free_async(pool, LEGACY)
}

fn attributes(address: u64) -> String {
    use CUpointer_attribute as Attribute;
    let asked = [
        ("MEMPOOL_HANDLE (17)", Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE),
        ("MAPPING_SIZE (18)", Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE),
        ("MAPPING_BASE_ADDR (19)", Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR),
        ("MEMORY_BLOCK_ID (20)", Attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID),
    ];
    let lines = asked.map(|(name, attribute)| {
        let (code, value) = pointer_attribute(address, attribute);
        format!("{name}: code {}, {value:#x} ({value})", code as u32)
    });
    format!("at {address:#x}, 3 MiB\n{}", lines.join("\n"))
}
