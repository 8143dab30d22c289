//! A rank of a Llama, as candle's example of several processes has it: `RANK` of `WORLD_SIZE` on the GPU of its number. The ranks agree
//! on a communicator by a file. `cargo xtask ranks` starts two, and checks their recordings.

mod model;

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use candle_core::Tensor;
use candle_core::cuda_backend::cudarc::nccl::{Comm, Id};
use memtrace::{Device, scope};
use truth::assert_equals_truth;

#[allow(dead_code, unsafe_code, reason = "shared with tests that use all of it; calls C")]
#[path = "../../../cuda/truth.rs"]
mod truth;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("a folder for the recordings")?;
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok()).ok_or(name);
    let (rank, ranks) = (number("RANK")?, number("WORLD_SIZE")?);
    let session = memtrace::start()?;
    let device = memtrace::candle::cuda(rank)?;
    let id = shared_id(Path::new(&folder), rank)?;
    let stream = device.as_cuda_device()?.cuda_stream();
    let comm =
        scope("communicator", || Comm::from_rank(stream, rank, ranks, id)).map_err(|error| format!("{:?}", error.0))?;
    let llama = scope("load", || model::Llama::load(&device, comm))?;
    for _token in 0..4 {
        let words = Tensor::zeros(16, candle_core::DType::U32, &device)?;
        scope("forward", || llama.forward(&words))?;
    }
    let snapshot = session.snapshot();
    assert_equals_truth(&snapshot, true);
    let gpu = snapshot.device(Device::Cuda(rank as u32)).ok_or("the GPU was recorded")?;
    println!("{} records equal the driver's", gpu.records.len());
    snapshot.write(Path::new(&folder).join(format!("rank-{rank}.memtrace")))?;
    Ok(())
}

/// The first rank makes an id and the others read it.
fn shared_id(folder: &Path, rank: usize) -> Result<Id, Box<dyn Error>> {
    let (file, new) = (folder.join("nccl.id"), folder.join("nccl.new"));
    if rank == 0 {
        let id = Id::new().map_err(|error| format!("{:?}", error.0))?;
        std::fs::write(&new, id.internal().map(|byte| byte as u8))?;
        std::fs::rename(new, file)?;
        return Ok(id);
    }
    while !file.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let bytes: [u8; 128] = std::fs::read(file)?.try_into().map_err(|_| "an id has 128 bytes")?;
    Ok(Id::uninit(bytes.map(|byte| byte as _)))
}
