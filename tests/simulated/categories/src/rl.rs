//! Reinforcement learning: an actor and a critic learn to play from frames, with a replay buffer on the GPU, a target
//! network that is replaced every few steps, and momentum by hand.

use std::collections::VecDeque;

use candle_core::backprop::GradStore;
use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::ops;

use crate::truth::Truth;

const FRAME: [usize; 3] = [4, 42, 42];
const ACTIONS: usize = 6;
const BATCH: usize = 32;
const CAPACITY: usize = 48;

/// Two convolutions and two linear layers.
#[derive(Clone)]
struct Net([Tensor; 4]);

impl Net {
    fn new(outputs: usize, device: &Device) -> Result<(Self, [Var; 4])> {
        let vars = [
            Var::randn(0f32, 0.1, (16, 4, 4, 4), device)?,
            Var::randn(0f32, 0.1, (32, 16, 4, 4), device)?,
            Var::randn(0f32, 0.02, (32 * 9 * 9, 256), device)?,
            Var::zeros((256, outputs), DType::F32, device)?,
        ];
        Ok((Self(vars.clone().map(Var::into_inner)), vars))
    }

    fn forward(&self, frames: &Tensor) -> Result<Tensor> {
        let [first, second, hidden, out] = &self.0;
        let seen = frames.conv2d(first, 0, 2, 1, 1)?.relu()?.conv2d(second, 0, 2, 1, 1)?.relu()?;
        seen.flatten_from(1)?.matmul(hidden)?.relu()?.matmul(out)
    }

    /// A copy with its own weights, which are not trained.
    fn frozen(&self) -> Result<Self> {
        let [first, second, hidden, out] = &self.0;
        let copy = |tensor: &Tensor| Ok::<_, candle_core::Error>(tensor.copy()?.detach());
        Ok(Self([copy(first)?, copy(second)?, copy(hidden)?, copy(out)?]))
    }
}

struct Sgd {
    vars: [Var; 4],
    velocities: Vec<Var>,
}

impl Sgd {
    fn new(vars: [Var; 4]) -> Result<Self> {
        let velocities = vars.iter().map(|var| Var::zeros(var.shape(), var.dtype(), var.device()));
        Ok(Self { velocities: velocities.collect::<Result<_>>()?, vars })
    }

    fn step(&self, gradients: &GradStore, rate: f64) -> Result<()> {
        for (var, velocity) in self.vars.iter().zip(&self.velocities) {
            if let Some(gradient) = gradients.get(var) {
                velocity.set(&((velocity.as_tensor() * 0.9)? + gradient)?)?;
                var.set(&(var.as_tensor() - (velocity.as_tensor() * rate)?)?)?;
            }
        }
        Ok(())
    }
}

struct Transition {
    frame: Tensor,
    action: u32,
    reward: f32,
    next: Tensor,
}

/// The game's next frame.
fn observe(time: usize, device: &Device) -> Result<Tensor> {
    Tensor::from_vec(vec![time as f32; FRAME.iter().product()], &FRAME, device)
}

struct Agent {
    actor: Net,
    critic: Net,
    target: Net,
    of_actor: Sgd,
    of_critic: Sgd,
}

impl Agent {
    fn new(truth: &Truth, device: &Device) -> Result<Self> {
        let (actor, actor_vars) = truth.while_loading(|| Net::new(ACTIONS, device))?;
        let (critic, critic_vars) = truth.while_loading(|| Net::new(1, device))?;
        let target = truth.while_loading(|| critic.frozen())?;
        let (of_actor, of_critic) =
            (truth.while_updating(|| Sgd::new(actor_vars))?, truth.while_updating(|| Sgd::new(critic_vars))?);
        Ok(Self { actor, critic, target, of_actor, of_critic })
    }

    fn act(&self, frame: &Tensor) -> Result<u32> {
        let probabilities = ops::softmax(&self.actor.forward(&frame.unsqueeze(0)?)?, D::Minus1)?;
        probabilities.argmax(D::Minus1)?.squeeze(0)?.to_scalar()
    }

    fn learn(&mut self, truth: &Truth, batch: &[&Transition], device: &Device) -> Result<Tensor> {
        let stack = |of: fn(&Transition) -> &Tensor| Tensor::stack(&batch.iter().map(|t| of(t)).collect::<Vec<_>>(), 0);
        let frames = truth.while_reading(|| stack(|transition| &transition.frame))?;
        let next = truth.while_reading(|| stack(|transition| &transition.next))?;
        let rewards: Vec<f32> = batch.iter().map(|transition| transition.reward).collect();
        let rewards = truth.while_reading(|| Tensor::from_vec(rewards, (batch.len(), 1), device))?;
        let actions: Vec<u32> = batch.iter().map(|transition| transition.action).collect();
        let actions = truth.while_reading(|| Tensor::from_vec(actions, (batch.len(), 1), device))?;

        let wanted = truth.on_the_way_there(|| rewards + (self.target.forward(&next)? * 0.99)?)?;
        let advantage = self.improve_critic(truth, &frames, &wanted)?;
        self.improve_actor(truth, &frames, &actions, &advantage)
    }

    fn improve_critic(&self, truth: &Truth, frames: &Tensor, wanted: &Tensor) -> Result<Tensor> {
        let error = truth.on_the_way_there(|| wanted - self.critic.forward(frames)?)?;
        let loss = truth.on_the_way_there(|| error.sqr()?.mean_all())?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &self.of_critic.vars);
        truth.while_updating(|| self.of_critic.step(&gradients, 1e-2))?;
        Ok(error.detach())
    }

    /// The critic's loss.
    fn improve_actor(&self, truth: &Truth, frames: &Tensor, actions: &Tensor, advantage: &Tensor) -> Result<Tensor> {
        let loss = truth.on_the_way_there(|| {
            let chances = ops::log_softmax(&self.actor.forward(frames)?, D::Minus1)?;
            let gain = (chances.gather(actions, 1)? * advantage)?.mean_all()?;
            let disorder = (chances.exp()? * &chances)?.sum(D::Minus1)?.mean_all()?;
            (disorder * 0.01)? - gain
        })?;
        let gradients = truth.on_the_way_back(|| loss.backward())?;
        truth.are_gradients(&gradients, &self.of_actor.vars);
        truth.while_updating(|| self.of_actor.step(&gradients, 1e-3))?;
        truth.is_none_of_them(&loss);
        Ok(loss.detach())
    }
}

pub(crate) fn play(truth: &Truth, device: &Device) -> Result<()> {
    let mut agent = Agent::new(truth, device)?;
    let mut buffer: VecDeque<Transition> = VecDeque::new();
    let mut losses = Vec::new();
    let mut frame = truth.while_reading(|| observe(0, device))?;
    for time in 1..=80usize {
        let action = truth.on_the_way_there(|| agent.act(&frame))?;
        let next = truth.while_reading(|| observe(time, device))?;
        if buffer.len() == CAPACITY {
            buffer.pop_front();
        }
        buffer.push_back(Transition { frame, action, reward: (time % 3) as f32, next: next.clone() });
        frame = next;
        if time >= BATCH && time % 4 == 0 {
            let batch: Vec<&Transition> = (0..BATCH).map(|n| &buffer[(7 * n + time) % buffer.len()]).collect();
            losses.push(agent.learn(truth, &batch, device)?);
        }
        if time % 16 == 0 {
            agent.target = truth.while_loading(|| agent.critic.frozen())?;
        }
    }
    assert_eq!(losses.len(), 13);
    Ok(())
}
