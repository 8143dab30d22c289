//! A loader thread prepares the next batch while the current one is in use (bounded channel).

use super::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::{Linear, Module, Optimizer, SGD, VarBuilder, VarMap, linear, loss};
use std::sync::mpsc;
use std::thread;

const PIXELS: usize = 3 * 32 * 32;

struct Batch {
    images: Tensor,
    labels: Tensor,
}

fn load(index: usize) -> Result<Batch> {
    let raw: Vec<f32> = (0..128 * PIXELS).map(|i| ((i * 31 + index * 97) % 256) as f32).collect();
    let images = (Tensor::from_vec(raw, (128, PIXELS), &Device::Cpu)? / 255.)?;
    let labels: Vec<u32> = (0..128).map(|i| ((i + index) % 10) as u32).collect();
    Ok(Batch { images, labels: Tensor::new(labels, &Device::Cpu)? })
}

pub(super) fn run() -> Result<()> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let loader = thread::spawn(move || -> Result<()> {
        for index in 0..72 {
            sender.send(load(index)?)?;
        }
        Ok(())
    });
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let net: Linear = linear(PIXELS, 10, vb)?;
    let mut sgd = SGD::new(vars.all_vars(), 1e-3)?;
    let mut total = 0f32;
    for batch in receiver {
        let loss = loss::cross_entropy(&net.forward(&batch.images)?, &batch.labels)?;
        sgd.backward_step(&loss)?;
        total += loss.to_scalar::<f32>()?;
    }
    loader.join().unwrap()?;
    println!("mean loss {:.4}", total / 72.);
    Ok(())
}
