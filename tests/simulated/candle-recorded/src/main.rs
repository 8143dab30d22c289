//! Trains a small network with candle on `cuda:0` under memtrace, and compares the recording with the simulated
//! driver's own figures. `cargo xtask simulated` checks the output.

use candle_core::{DType, Module, Result, Tensor};
use candle_nn::{AdamW, Linear, Optimizer, VarBuilder, VarMap};
use memtrace::cudarc::CudaStreamExt;
use memtrace::{Device, scope};
use truth::assert_equals_truth;

#[allow(dead_code, unsafe_code, reason = "shared with tests that use all of it; calls C")]
#[path = "../../../cuda/truth.rs"]
mod truth;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let session = memtrace::start()?;
    let device = scope("device", || memtrace::candle::cuda(0))?;
    let vars = VarMap::new();
    let hidden = scope("load", || candle_nn::linear(256, 64, VarBuilder::from_varmap(&vars, DType::F32, &device)))?;
    println!("tagged: {}", memtrace::candle::tag(hidden.weight(), "hidden.weight"));
    let mut optimizer = AdamW::new_lr(vars.all_vars(), 1e-3)?;
    let rows = Tensor::randn(0f32, 1., (32, 256), &device)?;
    for _ in 0..3 {
        scope("step", || step(&hidden, &rows, &mut optimizer))?;
    }
    let stream = device.as_cuda_device()?.cuda_stream();
    let state = stream.alloc_zeros_named::<f32>(1000, "state")?;
    let snapshot = session.snapshot();
    assert_equals_truth(&snapshot, true);
    let gpu = snapshot.device(memtrace::IntoDevice::into_device(&device)).ok_or("the GPU was recorded")?;
    println!("{} records equal the driver's", gpu.records.len());
    for block in &gpu.live {
        let name = gpu.name(block.seq).unwrap_or("-");
        println!("live: {} bytes in {:?}, {name}", block.size, snapshot.context_path(block.context));
    }
    println!("{}", snapshot.report());
    drop(state);
    Ok(())
}

fn step(hidden: &Linear, rows: &Tensor, optimizer: &mut AdamW) -> Result<()> {
    let loss = hidden.forward(rows)?.gelu()?.sqr()?.mean_all()?;
    optimizer.backward_step(&loss)
}
