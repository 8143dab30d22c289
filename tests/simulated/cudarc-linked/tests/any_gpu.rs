//! Tests of a package that uses a GPU: they run on the GPU that memtrace-runner chose.

use cudarc::driver::CudaContext;
use memtrace::Device;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

#[test]
fn a_step_holds_what_it_asked_for() {
    let session = memtrace::start().unwrap();
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let weights = stream.alloc_zeros::<f32>(1 << 20).unwrap();
    drop(stream.alloc_zeros::<f32>(1 << 19).unwrap());
    let snapshot = session.snapshot();
    let gpu = snapshot.device(Device::Cuda(0)).unwrap();
    assert_eq!((gpu.peak.bytes, gpu.stats.allocated_bytes.current), (6 << 20, 4 << 20));
    drop(weights);
}

#[test]
fn the_gpu_has_memory() {
    let context = CudaContext::new(0).unwrap();
    let (free, total) = context.mem_get_info().unwrap();
    assert!(0 < free && free <= total);
    println!("{total} bytes on a GPU that is {}", std::env::var("MEMTRACE_GPU_USED").unwrap());
}
