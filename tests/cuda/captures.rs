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
