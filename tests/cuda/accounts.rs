//! Ledgers of devices: from one recording to the next, and beside the CPU's ledger.

use cudarc::driver::CudaContext;
use memtrace::snapshot::RecordKind;
use memtrace::{Device, StackContext, open, scope};

use crate::child::eventually;
use crate::raw;
use crate::support::on_gpu;

fn live(snapshot: &memtrace::Snapshot) -> Vec<u64> {
    snapshot.device(Device::Cuda(0)).map_or(Vec::new(), |gpu| gpu.live.iter().map(|block| block.size).collect())
}

#[test]
fn each_recording_has_its_own_blocks() {
    on_gpu(&[], || {
        let _context = CudaContext::new(0).unwrap();
        let session = memtrace::start().unwrap();
        let first = raw::alloc(1000).unwrap();
        drop(session);
        let session = memtrace::start().unwrap();
        raw::alloc(10).unwrap();
        assert_eq!(live(&session.snapshot()), [10]);
        raw::free(first).unwrap();
        let snapshot = session.snapshot();
        assert_eq!((live(&snapshot), snapshot.health.unknown_frees), (vec![10], 1));
    });
}

#[test]
fn a_schedule_begins_the_accounts_of_devices_anew() {
    on_gpu(&[], || {
        let stream = CudaContext::new(0).unwrap().default_stream();
        let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let ready = std::sync::Arc::clone(&seen);
        let session = memtrace::builder()
            .schedule(1, 1, 1, 2)
            .on_trace_ready(move |snapshot| {
                let gpu = snapshot.device(Device::Cuda(0)).unwrap();
                let pool = gpu.pool.unwrap();
                ready.lock().unwrap().push((gpu.records.len(), gpu.peak.bytes, pool.used, pool.used_before.unwrap()));
                let calls = gpu.calls.iter().fold((0, 0), |sum, time| (sum.0 + time.allocs, sum.1 + time.frees));
                assert_eq!(calls, (2, 1), "those of the step");
                let reserved = gpu.stats.reserved_bytes;
                assert_eq!((reserved.current, reserved.peak, reserved.allocated), (32 << 20, 32 << 20, 0));
            })
            .start()
            .unwrap();
        let mut kept = Vec::new();
        for step in 1..=6usize {
            drop(stream.alloc_zeros::<u8>(512 * step).unwrap());
            kept.push(stream.alloc_zeros::<u8>(512 << step).unwrap());
            session.step();
        }
        // Steps 3 and 6 are recorded; 2 and 5 warm them up, and what they kept is still live. The pool was queried when
        // the warm-up began.
        let sum = |steps: std::ops::RangeInclusive<u64>| steps.map(|step| 512 << step).sum::<u64>();
        let first = (3, sum(1..=3), sum(1..=3), 512 * 2);
        let second = (3, sum(1..=6), sum(1..=6), sum(1..=4));
        assert_eq!(*seen.lock().unwrap(), [first, second]);
    });
}

#[test]
fn the_threshold_is_the_heaps() {
    on_gpu(&[], || {
        let session = memtrace::builder().min_size("64 KiB").start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        raw::alloc(100).unwrap();
        assert_eq!(live(&session.snapshot()), [100]);
    });
}

#[test]
fn blocks_of_the_heap_are_not_in_the_devices_scopes() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        context.bind_to_thread().unwrap();
        // A clock per device would lag by this time, which is longer than the time between the ends of two scopes.
        std::thread::sleep(std::time::Duration::from_millis(20));
        scope("earlier", || drop(std::hint::black_box(vec![1u8; 8 << 20])));
        scope("outer", || {
            let large = std::hint::black_box(vec![1u8; 8 << 20]);
            scope("inner", || raw::alloc(5000).unwrap());
            drop(large);
            raw::alloc(300).unwrap();
        });
        let snapshot = session.snapshot();
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        let scopes = gpu.scopes.iter().map(|s| (snapshot.context_path(s.context), s.own_peak, s.total_peak));
        let expected = [("earlier", 0, 0), ("outer", 5300, 5300), ("outer > inner", 5000, 5000)]
            .map(|(a, b, c)| (a.to_owned(), b, Some(c)));
        assert_eq!(scopes.collect::<Vec<_>>(), expected);
        let times = |device| snapshot.device(device).unwrap().marks.iter().map(|mark| mark.time_ns).collect::<Vec<_>>();
        let (ours, heaps) = (times(Device::Cuda(0)), times(Device::Cpu));
        assert_eq!(ours.len(), heaps.len());
        // Both ledgers get a scope before either gets the next. Times are read from the TSC, so they are nearly equal.
        const NEARLY: u64 = 1_000_000;
        let follow = |one: &[u64], other: &[u64]| one.iter().zip(&other[1..]).all(|(a, b)| *a <= b + NEARLY);
        assert!(follow(&ours, &heaps) && follow(&heaps, &ours), "{ours:?} {heaps:?}");
    });
}

#[test]
fn a_free_is_of_the_thread_and_the_line_that_frees() {
    on_gpu(&[], || {
        let session = memtrace::builder().context(StackContext::All).start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let address = raw::alloc(100).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                context.bind_to_thread().unwrap();
                raw::free(address).unwrap();
            });
        });
        let snapshot = session.snapshot();
        let [alloc, free] = snapshot.device(Device::Cuda(0)).unwrap().records[..] else { panic!("two records") };
        assert_eq!((alloc.kind, free.kind), (RecordKind::Alloc, RecordKind::Free));
        assert_ne!(alloc.thread, free.thread);
        assert_ne!(alloc.stack, free.stack);
        assert_eq!(alloc.stack, free.alloc_stack);
        assert!(snapshot.stacks.frames(free.stack).any(|frame| frame.function_or_empty().contains("free")));
    });
}

#[test]
fn streams_have_numbers_of_their_own() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let (one, two) = (context.new_stream().unwrap(), context.new_stream().unwrap());
        let other = raw::context_create(std::ptr::null_mut(), 0, 0).unwrap();
        let mut streams = Vec::new();
        for current in [context.cu_ctx(), other] {
            raw::set_current(current).unwrap();
            for stream in [raw::LEGACY, raw::PER_THREAD, one.cu_stream(), two.cu_stream(), one.cu_stream()] {
                raw::alloc_async(1000, stream).unwrap();
            }
        }
        raw::alloc(1000).unwrap();
        let snapshot = session.snapshot();
        streams.extend(snapshot.device(Device::Cuda(0)).unwrap().live.iter().map(|block| block.stream));
        // Two default streams for each context, and two other streams, which are the same in both.
        assert_eq!(streams, [1, 2, 3, 4, 3, 5, 6, 3, 4, 3, 0]);
    });
}

#[test]
fn pinned_memory_is_not_freed_as_a_devices() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let host = raw::host_alloc(100, 0).unwrap();
        assert!(raw::free(host as u64).is_err());
        let snapshot = session.snapshot();
        assert_eq!(snapshot.device(Device::Pinned).unwrap().records.len(), 1, "nothing was freed and put back");
        assert_eq!(snapshot.health.refused_frees, 1);
    });
}

#[test]
fn a_stream_has_the_drivers_figures_of_a_device_that_came_just_before_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.memtrace");
    on_gpu(&[("TEST_OUT", path.to_str().unwrap())], || {
        let out = std::env::var("TEST_OUT").unwrap();
        let context = CudaContext::new(0).unwrap();
        let session = memtrace::builder().stream(&out).start().unwrap();
        let written = || open(&out).is_ok_and(|read| read.device(Device::Cpu).is_some());
        eventually("it was written for the first time", written);
        raw::alloc_async(3000, raw::LEGACY).unwrap();
        drop(session);
        let read = open(&out).unwrap();
        let gpu = read.device(Device::Cuda(0)).unwrap();
        assert_eq!(gpu.pool.map(|pool| pool.used), Some(3072));
        assert!(gpu.memory.is_some() && live(&read) == [3000]);
        drop(context);
    });
}

/// In the newest part, too, and of a device whose context is not the current one.
#[test]
fn a_stream_has_the_size_of_each_device_while_it_grows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.memtrace");
    let variables = [("MEMTRACE_CUSIM_DEVICES", "2"), ("MEMTRACE_CUSIM_MEMORY", "3GiB")];
    on_gpu(&[&variables[..], &[("TEST_OUT", path.to_str().unwrap())]].concat(), || {
        let out = std::env::var("TEST_OUT").unwrap();
        let [first, _second] = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap());
        let session = memtrace::builder().stream(&out).stream_budget(128 << 10).start().unwrap();
        let other = raw::alloc(3000).unwrap();
        first.bind_to_thread().unwrap();
        raw::alloc(5000).unwrap();
        session.flush();
        let sizes = || {
            let read = open(&out).unwrap();
            [0, 1].map(|ordinal| {
                let device = read.device(Device::Cuda(ordinal)).unwrap();
                assert_eq!(device.memory, None, "it is not the end");
                device.capacity()
            })
        };
        assert_eq!(sizes(), [Some(3 << 30); 2]);
        while !folder_has_third_part(&out) {
            (0..1000).for_each(|_| raw::free(raw::alloc(3000).unwrap()).unwrap());
            session.flush();
        }
        assert_eq!(sizes(), [Some(3 << 30); 2]);
        raw::free(other).unwrap();
        drop(session);
        assert_eq!(open(&out).unwrap().device(Device::Cuda(1)).unwrap().capacity(), Some(3 << 30));
    });
}

fn folder_has_third_part(out: &str) -> bool {
    std::path::Path::new(&out.replace(".memtrace", ".3.memtrace")).exists()
}

#[test]
fn what_was_in_use_before_is_asked_of_the_pool() {
    on_gpu(&[], || {
        raw::init(0).unwrap();
        let _other = raw::context_create(std::ptr::null_mut(), 0, 0).unwrap();
        raw::alloc_async(1000, raw::LEGACY).unwrap();
        let session = memtrace::start().unwrap();
        raw::alloc_async(3000, raw::LEGACY).unwrap();
        let snapshot = session.snapshot();
        let pool = snapshot.device(Device::Cuda(0)).unwrap().pool.unwrap();
        assert_eq!((pool.used, pool.used_before), (4096, Some(1024)));
        assert!(!snapshot.report().to_string().contains("something was not seen"));
    });
}
