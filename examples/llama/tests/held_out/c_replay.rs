//! Q-learning with a replay buffer that is full after about a third of the steps.

use super::Result;
use candle_core::{Device, Tensor, Var};
use candle_nn::{Optimizer, SGD, loss};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::collections::VecDeque;

const FRAME: usize = 4 * 84 * 84;
const CAPACITY: usize = 72;

struct Transition {
    frame: Tensor,
    action: u32,
    reward: f32,
}

fn observe(step: usize) -> Result<Tensor> {
    let pixels: Vec<f32> = (0..FRAME).map(|i| ((i * 3 + step) % 255) as f32 / 255.).collect();
    Ok(Tensor::from_vec(pixels, FRAME, &Device::Cpu)?)
}

fn learn(buffer: &VecDeque<Transition>, q: &Var, sgd: &mut SGD, rng: &mut StdRng) -> Result<f32> {
    let picks: Vec<&Transition> = (0..8).map(|_| &buffer[rng.random_range(0..buffer.len())]).collect();
    let frames: Vec<&Tensor> = picks.iter().map(|t| &t.frame).collect();
    let states = Tensor::stack(&frames, 0)?;
    let actions = Tensor::new(picks.iter().map(|t| t.action).collect::<Vec<_>>(), &Device::Cpu)?;
    let rewards = Tensor::new(picks.iter().map(|t| t.reward).collect::<Vec<_>>(), &Device::Cpu)?;
    let chosen = states.matmul(q)?.gather(&actions.unsqueeze(1)?, 1)?.squeeze(1)?;
    let loss = loss::mse(&chosen, &rewards)?;
    sgd.backward_step(&loss)?;
    Ok(loss.to_scalar::<f32>()?)
}

pub(super) fn run() -> Result<()> {
    let mut rng = StdRng::seed_from_u64(1);
    let q = Var::randn(0f32, 0.001, (FRAME, 6), &Device::Cpu)?;
    let mut sgd = SGD::new(vec![q.clone()], 1e-5)?;
    let mut buffer = VecDeque::with_capacity(CAPACITY);
    let mut last = 0f32;
    for step in 0..216 {
        let frame = observe(step)?;
        let action = rng.random_range(0..6u32);
        if buffer.len() == CAPACITY {
            buffer.pop_front();
        }
        buffer.push_back(Transition { frame, action, reward: (action % 3) as f32 });
        if step >= 16 && step % 4 == 0 {
            last = learn(&buffer, &q, &mut sgd, &mut rng)?;
        }
    }
    println!("{} transitions, loss {last:.4}", buffer.len());
    Ok(())
}
