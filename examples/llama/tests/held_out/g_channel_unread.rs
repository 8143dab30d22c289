//! A classifier service; each request's probabilities go to a telemetry channel that nobody reads.

use super::Result;
use candle_core::{Device, Tensor};
use candle_nn::ops::softmax;
use std::sync::mpsc;

struct Telemetry {
    request: usize,
    probs: Vec<f32>,
}

struct Service {
    weights: Tensor,
    telemetry: mpsc::Sender<Telemetry>,
}

impl Service {
    fn classify(&self, request: usize, x: &Tensor) -> Result<Vec<u32>> {
        let probs = softmax(&x.matmul(&self.weights)?, 1)?;
        let classes = probs.argmax(1)?.to_vec1::<u32>()?;
        let copy = probs.flatten_all()?.to_vec1::<f32>()?; // <- grows
        self.telemetry.send(Telemetry { request, probs: copy })?;
        Ok(classes)
    }
}

pub(super) fn run() -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    let weights = Tensor::randn(0f32, 0.1, (128, 2048), &Device::Cpu)?;
    let service = Service { weights, telemetry: sender };
    let mut served = 0;
    for request in 0..80 {
        let rows = 16 + 8 * (request % 4);
        let x = Tensor::randn(0f32, 1., (rows, 128), &Device::Cpu)?;
        served += service.classify(request, &x)?.len();
    }
    println!("served {served} rows");
    let first: Telemetry = receiver.try_recv()?;
    println!("oldest unread: request {}, {} values", first.request, first.probs.len());
    Ok(())
}
