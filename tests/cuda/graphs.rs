//! CUDA graphs whose nodes allocate: from stream captures or built node by node, launched once and repeatedly.

use cudarc::driver::CudaContext;
use cudarc::driver::sys::CUstreamCaptureMode_enum::{
    CU_STREAM_CAPTURE_MODE_GLOBAL as GLOBAL, CU_STREAM_CAPTURE_MODE_RELAXED as RELAXED,
};
use memtrace::snapshot::MemoryKind;
use memtrace::{Device, Snapshot, scope};

use super::raw;
use super::support::on_gpu;
use super::truth::{assert_equals_truth, assert_live_equals_truth};

/// Bytes at the peak, live bytes, number of records.
fn of_gpu(snapshot: &Snapshot) -> (u64, u64, usize) {
    let gpu = snapshot.device(Device::Cuda(0)).unwrap();
    (gpu.peak.bytes, gpu.stats.allocated_bytes.current, gpu.records.len())
}

#[test]
fn a_captured_graph_allocates_when_it_is_launched() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let cu_stream = stream.cu_stream();
        let warm = stream.alloc_zeros::<u8>(512).unwrap();
        raw::begin_capture(cu_stream, RELAXED).unwrap();
        let activations = scope("capture", || raw::alloc_async(3000, cu_stream).unwrap());
        let result = raw::alloc_async(5000, cu_stream).unwrap();
        raw::free_async(activations, cu_stream).unwrap();
        let graph = raw::end_capture(cu_stream).unwrap();
        assert_eq!(of_gpu(&session.snapshot()), (512, 512, 1), "nothing is there yet");
        let program = raw::instantiate(graph, 0).unwrap();
        raw::graph_destroy(graph).unwrap();
        for step in 1..=3 {
            scope("step", || raw::launch(program, cu_stream).unwrap());
            assert_eq!(of_gpu(&session.snapshot()), (8512, 5512, 1 + step * 4 - 1));
            raw::free_async(result, cu_stream).unwrap();
        }
        scope("step", || raw::launch(program, cu_stream).unwrap());
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        let block = gpu.live.iter().find(|block| block.memory == MemoryKind::Graph).unwrap();
        assert_eq!((block.size, snapshot.context_path(block.context)), (5000, "step".to_owned()));
        let has_line = |frame: &memtrace::snapshot::Frame| frame.function_or_empty().contains("alloc_async");
        assert!(snapshot.stacks.frames(block.stack).any(has_line), "the stack is that of the capture");
        let graphs = gpu.memory.unwrap().graphs.unwrap();
        assert_eq!((graphs.used, graphs.reserved), (5120, 2 << 20));
        assert_eq!(snapshot.health.cuda.unseen_calls, []);
        assert_eq!(snapshot.health.executable_graphs, 1);
        raw::program_destroy(program).unwrap();
        raw::free(result).unwrap();
        drop(warm);
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!((of_gpu(&snapshot).1, snapshot.health.unknown_frees), (0, 0));
    });
}

#[test]
fn what_a_launch_left_is_freed_by_the_next_if_that_was_asked_for() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let graph = raw::graph_create(0).unwrap();
        let address = raw::graph_alloc(graph, 700).unwrap();
        let transient = raw::graph_alloc(graph, 300).unwrap();
        raw::graph_free(graph, transient).unwrap();
        let program = raw::instantiate(graph, 1).unwrap();
        (0..3).for_each(|_| raw::launch(program, raw::PER_THREAD).unwrap());
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!(of_gpu(&snapshot), (1000, 700, 3 * 3 + 2));
        // Another graph frees it.
        let other = raw::graph_create(0).unwrap();
        raw::graph_free(other, address).unwrap();
        raw::launch(raw::instantiate(other, 0).unwrap(), raw::PER_THREAD).unwrap();
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!(of_gpu(&snapshot).1, 0);
    });
}

/// Where and when what a launch left came from, and the counters of the whole run.
#[test]
fn parts_of_a_stream_have_what_launches_left() {
    on_gpu(&[], || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("graphs.memtrace");
        let session = memtrace::builder().stream(path.to_str().unwrap()).stream_budget(128 << 10).start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let graph = raw::graph_create(0).unwrap();
        raw::graph_alloc(graph, 700).unwrap();
        let transient = raw::graph_alloc(graph, 300).unwrap();
        raw::graph_free(graph, transient).unwrap();
        let program = raw::instantiate(graph, 1).unwrap();
        for step in 0..3000 {
            scope("step", || raw::launch(program, raw::PER_THREAD).unwrap());
            if step % 50 == 0 {
                session.flush();
            }
        }
        let snapshot = session.snapshot();
        drop(session);
        assert!(!folder.path().join("graphs.1.memtrace").exists(), "nothing was deleted");
        let read = memtrace::open(&path).unwrap();
        let left = |snapshot: &Snapshot| {
            let gpu = snapshot.device(Device::Cuda(0)).unwrap();
            let functions = |stack| snapshot.stacks.frames(stack).map(|frame| frame.function_or_empty().to_owned());
            let [block] = &gpu.live[..] else { panic!("{:?}", gpu.live) };
            let functions: Vec<String> = functions(block.stack).collect();
            (block.size, block.seq, block.memory, snapshot.context_path(block.context), functions)
        };
        assert_eq!(left(&read), left(&snapshot));
        let [whole, parts] = [&snapshot, &read].map(|snapshot| snapshot.device(Device::Cuda(0)).unwrap());
        assert_eq!(
            (parts.stats, parts.peak.bytes, parts.peak.time_ns),
            (whole.stats, whole.peak.bytes, whole.peak.time_ns)
        );
        assert_eq!(parts.stats.allocations.allocated, 6000);
        assert!(parts.overwritten > 0 && parts.records.len() > 100);
    });
}

#[test]
fn a_graph_captured_before_the_recording_is_known_when_it_is_launched() {
    on_gpu(&[], || {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        raw::begin_capture(stream.cu_stream(), RELAXED).unwrap();
        let address = raw::alloc_async(3000, stream.cu_stream()).unwrap();
        let program = raw::instantiate(raw::end_capture(stream.cu_stream()).unwrap(), 0).unwrap();
        let session = memtrace::start().unwrap();
        scope("step", || raw::launch(program, stream.cu_stream()).unwrap());
        assert_live_equals_truth(&session.snapshot());
        assert_eq!(of_gpu(&session.snapshot()).1, 3000);
        raw::free_async(address, stream.cu_stream()).unwrap();
        assert_equals_truth(&session.snapshot(), true);
    });
}

/// As candle does: on the per-thread default stream.
#[test]
fn the_threads_own_stream_is_captured() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.per_thread_stream();
        raw::begin_capture(raw::PER_THREAD, RELAXED).unwrap();
        let captured = raw::alloc_async(3000, raw::PER_THREAD).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                context.bind_to_thread().unwrap();
                drop(stream.alloc_zeros::<u8>(2000).unwrap());
            });
        });
        let program = raw::instantiate(raw::end_capture(raw::PER_THREAD).unwrap(), 0).unwrap();
        assert_eq!(of_gpu(&session.snapshot()), (2000, 0, 2));
        raw::launch(program, raw::PER_THREAD).unwrap();
        assert_equals_truth(&session.snapshot(), true);
        raw::free_async(captured, raw::PER_THREAD).unwrap();
        assert_equals_truth(&session.snapshot(), true);
        assert_eq!(of_gpu(&session.snapshot()), (3000, 0, 4));
    });
}

#[test]
fn a_capture_that_failed_leaves_no_nodes() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let cu_stream = stream.cu_stream();
        raw::begin_capture(cu_stream, GLOBAL).unwrap();
        raw::alloc_async(9000, cu_stream).unwrap();
        raw::alloc(100).expect_err("it spoils the capture");
        raw::end_capture(cu_stream).unwrap_err();
        raw::begin_capture(cu_stream, RELAXED).unwrap();
        let address = raw::alloc_async(100, cu_stream).unwrap();
        let program = raw::instantiate(raw::end_capture(cu_stream).unwrap(), 0).unwrap();
        raw::launch(program, cu_stream).unwrap();
        assert_equals_truth(&session.snapshot(), true);
        raw::free_async(address, cu_stream).unwrap();
        assert_eq!(of_gpu(&session.snapshot()), (100, 0, 2));
    });
}

#[test]
fn what_a_launch_left_is_freed_once_by_whom_it_may() {
    on_gpu(&[("MEMTRACE_CUSIM_FAULTS", "fail@free:3")], || {
        let context = CudaContext::new(0).unwrap();
        let stream = context.new_stream().unwrap();
        let graph = raw::graph_create(0).unwrap();
        let address = raw::graph_alloc(graph, 1000).unwrap();
        let program = raw::instantiate_with(graph, 1).unwrap();
        let launch = || raw::launch(program, stream.cu_stream()).unwrap();
        launch();
        raw::free_async(address, stream.cu_stream()).unwrap();
        let session = memtrace::start().unwrap();
        launch();
        assert_eq!(of_gpu(&session.snapshot()), (1000, 1000, 1), "nothing was left while nothing was recorded");
        raw::free_async(address, stream.cu_stream()).unwrap();
        launch();
        assert_eq!(of_gpu(&session.snapshot()), (1000, 1000, 3), "nor by the call before");
        raw::free_async(address, stream.cu_stream()).expect_err("the third free fails");
        launch();
        let snapshot = session.snapshot();
        assert_live_equals_truth(&snapshot);
        assert_eq!(of_gpu(&snapshot), (1000, 1000, 5), "what was refused is no record");
        assert_eq!((snapshot.health.unknown_frees, snapshot.health.missed_frees), (0, 0));
    });
}

/// Through functions that have variants.
#[test]
fn nodes_and_launches_have_several_functions() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        const ALLOC: u64 = 10;
        const FREE: u64 = 11;
        let graph = raw::graph_create(0).unwrap();
        let mut words = [0u64; 15];
        (words[0], words[1], words[13]) = (1, 1, 900);
        let kept = raw::graph_add(graph, ALLOC, &words).unwrap()[14];
        let transient = raw::graph_add(graph, ALLOC, &words).unwrap()[14];
        raw::graph_add(graph, FREE, &[transient]).unwrap();
        let program = raw::instantiate(graph, 0).unwrap();
        raw::launch_per_thread(program, raw::LEGACY).unwrap();
        let own = raw::alloc_async(100, raw::PER_THREAD).unwrap();
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        let live: Vec<_> = gpu.live.iter().map(|block| (block.address, block.size)).collect();
        assert_eq!((gpu.peak.bytes, live), (1800, vec![(kept, 900), (own, 100)]));
        assert_eq!(gpu.live[0].stream, gpu.live[1].stream, "both are on the thread's own");
    });
}

/// `cuda.h`, `CUgraphChildGraphNodeOwnership`: a graph with memory nodes can be a child if its parent takes it over.
#[test]
fn nodes_of_a_child_that_was_taken_over_run_with_its_parent() {
    on_gpu(&[], || {
        let session = memtrace::builder().uses(true).start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        const FILL: u64 = 2;
        const CHILD: u64 = 4;
        const MOVE: u64 = 1;
        let [parent, child, inner] = [0; 3].map(|_| raw::graph_create(0).unwrap());
        let first = raw::graph_alloc(parent, 100).unwrap();
        let kept = raw::graph_alloc(child, 2000).unwrap();
        // One byte in a row, and 2000 of them.
        raw::graph_add(child, FILL, &[kept, 2000, 1 << 32, 2000, 1]).unwrap();
        let innermost = raw::graph_alloc(inner, 5000).unwrap();
        raw::graph_free(inner, innermost).unwrap();
        raw::graph_add(child, CHILD, &[inner.addr() as u64]).expect_err("a copy has no memory nodes");
        raw::graph_add(child, CHILD, &[inner.addr() as u64, MOVE]).unwrap();
        raw::graph_add(parent, CHILD, &[child.addr() as u64, MOVE]).unwrap();
        raw::graph_free(parent, first).unwrap();
        let program = raw::instantiate(parent, 0).unwrap();
        raw::launch(program, raw::PER_THREAD).unwrap();
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!(of_gpu(&snapshot), (7100, 2000, 5), "all are there before the innermost is freed");
        let gpu = snapshot.device(Device::Cuda(0)).unwrap();
        assert_eq!(gpu.uses_of(gpu.live[0].seq).map(|uses| (uses.count, uses.known_last().is_some())), Some((1, true)));
        let work = snapshot.gpu_work.as_ref().unwrap();
        assert_eq!((work.totals.fills, work.opaque_operations()), (1, 0));
        raw::free_async(kept, raw::PER_THREAD).unwrap();
        raw::launch(program, raw::PER_THREAD).unwrap();
        let snapshot = session.snapshot();
        assert_equals_truth(&snapshot, true);
        assert_eq!((of_gpu(&snapshot).1, snapshot.health.unknown_frees), (2000, 0));
    });
}

/// `cuda.h`, "Free unused memory that was cached on the specified device for use with graphs back to the OS".
#[test]
fn memory_that_graphs_gave_back_is_in_no_account() {
    on_gpu(&[], || {
        let session = memtrace::start().unwrap();
        let _context = CudaContext::new(0).unwrap();
        let graph = raw::graph_create(0).unwrap();
        let address = raw::graph_alloc(graph, 3 << 20).unwrap();
        raw::launch(raw::instantiate(graph, 0).unwrap(), raw::PER_THREAD).unwrap();
        let reserved = || {
            let snapshot = session.snapshot();
            assert_live_equals_truth(&snapshot);
            snapshot.device(Device::Cuda(0)).unwrap().memory.unwrap().graphs.unwrap().reserved
        };
        raw::graph_trim(0).unwrap();
        assert_eq!(reserved(), 4 << 20, "a block has it");
        raw::free(address).unwrap();
        assert_eq!(reserved(), 4 << 20);
        raw::graph_trim(0).unwrap();
        assert_eq!(reserved(), 0);
    });
}
