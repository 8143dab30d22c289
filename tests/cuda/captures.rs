//! Stream captures that are ended wrongly, refused or abandoned.

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED;
use memtrace::{Device, Session};

use super::raw;
use super::support::on_gpu;
use super::truth::{assert_equals_truth, assert_live_equals_truth};

fn live(session: &Session) -> u64 {
    let snapshot = session.snapshot();
    assert_live_equals_truth(&snapshot);
    snapshot.device(Device::Cuda(0)).map_or(0, |gpu| gpu.stats.allocated_bytes.current)
}

#[test]
fn the_end_of_a_capture_that_there_is_not_ends_no_other() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let [one, two] = [0, 1].map(|_| context.new_stream().unwrap());
        raw::begin_capture(one.cu_stream(), RELAXED).unwrap();
        raw::begin_capture(one.cu_stream(), RELAXED).expect_err("it is captured already");
        raw::end_capture(two.cu_stream()).expect_err("it is not captured");
        raw::alloc_async(3000, one.cu_stream()).unwrap();
        assert_eq!(live(&session), 0);
        let graph = raw::end_capture(one.cu_stream()).unwrap();
        raw::launch(raw::instantiate(graph, 0).unwrap(), one.cu_stream()).unwrap();
        assert_eq!(live(&session), 3000);
    });
}

#[test]
fn a_stream_that_is_destroyed_ends_its_own_capture_only() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let [one, two] = [0, 1].map(|_| context.new_stream().unwrap());
        raw::begin_capture(one.cu_stream(), RELAXED).unwrap();
        raw::begin_capture(two.cu_stream(), RELAXED).unwrap();
        drop(two);
        raw::alloc_async(3000, one.cu_stream()).unwrap();
        assert_eq!(live(&session), 0);
        let graph = raw::end_capture(one.cu_stream()).unwrap();
        raw::launch(raw::instantiate(graph, 0).unwrap(), one.cu_stream()).unwrap();
        assert_eq!(live(&session), 3000);
    });
}

#[test]
fn a_free_that_is_refused_while_capturing_is_no_node() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let plain = raw::alloc_async(5000, stream.cu_stream()).unwrap();
        raw::begin_capture(stream.cu_stream(), RELAXED).unwrap();
        let captured = raw::alloc_async(3000, stream.cu_stream()).unwrap();
        raw::free_async(plain, stream.cu_stream()).expect_err("it is no memory of a graph");
        raw::free_async(captured, stream.cu_stream()).unwrap();
        let graph = raw::end_capture(stream.cu_stream()).unwrap();
        let program = raw::instantiate(graph, 0).unwrap();
        for _ in 0..2 {
            raw::launch(program, stream.cu_stream()).unwrap();
            assert_eq!(live(&session), 5000);
        }
        raw::free_async(plain, stream.cu_stream()).unwrap();
        assert_equals_truth(&session.snapshot(), true);
    });
}

/// Live bytes and peak of each of two devices.
fn of_both(session: &Session) -> [(u64, u64); 2] {
    let snapshot = session.snapshot();
    assert_equals_truth(&snapshot, true);
    [0, 1].map(|ordinal| {
        let gpu = snapshot.device(Device::Cuda(ordinal));
        gpu.map_or((0, 0), |gpu| (gpu.stats.allocated_bytes.current, gpu.peak.bytes))
    })
}

#[test]
fn memory_of_a_captured_stream_is_on_the_streams_device() {
    on_gpu(&[("MEMTRACE_CUSIM_DEVICES", "2")], || {
        let session = memtrace::start().unwrap();
        let contexts = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap());
        let streams = contexts.each_ref().map(|context| context.new_stream().unwrap());
        let warm = streams.each_ref().map(|stream| raw::alloc_async(100, stream.cu_stream()).unwrap());
        let programs = [0, 1].map(|of| {
            // The other device's context is current.
            contexts[1 - of].bind_to_thread().unwrap();
            let stream = streams[of].cu_stream();
            raw::begin_capture(stream, RELAXED).unwrap();
            let kept = raw::alloc_async(1000 * (of + 1), stream).unwrap();
            let transient = raw::alloc_async(10_000 * (of + 1), stream).unwrap();
            raw::free_async(transient, stream).unwrap();
            (raw::instantiate(raw::end_capture(stream).unwrap(), 0).unwrap(), kept)
        });
        for (of, (program, kept)) in programs.into_iter().enumerate() {
            contexts[1 - of].bind_to_thread().unwrap();
            raw::launch(program, streams[of].cu_stream()).unwrap();
            raw::free_async(kept, streams[of].cu_stream()).unwrap();
            raw::launch(program, streams[of].cu_stream()).unwrap();
        }
        assert_eq!(of_both(&session), [(1100, 11_100), (2100, 22_100)]);
        for (of, address) in warm.into_iter().enumerate() {
            raw::free_async(address, streams[of].cu_stream()).unwrap();
        }
        assert_eq!(of_both(&session), [(1000, 11_100), (2000, 22_100)]);
    });
}

/// On a thread's own default stream the current context is the stream's.
#[test]
fn memory_of_a_captured_default_stream_is_on_the_current_device() {
    on_gpu(&[("MEMTRACE_CUSIM_DEVICES", "2")], || {
        let session = memtrace::start().unwrap();
        let contexts = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap());
        contexts[1].bind_to_thread().unwrap();
        raw::begin_capture(raw::PER_THREAD, RELAXED).unwrap();
        raw::alloc_async(3000, raw::PER_THREAD).unwrap();
        let program = raw::instantiate(raw::end_capture(raw::PER_THREAD).unwrap(), 0).unwrap();
        raw::launch(program, raw::PER_THREAD).unwrap();
        assert_eq!(of_both(&session), [(0, 0), (3000, 3000)]);
    });
}
