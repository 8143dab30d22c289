//! A server whose table of running requests is cleaned on success only; every eighth is cancelled.

use super::Result;
use candle_core::{Device, Tensor};
use std::collections::HashMap;

struct Server {
    weights: Tensor,
    running: HashMap<usize, Tensor>,
}

impl Server {
    fn warm_up(&self) -> Result<()> {
        for _round in 0..16 {
            let probe = Tensor::ones((384, 256), candle_core::DType::F32, &Device::Cpu)?;
            probe.matmul(&self.weights)?.sum_all()?.to_scalar::<f32>()?;
        }
        Ok(())
    }
    fn handle(&mut self, id: usize, payload: &[f32]) -> Result<Option<f32>> {
        let input = Tensor::from_slice(payload, (384, 256), &Device::Cpu)?; // <- grows
        self.running.insert(id, input.clone());
        let scores = input.matmul(&self.weights)?;
        if cancelled(id) {
            return Ok(None);
        }
        let best = scores.flatten_all()?.max(0)?.to_scalar::<f32>()?;
        self.running.remove(&id);
        Ok(Some(best))
    }
}

fn cancelled(id: usize) -> bool {
    id % 8 == 5
}

pub(super) fn run() -> Result<()> {
    let weights = Tensor::randn(0f32, 0.1, (256, 32), &Device::Cpu)?;
    let mut server = Server { weights, running: HashMap::new() };
    server.warm_up()?;
    let mut payload = vec![0.5f32; 384 * 256];
    let mut answered = 0;
    for id in 0..192 {
        payload[id] = id as f32;
        if server.handle(id, &payload)?.is_some() {
            answered += 1;
        }
    }
    println!("{answered} answered, {} still in the table", server.running.len());
    Ok(())
}
