//! REINFORCE; the episodes are meant to be cleared after each update, but are only appended.

use super::Result;
use candle_core::{Device, Tensor, Var, D};
use candle_nn::{Optimizer, SGD, ops::log_softmax};

const FRAME: usize = 4 * 84 * 84;

struct Env {
    tick: usize,
}

impl Env {
    fn observe(&self) -> Vec<f32> {
        let mut frame = vec![0f32; FRAME]; // <- grows
        for (i, pixel) in frame.iter_mut().enumerate().skip(self.tick % 7).step_by(7) {
            *pixel = ((i + self.tick) % 255) as f32 / 255.;
        }
        frame
    }
    fn act(&mut self, action: usize) -> f32 {
        self.tick += 1 + action;
        (self.tick % 5) as f32 - 2.
    }
}

fn features(frame: &[f32]) -> Result<Tensor> {
    let planes = Tensor::from_slice(frame, (1, 28, FRAME / 28), &Device::Cpu)?;
    Ok(planes.mean(D::Minus1)?)
}

pub(super) fn run() -> Result<()> {
    let policy = Var::randn(0f32, 0.1, (28, 6), &Device::Cpu)?;
    let mut sgd = SGD::new(vec![policy.clone()], 0.01)?;
    let mut env = Env { tick: 0 };
    let mut steps: Vec<(Vec<f32>, u32, f32)> = Vec::new();
    for _episode in 0..12 {
        let start = steps.len();
        for _step in 0..12 {
            let frame = env.observe();
            let logits = features(&frame)?.matmul(&policy.as_detached_tensor())?;
            let action = logits.argmax(1)?.to_vec1::<u32>()?[0];
            let reward = env.act(action as usize);
            steps.push((frame, action, reward));
        }
        for (frame, action, reward) in &steps[start..] {
            let logp = log_softmax(&features(frame)?.matmul(&policy)?, 1)?;
            let chosen = logp.narrow(1, *action as usize, 1)?.sum_all()?;
            sgd.backward_step(&(chosen * (-*reward as f64))?)?;
        }
    }
    println!("{} steps", steps.len());
    Ok(())
}
