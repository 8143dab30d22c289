//! The program's own pools, physical memory and its mappings, arrays.

use cudarc::driver::CudaContext;
use memtrace::analysis::{self, BalanceItem};
use memtrace::export::Text;
use memtrace::report::ReportOptions;
use memtrace::snapshot::{MemoryKind, RecordKind, StackContext};
use memtrace::{Device, DeviceView, scope};

use super::schema::checked_json;
use super::support::on_gpu;
use super::truth::{assert_equals_truth, assert_live_equals_truth};
use super::{raw, simulated_segments};

const MIB: usize = 1 << 20;

#[test]
fn physical_memory_lives_as_long_as_anything_refers_to_it() {
    on_gpu(&[("MEMTRACE_CUSIM_DEVICES", "2")], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let handle = scope("weights", || raw::physical(4 * MIB, 0).unwrap());
        let elsewhere = raw::physical(2 * MIB, 1).unwrap();
        assert!(raw::physical(5, 0).is_err(), "no multiple of the granularity");
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        let block = snapshot.device(Device::Cuda(0)).unwrap().live[0];
        assert_eq!((block.size, block.memory), (4 << 20, MemoryKind::Virtual));
        assert!(block.address >= 1 << 52 && snapshot.context_path(block.context) == "weights");
        let live = || session.snapshot().device(Device::Cuda(0)).unwrap().stats.allocated_bytes.current;

        let address = raw::reserve(8 * MIB, 0, 0, 0).unwrap();
        raw::map(address, 4 * MIB, 0, handle, 0).unwrap();
        raw::release_physical(handle).unwrap();
        assert_eq!(live(), 4 << 20, "it is mapped");
        let again = raw::retain_physical(address).unwrap();
        raw::map(address + (4 << 20), 4 * MIB, 0, again, 0).unwrap();
        raw::unmap(address, 8 * MIB).unwrap();
        assert_eq!(live(), 4 << 20, "there is a handle");
        assert!(raw::unmap(address, 4 * MIB).is_err(), "nothing is mapped there");
        raw::release_physical(again).unwrap();
        assert_eq!(live(), 0);
        assert!(raw::release_physical(again).is_err());
        raw::release_physical(elsewhere).unwrap();
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!((snapshot.health.unknown_frees, snapshot.health.missed_frees), (0, 0));
    });
}

#[test]
fn a_refused_unmapping_leaves_all_as_it_was() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let handles = [0, 1].map(|_| raw::physical(2 * MIB, 0).unwrap());
        let address = raw::reserve(8 * MIB, 0, 0, 0).unwrap();
        for (at, handle) in handles.into_iter().enumerate() {
            raw::map(address + (at * 2 * MIB) as u64, 2 * MIB, 0, handle, 0).unwrap();
            raw::release_physical(handle).unwrap();
        }
        assert!(raw::unmap(address, 3 * MIB).is_err(), "it ends within a mapping");
        assert_live_equals_truth(&session.snapshot());
        raw::unmap(address, 4 * MIB).unwrap();
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        assert_eq!(snapshot.device(Device::Cuda(0)).unwrap().live, []);
    });
}

#[test]
fn arrays_come_go_and_end_with_their_context() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let primary = CudaContext::new(0).unwrap();
        const FLOAT: u64 = 0x20;
        let flat = raw::array(&mut [100, 50, FLOAT | 4 << 32]).unwrap();
        let deep = raw::deep_array(&mut [16, 16, 16, FLOAT | 1 << 32, 0]).unwrap();
        let levels = raw::mipmapped_array(&mut [64, 64, 0, FLOAT | 1 << 32, 0], 3).unwrap();
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        let sizes: Vec<u64> = snapshot.device(Device::Cuda(0)).unwrap().live.iter().map(|block| block.size).collect();
        assert_eq!(sizes, [100 * 50 * 16, 16 * 16 * 16 * 4, 4 * (64 * 64 + 32 * 32 + 16 * 16)]);
        raw::array_destroy(flat).unwrap();
        raw::mipmapped_array_destroy(levels).unwrap();
        assert_live_equals_truth(&session.snapshot());
        let other = raw::context_create(std::ptr::null_mut(), 0, 0).unwrap();
        raw::array(&mut [10, 10, FLOAT | 1 << 32]).unwrap();
        raw::context_destroy(other).unwrap();
        assert_live_equals_truth(&session.snapshot());
        assert_eq!(session.snapshot().device(Device::Cuda(0)).unwrap().live.len(), 1, "the other context's");
        primary.bind_to_thread().unwrap();
        raw::primary_reset(0).unwrap();
        assert_live_equals_truth(&session.snapshot());
        assert_eq!(session.snapshot().device(Device::Cuda(0)).unwrap().live, []);
        let _ = deep;
    });
}

#[test]
fn the_faces_of_a_cube_do_not_halve() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        const CUBEMAP: u64 = 4;
        raw::mipmapped_array(&mut [64, 64, 6, 0x20 | 1 << 32, CUBEMAP], 3).unwrap();
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        let bytes = snapshot.device(Device::Cuda(0)).unwrap().stats.allocated_bytes.current;
        assert_eq!(bytes, 6 * 4 * (64 * 64 + 32 * 32 + 16 * 16));
    });
}

#[test]
fn arrays_stay_while_their_primary_context_has_users() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        raw::array(&mut [100, 50, 0x20 | 4 << 32]).unwrap();
        raw::primary_retain(0).unwrap();
        for bytes in [100 * 50 * 16, 0] {
            raw::primary_release(0).unwrap();
            let snapshot = session.snapshot();
            assert_live_equals_truth(&snapshot);
            assert_eq!(snapshot.device(Device::Cuda(0)).unwrap().stats.allocated_bytes.current, bytes);
        }
        std::mem::forget(context);
    });
}

#[test]
fn own_pools_are_asked_too_until_they_are_destroyed() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let pool = raw::pool_create(&mut {
            let mut words = [0; 11];
            words[..2].copy_from_slice(&[1, 1]);
            words
        })
        .unwrap();
        let block = raw::alloc_from_pool(1000, pool, raw::PER_THREAD).unwrap();
        let of_default = raw::alloc_async(2000, raw::PER_THREAD).unwrap();
        let memory = session.snapshot().device(Device::Cuda(0)).unwrap().memory.unwrap();
        assert_eq!((memory.own_pools, memory.own_pools_used, memory.own_pools_reserved), (1, 1024, 32 << 20));
        assert_eq!((memory.total - memory.free, memory.total), (64 << 20, 80 << 30));
        raw::free_async(block, raw::PER_THREAD).unwrap();
        raw::pool_trim(pool, 0).unwrap();
        let snapshot = session.snapshot();
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert_eq!((gpu.memory.unwrap().own_pools_reserved, gpu.stats.reserved_bytes.current), (0, 32 << 20));
        raw::pool_destroy(pool).unwrap();
        assert_eq!(session.snapshot().device(Device::Cuda(0)).unwrap().memory.unwrap().own_pools, 0);
        raw::free_async(of_default, raw::PER_THREAD).unwrap();
        assert_equals_truth(&session.snapshot(), true);
    });
}

#[test]
fn segments_come_and_go_as_the_driver_says() {
    on_gpu(&[], || {
        let session = memtrace::builder().context(StackContext::Alloc).start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let stream = raw::PER_THREAD;
        let blocks = [10, 20, 30, 5].map(|mib| raw::alloc_async(mib * MIB, stream).unwrap());
        let classic = raw::alloc(3 * MIB).unwrap();
        assert_eq!(session.snapshot().device(Device::Cuda(0)).unwrap().stats.reserved_bytes.current, 100 << 20);
        let told = |snapshot: &memtrace::Snapshot| {
            let gpu = snapshot.device(Device::Cuda(0)).unwrap();
            assert!(gpu.segments.iter().all(|segment| !segment.estimated));
            gpu.segments.iter().map(|segment| (segment.address, segment.size)).collect::<Vec<_>>()
        };
        assert_eq!(told(&session.snapshot()), simulated_segments(&blocks, classic));
        raw::free_async(blocks[2], stream).unwrap();
        assert_eq!(session.snapshot().device(Device::Cuda(0)).unwrap().stats.reserved_bytes.current, 100 << 20);
        raw::synchronise(stream).unwrap();
        raw::free(classic).unwrap();
        let snapshot = session.snapshot();
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert_eq!((gpu.stats.reserved_bytes.current, gpu.stats.reserved_bytes.peak), (64 << 20, 100 << 20));
        assert_eq!(gpu.pool.unwrap().reserved, 64 << 20);
        let log: Vec<_> = gpu.segment_records.iter().map(|r| (r.kind == RecordKind::Alloc, r.size >> 20)).collect();
        assert_eq!(log, [(true, 32), (true, 32), (true, 32), (true, 4), (false, 32), (false, 4)]);
        assert!(gpu.segment_records.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
        let took = gpu.segment_records[0];
        assert!(snapshot.stacks.frames(took.stack).any(|frame| frame.file_or_empty().ends_with("cuda/kinds.rs")));
        let growing: u64 = gpu.calls.iter().map(|time| time.growing).sum();
        assert_eq!((growing, gpu.calls.iter().map(|time| (time.allocs, time.frees)).fold((0, 0), add)), (4, (5, 2)));
        assert_equals_truth(&snapshot, true);
        // A call without a hook released the memory; the snapshot notices.
        raw::free_async(blocks[0], stream).unwrap();
        raw::free_async(blocks[1], stream).unwrap();
        super::truth::synchronise_unseen();
        let snapshot = session.snapshot();
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert_eq!((gpu.stats.reserved_bytes.current, gpu.pool.unwrap().reserved), (32 << 20, 32 << 20));
    });
}

fn add(sum: (u64, u64), one: (u64, u64)) -> (u64, u64) {
    (sum.0 + one.0, sum.1 + one.1)
}

#[test]
fn memory_of_others_is_an_account_of_its_own() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.default_stream();
        let own = stream.alloc_zeros::<u8>(1000).unwrap();
        let handle = super::truth::foreign_handle(5 << 20);
        let opened = [0, 1].map(|_| raw::ipc_open(handle).unwrap());
        assert_eq!(opened[0], opened[1], "the same handle gives the same address");
        let imported = |snapshot: &memtrace::Snapshot| {
            snapshot.device(Device::Imported).map_or(0, |d| d.stats.allocated_bytes.current)
        };
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        assert_eq!(imported(&snapshot), 5 << 20);
        assert_eq!(snapshot.device(Device::Cuda(0)).unwrap().stats.allocated_bytes.current, 1000);
        raw::ipc_close(opened[0]).unwrap();
        assert_eq!(imported(&session.snapshot()), 5 << 20);
        raw::ipc_close(opened[0]).unwrap();
        assert_eq!(imported(&session.snapshot()), 0);
        raw::ipc_close(opened[0]).unwrap_err();

        let external = raw::external(&mut [1, 0, 0, 3 << 20, 0]).unwrap();
        let buffer = raw::external_buffer(external, 1 << 20).unwrap();
        assert_eq!(imported(&session.snapshot()), 3 << 20);
        raw::free(buffer).unwrap();
        raw::external_destroy(external).unwrap();
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!((snapshot.health.unknown_frees, snapshot.health.missed_frees), (0, 0));
        assert_eq!(snapshot.health.refused_frees, 1);
        drop(own);
    });
}

#[test]
fn physical_memory_of_others_is_entered_where_it_is_mapped() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        // SAFETY: creates a file in memory.
        let file = unsafe { libc::memfd_create(c"others".as_ptr(), 0) };
        // SAFETY: the file was created above.
        assert_eq!(unsafe { libc::ftruncate(file, 4 << 20) }, 0);
        let handle = raw::import_physical(file).unwrap();
        let address = raw::reserve(4 * MIB, 0, 0, 0).unwrap();
        raw::map(address, 4 * MIB, 0, handle, 0).unwrap();
        raw::release_physical(handle).unwrap();
        let live = |snapshot: &memtrace::Snapshot| snapshot.device(Device::Imported).unwrap().live.clone();
        let found = live(&session.snapshot());
        assert_eq!(found.iter().map(|b| (b.address, b.size)).collect::<Vec<_>>(), [(address, 4 << 20)]);
        raw::unmap(address, 4 * MIB).unwrap();
        assert_eq!(live(&session.snapshot()), []);
        assert_eq!(session.snapshot().health.unknown_frees, 0);
    });
}

#[test]
fn two_devices_balance_beside_other_processes_contexts_and_modules() {
    let variables = [
        ("MEMTRACE_CUSIM_DEVICES", "2"),
        ("MEMTRACE_CUSIM_OTHERS", "3GiB,100MiB"),
        ("MEMTRACE_CUSIM_CONTEXT", "256MiB"),
        ("MEMTRACE_CUSIM_MODULE", "7MiB"),
    ];
    on_gpu(&variables, || {
        let session = memtrace::start().unwrap();
        let contexts = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap());
        let streams = contexts.each_ref().map(|context| context.new_stream().unwrap());
        let kept = streams.each_ref().map(|stream| stream.alloc_zeros::<u8>(1_000_001).unwrap());
        contexts[0].bind_to_thread().unwrap();
        let classic = raw::alloc(100).unwrap();
        let handle = raw::physical(6 * MIB, 1).unwrap();
        let array = raw::array(&mut [33, 7, 0x20 | 1 << 32]).unwrap();
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        let unexplained = |ordinal| {
            let rows = analysis::balance(&DeviceView::of(&snapshot, snapshot.device(Device::Cuda(ordinal)).unwrap()))
                .unwrap()
                .rows;
            rows.iter().find(|row| row.item == BalanceItem::Unexplained).unwrap().bytes
        };
        assert_eq!((unexplained(0), unexplained(1)), ((3 << 30) + (256 << 20), 356 << 20));
        let report = ReportOptions { device: Some(Device::Cuda(0)), ..ReportOptions::default() };
        let text = Text { report, ..Text::default() }.render(&snapshot).unwrap();
        checked_json(&snapshot);
        eprintln!("{text}");
        for expected in [
            "Where the device's memory is",
            "= all that is used",
            "unexplained",
            "unused rest of cuMemAlloc's segments",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        raw::free(classic).unwrap();
        raw::release_physical(handle).unwrap();
        raw::array_destroy(array).unwrap();
        drop(kept);
        streams.iter().for_each(|stream| stream.synchronize().unwrap());
        assert_equals_truth(&session.snapshot(), true);
    });
}

#[test]
fn once_no_context_is_left_the_drivers_numbers_are_those_from_before() {
    let variables = [("MEMTRACE_CUSIM_OTHERS", "3GiB"), ("MEMTRACE_CUSIM_CONTEXT", "256MiB")];
    on_gpu(&variables, || {
        let session = memtrace::start().unwrap();
        let used = || {
            let snapshot = session.snapshot();
            let gpu = snapshot.device(Device::Cuda(0)).unwrap();
            analysis::balance(&DeviceView::of(&snapshot, gpu)).map(|balance| {
                let is_rest = |row: &&analysis::BalanceRow| row.item == BalanceItem::Unexplained;
                (balance.used, balance.rows.iter().filter(is_rest).map(|row| row.bytes).sum::<i64>())
            })
        };
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        drop(stream.alloc_zeros::<u8>(1_000_000).unwrap());
        drop(stream);
        drop(context);
        let process = (3i64 << 30) + (256 << 20);
        let (before, rest) = used().expect("there were numbers while there was a context");
        assert!(before >= process as u64 && rest == process, "{before} {rest}");
        // What went with its context would have to be a row, but is live no more.
        let context = CudaContext::new(0).unwrap();
        raw::alloc(5000).unwrap();
        raw::primary_release(0).unwrap();
        std::mem::forget(context);
        assert_eq!(used(), None);
    });
}

#[test]
fn a_context_that_ends_leaves_what_was_said_before_of_another_device() {
    let variables = [("MEMTRACE_CUSIM_DEVICES", "2"), ("MEMTRACE_CUSIM_CONTEXT", "256MiB")];
    on_gpu(&variables, || {
        let session = memtrace::start().unwrap();
        let contexts = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap());
        for context in &contexts {
            drop(context.new_stream().unwrap().alloc_zeros::<u8>(1000).unwrap());
        }
        drop(contexts);
        let snapshot = session.snapshot();
        let memory = [0, 1].map(|ordinal| snapshot.device(Device::Cuda(ordinal)).unwrap().memory);
        assert!(memory.iter().flatten().all(|memory| memory.total - memory.free >= 256 << 20), "{memory:?}");
        assert!(memory.iter().all(Option::is_some), "{memory:?}");
    });
}
