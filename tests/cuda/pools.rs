//! Pools of host and of managed memory. (`cuda.h`, "Creates a memory pool", "Returns the default memory pool for a given location
//! and allocation type": pinned memory of the host or of one of its nodes, managed memory with any preferred location.)

use cudarc::driver::CudaContext;
use cudarc::driver::sys::{CUmemAllocationType, CUmemoryPool};
use memtrace::snapshot::MemoryKind;
use memtrace::{Device, Snapshot, measure};

use super::raw;
use super::support::on_gpu;
use super::truth::{assert_equals_truth, assert_live_equals_truth};

const PINNED: u64 = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED as u64;
const MANAGED: u64 = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED as u64;
/// `CU_MEM_LOCATION_TYPE_…`.
const NONE: u64 = 0;
const DEVICE: u64 = 1;
const HOST: u64 = 2;
const HOST_NUMA: u64 = 3;

fn created(allocation: u64, location: u64, id: u64) -> CUmemoryPool {
    let mut words = [0; 11];
    words[..2].copy_from_slice(&[allocation, location | id << 32]);
    raw::pool_create(&mut words).unwrap()
}

fn default_at(allocation: u64, location: u64) -> CUmemoryPool {
    let kinds =
        [CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED, CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED];
    let kind = kinds[usize::from(allocation == MANAGED)];
    let pool = raw::default_pool_at(&mut [location], kind).unwrap();
    assert_eq!(raw::pool_at(&mut [location], kind), Ok(pool));
    pool
}

fn live(snapshot: &Snapshot, device: Device) -> u64 {
    snapshot.device(device).map_or(0, |device| device.stats.allocated_bytes.current)
}

#[test]
fn blocks_of_the_hosts_and_of_managed_pools_are_not_a_devices() {
    on_gpu(&[("MEMTRACE_CUSIM_DEVICES", "2")], || {
        let session = memtrace::start().unwrap();
        let _contexts = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap());
        let places = [
            (Device::Pinned, created(PINNED, HOST, 0)),
            (Device::Pinned, created(PINNED, HOST_NUMA, 0)),
            (Device::Pinned, default_at(PINNED, HOST)),
            (Device::Managed, created(MANAGED, NONE, 0)),
            (Device::Managed, created(MANAGED, DEVICE, 1)),
            (Device::Managed, created(MANAGED, HOST, 0)),
            (Device::Managed, default_at(MANAGED, NONE)),
            (Device::Cuda(1), created(PINNED, DEVICE, 1)),
        ];
        let mut expected = [0; 3];
        let devices = [Device::Pinned, Device::Managed, Device::Cuda(1)];
        let blocks: Vec<u64> = (places.iter().zip(1..))
            .map(|((device, pool), number)| {
                let size = 1000 * number;
                expected[devices.iter().position(|of| of == device).unwrap()] += size as u64;
                raw::alloc_from_pool(size, *pool, raw::PER_THREAD).unwrap()
            })
            .collect();
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        assert_eq!(devices.map(|device| live(&snapshot, device)), expected);
        assert_eq!(live(&snapshot, Device::Cuda(0)), 0);
        for device in devices {
            let blocks = &snapshot.device(device).unwrap().live;
            assert!(blocks.iter().all(|block| block.memory == MemoryKind::Pool), "{device}");
        }
        // The two calls that free memory of pools, and a block of each kind that is freed twice.
        for (at, block) in blocks.iter().enumerate() {
            if at % 2 == 0 { raw::free(*block) } else { raw::free_async(*block, raw::PER_THREAD) }.unwrap();
        }
        raw::free_async(blocks[0], raw::PER_THREAD).unwrap_err();
        raw::free(blocks[3]).unwrap_err();
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!(devices.map(|device| live(&snapshot, device)), [0; 3]);
        assert_eq!(snapshot.health.missed_frees, 0);
    });
}

#[test]
fn a_refused_free_of_a_host_pools_block_leaves_it_live() {
    on_gpu(&[("MEMTRACE_CUSIM_FAULTS", "fail@free:1")], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let block = raw::alloc_from_pool(1000, default_at(PINNED, HOST), raw::PER_THREAD).unwrap();
        raw::free_async(block, raw::PER_THREAD).unwrap_err();
        assert_eq!(live(&session.snapshot(), Device::Pinned), 1000);
        raw::free_async(block, raw::PER_THREAD).unwrap();
        let snapshot = session.snapshot();
        assert_eq!((live(&snapshot, Device::Pinned), snapshot.health.refused_frees), (0, 1));
    });
}

#[test]
fn a_measurement_has_the_blocks_of_a_host_pool() {
    on_gpu(&[], || {
        let _context = CudaContext::new(0).unwrap();
        let pool = created(PINNED, HOST, 0);
        let allocate = || raw::alloc_from_pool(5000, pool, raw::PER_THREAD).unwrap();
        let measured = measure(|| {
            raw::free_async(allocate(), raw::PER_THREAD).unwrap();
            allocate()
        });
        let on = |device| (measured.device(device).peak, measured.device(device).leaked, measured.device(device).frees);
        assert_eq!((on(Device::Pinned), on(Device::Cuda(0))), ((5000, 5000, 1), (0, 0, 0)));
        raw::free(measured.value).unwrap();
    });
}

#[test]
fn what_other_pools_had_before_is_not_the_devices() {
    on_gpu(&[], || {
        let _context = CudaContext::new(0).unwrap();
        let of_device = raw::alloc_async(3000, raw::PER_THREAD).unwrap();
        let others = [default_at(MANAGED, NONE), default_at(PINNED, HOST)]
            .map(|pool| raw::alloc_from_pool(1000, pool, raw::PER_THREAD).unwrap());
        let session = memtrace::start().unwrap();
        for block in others {
            raw::free_async(block, raw::PER_THREAD).unwrap();
        }
        let before = |snapshot: &Snapshot| snapshot.device(Device::Cuda(0)).unwrap().not_recorded;
        assert_eq!(before(&session.snapshot()), 3072);
        raw::free_async(of_device, raw::PER_THREAD).unwrap();
        assert_eq!(before(&session.snapshot()), 0);
    });
}
