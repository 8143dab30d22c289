//! CUDA memory in measurements, with and without a recording.

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED;
use memtrace::snapshot::{StackContext, StackId};
use memtrace::{Context, Device, Measured, assert_no_growth, assert_no_leak, assert_peak, measure, scope};

use crate::raw;
use crate::support::on_gpu;
use crate::truth::assert_equals_truth;

const GPU: Device = Device::Cuda(0);

/// Peak, leaked bytes, net bytes, allocations, frees.
fn numbers(measured: &Measured, device: Device) -> (u64, u64, i64, u64, u64) {
    let on = measured.device(device);
    (on.peak, on.leaked, on.net, on.allocations, on.frees)
}

#[test]
fn each_device_of_a_measurement_is_exact_and_needs_no_session() {
    on_gpu(&[("MEMTRACE_CUSIM_DEVICES", "2")], || {
        let contexts = [0, 1].map(|ordinal| CudaContext::new(ordinal).unwrap());
        let streams = contexts.each_ref().map(|context| context.new_stream().unwrap());
        let work = || {
            let activations = streams[0].alloc_zeros::<u8>(5000).unwrap();
            let there = streams[1].alloc_zeros::<u8>(70_000).unwrap();
            drop(activations);
            (streams[0].alloc_zeros::<u8>(3000).unwrap(), there)
        };
        let measured = measure(work);
        assert_eq!(numbers(&measured, GPU), (5000, 3000, 3000, 2, 1));
        assert_eq!(numbers(&measured, Device::Cuda(1)), (70_000, 70_000, 70_000, 1, 0));
        assert_eq!(measured.peak, 70_000, "of the device with the largest");
        let session = memtrace::start().unwrap();
        let both = measure(work);
        assert_eq!(numbers(&both, GPU), numbers(&measured, GPU));
        drop((measured.value, both.value));
        assert_eq!(session.snapshot().health.unknown_frees, 2, "the first ones were never recorded");
    });
}

#[test]
fn in_a_recording_without_stacks_only_what_is_measured_has_one() {
    on_gpu(&[], || {
        let session = memtrace::builder().context(StackContext::None).start().unwrap();
        let stream = &CudaContext::new(0).unwrap().new_stream().unwrap();
        let (ask, asked) = std::sync::mpsc::channel::<()>();
        let (answer, answered) = std::sync::mpsc::channel();
        std::thread::scope(|threads| {
            threads.spawn(move || asked.iter().try_for_each(|()| answer.send(stream.alloc_zeros::<u8>(5000).unwrap())));
            let blocks = measure(|| {
                ask.send(()).unwrap();
                (answered.recv().unwrap(), stream.alloc_zeros::<u8>(6000).unwrap())
            });
            drop(ask);
            let snapshot = session.snapshot();
            let live = &snapshot.device(GPU).unwrap().live;
            let has_stack = |size| live.iter().find(|block| block.size == size).unwrap().stack != StackId::NONE;
            assert_eq!([5000, 6000].map(has_stack), [false, true]);
            drop(blocks);
        });
    });
}

#[test]
fn a_measurement_beside_a_recording_changes_nothing_of_it() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let weights = stream.alloc_zeros::<u8>(9000).unwrap();
        let measured = measure(|| {
            drop(weights);
            stream.alloc_zeros::<u8>(1000).unwrap()
        });
        assert_eq!(numbers(&measured, GPU), (1000, 1000, -8000, 1, 0));
        drop(measured.value);
        assert_equals_truth(&session.snapshot(), true);
    });
}

#[test]
fn what_was_there_before_is_counted_as_the_driver_says() {
    on_gpu(&[], || {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let old = stream.alloc_zeros::<u8>(1024).unwrap();
        let classic = raw::alloc(5000).unwrap();
        let measured = measure(|| {
            drop(old);
            raw::free(classic).unwrap();
        });
        assert_eq!(measured.device(GPU).net, -1024);
        assert_eq!(measured.unknown_frees, 1, "of no pool: nobody says how large it was");
    });
}

#[test]
fn refused_calls_are_no_blocks_and_free_nothing() {
    on_gpu(&[("MEMTRACE_CUSIM_FAULTS", "oom@alloc:2;fail@free:1")], || {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let measured = measure(|| {
            let block = raw::alloc_async(4000, stream.cu_stream()).unwrap();
            raw::alloc_async(8000, stream.cu_stream()).unwrap_err();
            raw::free_async(block, stream.cu_stream()).unwrap_err();
            block
        });
        assert_eq!(numbers(&measured, GPU), (4000, 4000, 4000, 1, 0));
        let freed = measure(|| raw::free_async(measured.value, stream.cu_stream()).unwrap());
        assert_eq!((freed.device(GPU).net, freed.device(GPU).frees), (-4096, 0), "older, as the pool counts it");
    });
}

#[test]
fn other_threads_free_what_is_measured_and_allocate_for_it() {
    on_gpu(&[], || {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let measured = measure(|| {
            let block = stream.alloc_zeros::<u8>(6000).unwrap();
            let here = Context::current();
            std::thread::scope(|threads| {
                threads.spawn(|| drop(block)).join().unwrap();
                let carrying = || here.scope(|| stream.alloc_zeros::<u8>(500).unwrap());
                let alone = || stream.alloc_zeros::<u8>(70_000).unwrap();
                // Either the context carries the measurement, or it was begun on this thread.
                (threads.spawn(carrying).join().unwrap(), threads.spawn(alone).join().unwrap())
            })
        });
        assert_eq!(numbers(&measured, GPU), (70_500, 70_500, 70_500, 3, 1));
    });
}

#[test]
fn contexts_and_graphs_and_pinned_memory_are_measured() {
    on_gpu(&[], || {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let mut host = vec![0u8; 8192];
        let measured = measure(|| {
            let heap = vec![0u8; 8192];
            raw::host_register(host.as_mut_ptr().cast(), 8192, 0).unwrap();
            raw::host_unregister(host.as_mut_ptr().cast()).unwrap();
            raw::begin_capture(stream.cu_stream(), RELAXED).unwrap();
            let of_graph = raw::alloc_async(3000, stream.cu_stream()).unwrap();
            let program = raw::instantiate(raw::end_capture(stream.cu_stream()).unwrap(), 0).unwrap();
            raw::launch(program, stream.cu_stream()).unwrap();
            raw::free_async(of_graph, stream.cu_stream()).unwrap();
            drop(heap);
        });
        assert_eq!(numbers(&measured, GPU), (3000, 0, 0, 1, 1));
        assert_eq!(numbers(&measured, Device::Pinned), (8192, 0, 0, 1, 1));
        let ended = measure(|| {
            let other = raw::context_create(std::ptr::null_mut(), 0, 0).unwrap();
            raw::alloc(1000).unwrap();
            raw::context_destroy(other).unwrap();
        });
        assert_eq!(numbers(&ended, GPU), (1000, 0, 0, 1, 1));
    });
}

#[test]
fn assertions_hold_for_a_gpu() {
    on_gpu(&[("MEMTRACE_GPU_USED", "simulated")], || {
        let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
        let alloc = |size: usize| stream.alloc_zeros::<u8>(size).unwrap();
        assert_peak!("1 MiB", device = GPU, drop((alloc(1 << 19), alloc(1 << 19))));
        assert_no_leak!(alloc(1000));
        assert_no_growth!(alloc(1000));
        let over = std::panic::catch_unwind(|| drop(scope("forward", || assert_peak!("1 MiB", alloc(3 << 20)))));
        let text = *over.unwrap_err().downcast::<String>().unwrap();
        for part in ["3.000 MiB (3,145,728 bytes) on cuda:0", "On a simulated GPU\n", "cuda/measures.rs:", "forward"] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let mut kept = Vec::new();
        let leak = memtrace::NoLeak::new().run(|| kept.push(alloc(1000))).unwrap_err().to_string();
        assert!(leak.contains("248.0 KiB     254") && leak.contains("cuda/measures.rs:"), "{leak}");
        assert_eq!(kept.len(), 256);
    });
}
