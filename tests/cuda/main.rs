//! CUDA memory of programs on cudarc, which loads the driver at run time: recordings on a simulated GPU are compared
//! with the simulator's log.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
#![allow(unsafe_code, reason = "the driver is called in C")]

mod accounts;
mod captures;
#[path = "../support/child.rs"]
mod child;
mod constructors;
mod faults;
mod fits;
mod graphs;
mod harmless;
mod imports;
mod in_flight;
mod integrated;
mod kernels;
mod kinds;
mod libraries;
mod lookups;
mod measures;
mod modules;
mod older_forms;
mod other_layers;
mod physical;
mod pools;
mod raw;
#[path = "../support/schema.rs"]
mod schema;
mod sparse_arrays;
mod stacks;
mod support;
mod threads;
mod truth;
mod unlinked;
mod uses;
mod uses_oracle;
mod uses_waste;

use cudarc::driver::CudaContext;
use memtrace::{Device, scope};
use support::on_gpu;
use truth::{assert_equals_truth, assert_live_equals_truth};

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

/// The simulator's segments around these addresses, sorted: (address, size).
fn simulated_segments(blocks: &[u64], classic: u64) -> Vec<(u64, u64)> {
    let mut all: Vec<(u64, u64)> = blocks.iter().chain([&classic]).map(|address| raw::mapping(*address)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn every_allocation_is_recorded_with_its_stack_and_scope() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let kept = scope("kept", || stream.clone_htod(&[1u32; 1000]).unwrap());
        drop(scope("temporary", || stream.alloc_zeros::<f32>(50).unwrap()));
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert_eq!((gpu.peak.bytes, gpu.stats.allocated_bytes.current), (4200, 4000));
        let [block] = &gpu.live[..] else { panic!("{:?}", gpu.live) };
        assert_eq!(snapshot.context_path(block.context), "kept");
        assert!(snapshot.stacks.frames(block.stack).any(|frame| frame.file_or_empty().ends_with("cuda/main.rs")));
        assert!(snapshot.health.cuda.state.is_active());
        assert!(snapshot.health.cuda.looked_up + snapshot.health.cuda.imports > 0);
        let pool = gpu.pool.unwrap();
        assert_eq!((pool.used, pool.reserved), (4096, 32 << 20));
        drop(kept);
    });
}

#[test]
fn a_session_that_begins_late_sees_what_comes() {
    on_gpu(&[], || {
        let context = CudaContext::new(0).unwrap();
        let stream = context.default_stream();
        let before = stream.alloc_zeros::<u8>(1000).unwrap();
        let session = memtrace::start().unwrap();
        let block = stream.alloc_zeros::<u8>(3000).unwrap();
        let snapshot = session.snapshot();
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert_eq!((gpu.not_recorded, gpu.peak.not_recorded, gpu.peak.bytes), (1024, 1024, 4024));
        drop(before);
        let snapshot = session.snapshot();
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert_eq!((gpu.not_recorded, gpu.peak.not_recorded, gpu.peak.bytes), (0, 1024, 4024));
        assert_eq!((gpu.stats.allocated_bytes.current, gpu.stats.allocated_bytes.peak), (3000, 4024));
        assert_eq!(snapshot.health.unknown_frees, 1);
        assert_eq!(gpu.pool.unwrap().used_before, Some(1024));
        assert_eq!(gpu.pool.unwrap().used, 3072);
        drop(block);
    });
}

#[test]
fn all_kinds_of_memory_are_told_apart() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let mut registered = vec![0u8; 8192];
        let registered = registered.as_mut_ptr().cast();
        let classic = raw::alloc(100).unwrap();
        let (pitched, pitch) = raw::alloc_pitch(10, 7).unwrap();
        let managed = raw::managed(200, 1).unwrap();
        let (host, plain) = (raw::host_alloc(300, 0).unwrap(), raw::host_alloc_plain(400).unwrap());
        raw::host_register(registered, 8192, 0).unwrap();
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        let live = |device| snapshot.device(device).unwrap().stats.allocated_bytes.current;
        assert_eq!(live(Device::Cuda(0)), 100 + pitch as u64 * 7);
        assert_eq!((live(Device::Managed), live(Device::Pinned)), (200, 300 + 400 + 8192));
        [classic, pitched, managed].into_iter().for_each(|address| raw::free(address).unwrap());
        [host, plain].into_iter().for_each(|address| raw::host_free(address).unwrap());
        raw::host_unregister(registered).unwrap();
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert!(snapshot.devices.iter().filter(|d| d.device != Device::Cpu).all(|d| d.live.is_empty()));
        assert_eq!((snapshot.health.unknown_frees, snapshot.health.refused_frees), (0, 0));
    });
}

#[test]
fn cudarc_objects_come_and_go_as_the_driver_sees_it() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let leaked = stream.alloc_zeros::<u8>(7000).unwrap().leak();
        drop(stream.null::<u8>());
        // SAFETY: the block was leaked, has this size, and nothing else frees it.
        let upgraded = unsafe { stream.upgrade_device_ptr::<u8>(leaked, 7000) };
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!(snapshot.device(Device::Cuda(0)).unwrap().live.len(), 1, "leaking and upgrading are no calls");
        drop(upgraded);
        // SAFETY: nothing is read from it.
        drop(unsafe { context.alloc_pinned::<u64>(100) }.unwrap());
        // SAFETY: nothing is read from it.
        let unified = unsafe { context.alloc_unified::<f32>(300, true) }.unwrap();
        assert_live_equals_truth(&session.snapshot());
        drop(unified);
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!(snapshot.health.unknown_frees, 0);
    });
}

#[test]
fn each_device_has_an_account_of_its_own() {
    on_gpu(&[("MEMTRACE_CUSIM_DEVICES", "3")], || {
        let session = memtrace::start().unwrap();
        let contexts = [0, 1, 2].map(|ordinal| CudaContext::new(ordinal).unwrap());
        let streams = contexts.each_ref().map(|context| context.new_stream().unwrap());
        let blocks = streams.each_ref().map(|stream| stream.alloc_zeros::<u8>(1000 + stream.context().ordinal()));
        // The context of another device is current: the stream decides the device, also for the free.
        contexts[0].bind_to_thread().unwrap();
        let there = raw::alloc_async(5000, streams[2].cu_stream()).unwrap();
        let here = raw::alloc_async(6000, raw::PER_THREAD).unwrap();
        let of_pool = raw::alloc_from_pool(70, raw::default_pool(1).unwrap(), raw::PER_THREAD).unwrap();
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        let live = |ordinal| snapshot.device(Device::Cuda(ordinal)).unwrap().stats.allocated_bytes.current;
        assert_eq!([live(0), live(1), live(2)], [7000, 1071, 6002]);
        drop(blocks);
        raw::free_async(there, raw::LEGACY).unwrap();
        raw::free(here).unwrap();
        raw::free_async(of_pool, raw::PER_THREAD).unwrap();
        assert_equals_truth(&session.snapshot(), true);
    });
}

#[test]
fn only_the_device_that_was_asked_for_is_recorded() {
    on_gpu(&[("MEMTRACE_CUSIM_DEVICES", "2")], || {
        let session = memtrace::builder().device(Device::Cuda(1)).start().unwrap();
        let streams = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap().default_stream());
        let blocks = streams.each_ref().map(|stream| stream.alloc_zeros::<u8>(1000));
        drop(blocks);
        let snapshot = session.snapshot();
        assert_eq!(
            snapshot.devices.iter().map(|d| (d.device, d.records.len())).collect::<Vec<_>>(),
            [(Device::Cuda(1), 2)]
        );
        assert_eq!(snapshot.health.unknown_frees, 0, "what is not recorded is not unknown");
    });
}

#[test]
fn scopes_that_were_open_before_the_first_block_hold_it() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        scope("earlier", || ());
        let context = scope("load", || {
            let stream = CudaContext::new(0).unwrap().default_stream();
            drop(stream.alloc_zeros::<u8>(5000).unwrap());
            stream
        });
        scope("later", || drop(context.alloc_zeros::<u8>(2000).unwrap()));
        let snapshot = session.snapshot();
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        let scopes = gpu.scopes.iter().map(|s| (snapshot.context_path(s.context), s.calls, s.own_peak, s.total_peak));
        let expected = [("earlier", 0, 0), ("load", 5000, 5000), ("later", 2000, 2000)];
        let expected = expected.map(|(name, own, total)| (name.to_owned(), 1, own, Some(total)));
        assert_eq!(scopes.collect::<Vec<_>>(), expected);
        assert_eq!(gpu.marks.len(), 6);
    });
}

#[test]
fn contexts_take_their_memory_with_them() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let primary = CudaContext::new(0).unwrap();
        let kept = raw::alloc(100).unwrap();
        let other = raw::context_create(std::ptr::null_mut(), 0, 0).unwrap();
        let gone = [raw::alloc(1000).unwrap(), raw::managed(2000, 1).unwrap()];
        raw::alloc_async(3000, raw::PER_THREAD).unwrap();
        assert_live_equals_truth(&session.snapshot());
        raw::context_destroy(other).unwrap();
        assert_live_equals_truth(&session.snapshot());
        assert!(session.snapshot().devices.iter().all(|d| d.live.iter().all(|b| !gone.contains(&b.address))));
        primary.bind_to_thread().unwrap();
        let again = CudaContext::new(0).unwrap();
        drop(again);
        assert_live_equals_truth(&session.snapshot());
        assert!(session.snapshot().device(Device::Cuda(0)).unwrap().live.iter().any(|b| b.address == kept));
        raw::primary_reset(0).unwrap();
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        assert_eq!(snapshot.device(Device::Cuda(0)).unwrap().stats.allocated_bytes.current, 0);
        assert_eq!((snapshot.health.unknown_frees, snapshot.health.refused_frees), (0, 0));
    });
}

#[test]
fn a_snapshot_does_not_spoil_a_capture() {
    on_gpu(&[], || {
        use cudarc::driver::sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL;
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let block = stream.alloc_zeros::<u8>(1000).unwrap();
        raw::begin_capture(stream.cu_stream(), CU_STREAM_CAPTURE_MODE_GLOBAL).unwrap();
        let pool = session.snapshot().device(Device::Cuda(0)).unwrap().pool;
        let elsewhere = std::thread::scope(|scope| {
            scope.spawn(|| session.snapshot().device(Device::Cuda(0)).unwrap().pool).join().unwrap()
        });
        assert_eq!((pool.unwrap().used, elsewhere.unwrap().used), (1024, 1024));
        raw::end_capture(stream.cu_stream()).expect("the capture is whole");
        drop(block);
    });
}
