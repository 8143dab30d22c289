//! Segments: the driver's attributes, and whether memtrace's segments sum to what the pool has reserved.

use cudarc::driver::sys::{CUpointer_attribute as Attribute, CUresult};
use memtrace::snapshot::{DeviceSnapshot, MemoryKind, RecordKind};
use memtrace::{Session, Snapshot};

use crate::gpu::{GPU, Gpu, pointer_attribute};
use crate::raw::{self, LEGACY, Outcome};
use crate::table::Table;
use crate::watch;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// In total 125 MiB.
const SIZES: [usize; 8] = [1, 513, 64 * KIB, MIB, 3 * MIB, 20 * MIB, 33 * MIB, 65 * MIB];

pub(crate) fn rows(gpu: &Gpu, table: &mut Table) -> Outcome<()> {
    gpu.settle();
    let session = watch::recording();
    let blocks = SIZES.map(|size| raw::alloc_async(size, LEGACY).map(|address| (size, address)));
    let blocks: Vec<(usize, u64)> = blocks.into_iter().collect::<Outcome<_>>()?;
    let lines: Vec<String> = blocks.iter().map(|block| segment_of(gpu, *block)).collect();
    let legend = "size: at the segment's MAPPING_BASE_ADDR + offset, what else the driver says";
    table.info("segments of a pool's blocks", format!("{legend}\n{}", lines.join("\n")));
    if !tells(blocks[0].1) {
        table.info("segments in a recording", "not supported: the driver does not tell of them");
    } else {
        told(gpu, &session.snapshot(), table);
    }
    classic(table)?;
    given_back(gpu, &session, &blocks, table)
}

fn tells(address: u64) -> bool {
    pointer_attribute(address, Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE).0 == CUresult::CUDA_SUCCESS
}

/// The driver's attributes of one block, as text.
fn segment_of(gpu: &Gpu, (size, address): (usize, u64)) -> String {
    let ask = |attribute| match pointer_attribute(address, attribute) {
        (CUresult::CUDA_SUCCESS, value) => Ok(value),
        (code, _) => Err(format!("code {}", code as u32)),
    };
    let hex = |value: u64| format!("{value:#x}");
    let says = |answer: Result<String, String>| answer.unwrap_or_else(|code| code);
    let offset = |base: u64| format!("{:#x} + {:#x}", base, address.wrapping_sub(base));
    let pool = |pool: u64| if pool == gpu.pool.addr() as u64 { "default".to_owned() } else { hex(pool) };
    format!(
        "{size}: at {}, MAPPING_SIZE {}, RANGE_SIZE {}, BLOCK_ID {}, pool {}",
        says(ask(Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR).map(offset)),
        says(ask(Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE).map(hex)),
        says(ask(Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE).map(|size| size.to_string())),
        says(ask(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID).map(|id| id.to_string())),
        says(ask(Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE).map(pool)),
    )
}

/// Compares the segments of the recording with RESERVED.
fn told(gpu: &Gpu, snapshot: &Snapshot, table: &mut Table) {
    let device = snapshot.device(GPU).expect("it was recorded");
    let sum: u64 = device.segments.iter().map(|segment| segment.size).sum();
    let estimated = device.segments.iter().filter(|segment| segment.estimated).count();
    let counted = device.stats.reserved_bytes.current;
    let detail = format!(
        "{} segments of {sum} bytes, {estimated} estimated; counted {counted}, pool RESERVED {}",
        device.segments.len(),
        gpu.reserved()
    );
    table.check("segments sum to RESERVED", (sum, counted) == (gpu.reserved(), gpu.reserved()), detail);
}

/// `cuMemAlloc` takes whole segments of the device.
fn classic(table: &mut Table) -> Outcome<()> {
    let mut lines = Vec::new();
    for size in [1, 100 * KIB, MIB, 3 * MIB] {
        let address = raw::alloc(size)?;
        let (code, base) = pointer_attribute(address, Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
        let (_, length) = pointer_attribute(address, Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
        let (_, range) = pointer_attribute(address, Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE);
        let offset = address.wrapping_sub(base);
        lines.push(format!(
            "{size}: at {base:#x} + {offset:#x}, MAPPING_SIZE {length:#x}, RANGE_SIZE {range} (code {})",
            code as u32
        ));
        raw::free(address)?;
    }
    table.info("segments of classic blocks", lines.join("\n"));
    Ok(())
}

/// After all is freed and the stream synchronized, the recording must agree with what the pool has released.
fn given_back(gpu: &Gpu, session: &Session, blocks: &[(usize, u64)], table: &mut Table) -> Outcome<()> {
    blocks.iter().try_for_each(|(_, address)| raw::free_async(*address, LEGACY))?;
    let freed = gpu.reserved();
    raw::synchronise(LEGACY)?;
    let synchronised = gpu.reserved();
    let snapshot = session.snapshot();
    let device = snapshot.device(GPU).expect("it was recorded");
    let (came, went) = log(device);
    let counted = device.stats.reserved_bytes.current;
    let detail = format!(
        "RESERVED {freed} when all was freed, {synchronised} when synchronised; counted {counted}\n\
         segment records: {came} bytes came, {went} went"
    );
    const NAME: &str = "segments given back are noticed";
    match came {
        0 => table.info(NAME, detail),
        _ => table.check(NAME, (counted, came - went) == (synchronised, synchronised), detail),
    }
    gpu.settle();
    Ok(())
}

/// Bytes of a pool's segments that were added and removed in the recording.
fn log(device: &DeviceSnapshot) -> (u64, u64) {
    let bytes = |kind| device.segment_records.iter().filter(|r| r.kind == kind).map(|r| r.size).sum::<u64>();
    debug_assert!(device.live.iter().all(|block| block.memory == MemoryKind::Pool));
    (bytes(RecordKind::Alloc), bytes(RecordKind::Free))
}
