//! Faults, and the end of a process.

use std::fs;

use cudarc::driver::sys::CUresult;
use cudarc::driver::{CudaContext, DriverError};
use memtrace::{Device, SnapshotData, analysis, open, scope};

use crate::raw;
use crate::schema::checked_json;
use crate::support::on_gpu;
use crate::truth::{assert_equals_truth, assert_live_equals_truth};

#[test]
fn a_refused_allocation_is_no_block_and_is_dumped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("oom.memtrace");
    let out = path.to_str().unwrap().to_owned();
    let errors = on_gpu(&[("MEMTRACE_CUSIM_MEMORY", "500MiB"), ("TEST_OUT", &out)], || {
        let out = std::env::var("TEST_OUT").unwrap();
        let session = memtrace::builder().dump_to(&out).dump_on_oom(true).start().unwrap();
        let stream = CudaContext::new(0).unwrap().default_stream();
        let kept = scope("model", || stream.alloc_zeros::<u8>(300 << 20).unwrap());
        let error = scope("forward", || stream.alloc_zeros::<u8>(300 << 20).unwrap_err());
        assert_eq!(error.0, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        let small = stream.alloc_zeros::<u8>(1 << 20).unwrap();
        assert_equals_truth(&session.snapshot(), true);
        drop((kept, small));
    });
    let line = |text: &str| include_str!("faults.rs").lines().position(|line| line.contains(text)).unwrap() + 1;
    let model = format!("cuda/faults.rs:{}", line("let kept = scope("));
    for expected in [
        "after an allocation of 300.0 MiB on cuda:0 failed",
        "memtrace: cuda:0 is out of memory",
        "Requested         300.0 MiB (314,572,800 bytes)",
        "of 500.0 MiB, with other processes counted as used",
        "100.0 MiB more were needed: the first line below holds that much",
        "300.0 MiB  100.0       1  300.0 MiB  model",
        &model,
    ] {
        assert!(errors.contains(expected), "{expected}: {errors}");
    }
    let capture = open(&path).unwrap();
    let gpu = capture.device(Device::Cuda(0)).unwrap();
    assert_eq!((gpu.peak.bytes, gpu.live.len()), (300 << 20, 1));
    let [oom] = gpu.ooms[..] else { panic!("{:?}", gpu.ooms) };
    assert_eq!((oom.size, oom.device_total, gpu.stats.num_ooms), (300 << 20, Some(500 << 20), 1));
    assert_eq!(capture.context_path(oom.context), "forward");
    assert!(capture.report().to_string().contains("Out of memory    1 times, the last for 300.0 MiB"));
    assert_eq!(oom.device_free.unwrap() + gpu.pool.unwrap().reserved, 500 << 20);
    assert_eq!(gpu.pool.unwrap().used, 300 << 20, "the driver was asked in the middle of it");
}

/// The other device has more free memory, and its context is current. The pool holds segments of 32 MiB.
#[test]
fn a_refused_request_is_of_the_streams_device() {
    let devices = [("MEMTRACE_CUSIM_MEMORY", "500MiB"), ("MEMTRACE_CUSIM_DEVICES", "2")];
    on_gpu(&devices, || {
        let session = memtrace::start().unwrap();
        let contexts = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap());
        let there = contexts[1].new_stream().unwrap();
        let full = there.alloc_zeros::<u8>(400 << 20).unwrap();
        contexts[0].bind_to_thread().unwrap();
        raw::alloc_async(300 << 20, there.cu_stream()).unwrap_err();
        raw::alloc_async(600 << 20, raw::LEGACY).unwrap_err();
        raw::alloc(700 << 20).unwrap_err();
        raw::physical(800 << 20, 1).unwrap_err();
        let own = raw::shared_pool(1).unwrap();
        raw::alloc_from_pool(900 << 20, own, raw::LEGACY).unwrap_err();
        let snapshot = session.snapshot();
        let ooms = |ordinal| {
            let ooms = snapshot.device(Device::Cuda(ordinal)).map_or(&[][..], |gpu| &gpu.ooms);
            ooms.iter().map(|oom| (oom.size >> 20, oom.device_free.map(|free| free >> 20))).collect::<Vec<_>>()
        };
        assert_eq!(ooms(0), [600, 700].map(|size| (size, Some(500))));
        assert_eq!(ooms(1), [300, 800, 900].map(|size| (size, Some(84))));
        drop(full);
    });
}

#[test]
fn refused_rows_are_as_many_bytes_as_were_asked_for() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        raw::alloc_pitch(1 << 40, 64).unwrap_err();
        let snapshot = session.snapshot();
        let ooms = &snapshot.device(Device::Cuda(0)).unwrap().ooms;
        assert_eq!(ooms.iter().map(|oom| oom.size).collect::<Vec<_>>(), [64 << 40]);
    });
}

/// The dump creates a folder and looks for a file that does not exist.
#[test]
fn errno_is_the_programs_after_a_dump() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/oom.memtrace");
    on_gpu(&[("TEST_OUT", path.to_str().unwrap())], || {
        let out = std::env::var("TEST_OUT").unwrap();
        let _session = memtrace::builder().dump_to(&out).dump_on_oom(true).start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        // SAFETY: the thread's own variable.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the pointer is valid.
        unsafe { errno.write(77) };
        raw::alloc(1 << 45).unwrap_err();
        // SAFETY: the pointer is valid.
        assert_eq!(unsafe { errno.read() }, 77);
    });
    assert!(path.exists());
}

#[test]
fn who_asks_again_for_as_much_retries() {
    on_gpu(&[("MEMTRACE_CUSIM_MEMORY", "64MiB")], || {
        let session = memtrace::start().unwrap();
        let stream = CudaContext::new(0).unwrap().default_stream();
        let counts = || {
            let stats = memtrace::stats(Device::Cuda(0));
            (stats.num_ooms, stats.num_alloc_retries)
        };
        let kept = stream.alloc_zeros::<u8>(40 << 20).unwrap();
        stream.alloc_zeros::<u8>(30 << 20).unwrap_err();
        assert_eq!(counts(), (1, 0));
        stream.alloc_zeros::<u8>(30 << 20).unwrap_err();
        assert_eq!(counts(), (2, 1));
        drop(kept);
        drop(stream.alloc_zeros::<u8>(30 << 20).unwrap());
        drop(stream.alloc_zeros::<u8>(30 << 20).unwrap());
        assert_eq!(counts(), (2, 2), "the last was not refused before");
        stream.alloc_zeros::<u8>(65 << 20).unwrap_err();
        drop(stream.alloc_zeros::<u8>(1 << 20).unwrap());
        drop(stream.alloc_zeros::<u8>(65 << 19).unwrap());
        assert_eq!(counts(), (3, 2), "something else was asked for");
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert!(snapshot.report().to_string().contains("2 refused requests were repeated at once"));
    });
}

fn keep(context: &CudaContext) -> Result<(), DriverError> {
    use cudarc::driver::{result, sys, sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD};
    let mut keep: u64 = 67108864;
    // SAFETY: the device is there.
    let pool = unsafe { result::device::get_default_mem_pool(context.cu_device())? };
    let set = (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut keep).cast());
    // SAFETY: the attribute is a word.
    unsafe { sys::cuMemPoolSetAttribute(pool, set.0, set.1) }.result()?;
    Ok(())
}

#[test]
fn a_pool_that_gives_back_and_takes_again_is_advised_to_keep() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.default_stream();
        for _ in 0..3 {
            drop(stream.alloc_zeros::<u8>(40 << 20).unwrap());
            stream.synchronize().unwrap();
        }
        let snapshot = session.snapshot();
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        let churn = analysis::churn(gpu).unwrap();
        assert_eq!((churn.bytes, churn.calls, churn.release_threshold, churn.keep), (128 << 20, 3, 0, 64 << 20));
        assert!(churn.ns > 0 && churn.ns <= analysis::time_in_driver(gpu).ns());
        let text = snapshot.report().to_string();
        assert!(text.contains("reserved 128.0 MiB again; the 3 calls"), "{text}");
        checked_json(&snapshot);
        // The advice names a line of this file, and is followed.
        let advice: Vec<&str> = text.lines().skip_while(|line| !line.contains("use cudarc::")).take(5).collect();
        assert!(advice.iter().all(|line| include_str!("faults.rs").contains(line.trim())), "{advice:#?}");
        keep(&context).unwrap();
        drop(session);
        let session = memtrace::start().unwrap();
        for _ in 0..3 {
            drop(stream.alloc_zeros::<u8>(40 << 20).unwrap());
            stream.synchronize().unwrap();
        }
        assert_eq!(analysis::churn(session.snapshot().device(Device::Cuda(0)).unwrap()), None);
    });
}

#[test]
fn a_refused_free_leaves_the_block_live() {
    on_gpu(&[("MEMTRACE_CUSIM_FAULTS", "fail@free:2")], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let [first, second] = [1000, 2000].map(|size| raw::alloc_async(size, raw::LEGACY).unwrap());
        raw::free_async(first, raw::LEGACY).unwrap();
        assert_eq!(raw::free_async(second, raw::LEGACY), Err(CUresult::CUDA_ERROR_UNKNOWN));
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert_eq!((gpu.live.len(), gpu.live[0].address, gpu.live[0].size), (1, second, 2000));
        assert_eq!(gpu.stats.allocations.allocated, 2, "putting it back is no allocation");
        assert_eq!(gpu.peak.bytes, 3000);
        assert_eq!((snapshot.health.refused_frees, snapshot.health.unknown_frees), (1, 0));
        raw::free_async(second, raw::LEGACY).unwrap();
        assert_live_equals_truth(&session.snapshot());
    });
}

#[test]
fn what_was_freed_twice_counts_once() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let address = raw::alloc(1000).unwrap();
        raw::free(address).unwrap();
        assert_eq!(raw::free(address), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        assert_eq!(raw::free(12345), Err(CUresult::CUDA_ERROR_INVALID_VALUE));
        raw::free(0).unwrap();
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!((snapshot.health.refused_frees, snapshot.health.unknown_frees), (2, 0));
    });
}

#[test]
fn frees_while_the_driver_shuts_down_are_no_leaks() {
    on_gpu(&[("MEMTRACE_CUSIM_FAULTS", "fail(4)@free")], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let address = raw::alloc(1000).unwrap();
        assert_eq!(raw::free(address), Err(CUresult::CUDA_ERROR_DEINITIALIZED));
        let snapshot = session.snapshot();
        assert_eq!(snapshot.device(Device::Cuda(0)).unwrap().live.len(), 0);
        assert_eq!(snapshot.health.refused_frees, 0);
    });
}

#[test]
fn a_driver_that_does_not_start_is_the_programs_affair() {
    on_gpu(&[("MEMTRACE_CUSIM_FAULTS", "fail@init")], || {
        let session = memtrace::start().unwrap();
        assert!(CudaContext::new(0).is_err());
        let snapshot = session.snapshot();
        assert!(snapshot.device(Device::Cuda(0)).is_none());
        drop(session);
        assert!(memtrace::start().is_ok());
    });
}

#[test]
fn blocks_that_are_live_at_the_end_are_in_the_last_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("end.memtrace");
    on_gpu(&[("TEST_OUT", path.to_str().unwrap())], || {
        let out = std::env::var("TEST_OUT").unwrap();
        std::mem::forget(memtrace::builder().dump_to(&out).dump_at_end(true).start().unwrap());
        let stream = CudaContext::new(0).unwrap().default_stream();
        std::mem::forget(stream.alloc_zeros::<u8>(1000).unwrap());
    });
    let capture = open(&path).unwrap();
    assert_eq!(capture.device(Device::Cuda(0)).unwrap().live.iter().map(|block| block.size).sum::<u64>(), 1000);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// By the lines of the stack: (allocations, frees) of timed calls, bytes of segments.
fn calls_and_segments(data: &SnapshotData) -> [Vec<(String, u64, u64)>; 2] {
    let gpu = data.device(Device::Cuda(0)).unwrap();
    let lines = |stack| {
        let lines = data.stacks.frames(stack).map(|frame| format!("{}:{:?}", frame.file_or_empty(), frame.line));
        lines.filter(|line| line.contains("cuda/")).collect::<Vec<_>>().join(" ")
    };
    let calls = gpu.calls.iter().map(|time| (lines(time.stack), time.allocs, time.frees));
    let segments = gpu.segment_records.iter().map(|segment| (lines(segment.stack), segment.size, 0));
    let mut all = [calls.collect::<Vec<_>>(), segments.collect()];
    all.iter_mut().for_each(|list| list.sort());
    all
}

#[test]
fn a_streamed_capture_says_where_time_was_spent_and_segments_were_taken() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.memtrace");
    on_gpu(&[("TEST_OUT", path.to_str().unwrap())], || {
        let out = std::env::var("TEST_OUT").unwrap();
        // Interns stacks that the capture does not have, so that its numbers differ from the process's.
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        raw::alloc(1).unwrap();
        drop(session);
        let session = memtrace::builder().stream(&out).start().unwrap();
        let first = raw::alloc_async(40 << 20, raw::LEGACY).unwrap();
        raw::alloc(3 << 20).unwrap();
        raw::free_async(first, raw::LEGACY).unwrap();
        raw::synchronise(raw::LEGACY).unwrap();
        let expected = calls_and_segments(&session.snapshot());
        assert_eq!(expected.each_ref().map(Vec::len), [2, 3]);
        let has_lines = expected.iter().flatten().filter(|(lines, ..)| lines.contains("cuda/faults.rs")).count();
        assert_eq!(has_lines, 4, "all but the segment that was given back: {expected:?}");
        drop(session);
        assert_eq!(calls_and_segments(&open(&out).unwrap()), expected);
        drop(context);
    });
}

#[test]
fn a_forked_child_is_not_recorded_and_the_parent_is() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let kept = raw::alloc(1000).unwrap();
        // SAFETY: the child calls its copy of the simulated driver, and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let address = raw::alloc(2000).unwrap_or(0);
            let freed = raw::free(address).is_ok() && raw::free(kept).is_ok();
            let silent = !memtrace::is_recording() && session.snapshot().devices.is_empty();
            // SAFETY: exits without running the parent's handlers.
            unsafe { libc::_exit(i32::from(!(address != 0 && freed && silent))) };
        }
        let mut status = -1;
        // SAFETY: waits for the child.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        raw::alloc(4000).unwrap();
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!(snapshot.device(Device::Cuda(0)).unwrap().stats.allocated_bytes.current, 5000);
    });
}
