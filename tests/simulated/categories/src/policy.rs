//! A policy that learns from its own answers: a frozen copy of it as a reference, a head that values states, gradients of
//! several batches added up and clipped, and an optimizer of the program's own.

use std::collections::HashMap;

use candle_core::backprop::GradStore;
use candle_core::{D, Device, Result, Tensor, TensorId, Var};
use candle_nn::ops;
use memtrace::Category::{Gradient, OptimizerState};

use crate::truth::Truth;

const WORDS: usize = 256;
const WIDTH: usize = 64;
const PLAYERS: usize = 32;
const LENGTH: usize = 8;
const SHAPES: [(usize, usize); 4] = [(WORDS, WIDTH), (WIDTH, WIDTH), (WIDTH, WORDS), (WIDTH, 1)];

struct Policy([Tensor; 4]);

impl Policy {
    /// The logarithms of the chances of each word, and the state's value.
    fn judge(&self, words: &Tensor) -> Result<(Tensor, Tensor)> {
        let [known, hidden, chances, value] = &self.0;
        let state = known.index_select(words, 0)?.matmul(hidden)?.gelu()?;
        Ok((ops::log_softmax(&state.matmul(chances)?, D::Minus1)?, state.matmul(value)?))
    }

    fn frozen(&self) -> Result<Self> {
        let [first, second, third, fourth] = &self.0;
        let copy = |tensor: &Tensor| Ok::<_, candle_core::Error>(tensor.copy()?.detach());
        Ok(Self([copy(first)?, copy(second)?, copy(third)?, copy(fourth)?]))
    }
}

/// What was played: words, and what the policy and the reference thought of them.
struct Game {
    words: Vec<Tensor>,
    chances: Vec<Tensor>,
    of_reference: Vec<Tensor>,
    advantages: Vec<Tensor>,
}

fn play(truth: &Truth, policy: &Policy, reference: &Policy, device: &Device) -> Result<Game> {
    let mut game = Game { words: vec![], chances: vec![], of_reference: vec![], advantages: vec![] };
    let mut words = truth.while_reading(|| Tensor::from_vec(vec![1u32; PLAYERS], PLAYERS, device))?;
    let mut values = Vec::new();
    for _ in 0..LENGTH {
        truth.on_the_way_there(|| {
            let (chances, value) = policy.judge(&words)?;
            let (of_reference, _) = reference.judge(&words)?;
            game.words.push(words.clone());
            words = chances.argmax(D::Minus1)?;
            game.chances.push(chances.detach());
            game.of_reference.push(of_reference);
            values.push(value.detach());
            Ok::<_, candle_core::Error>(())
        })?;
    }
    let mean = truth.on_the_way_there(|| Tensor::stack(&values, 0)?.mean(0))?;
    for value in values {
        game.advantages.push(truth.on_the_way_there(|| &mean - value)?);
    }
    Ok(game)
}

impl Game {
    fn loss(&self, policy: &Policy, at: usize) -> Result<Tensor> {
        let (chances, value) = policy.judge(&self.words[at])?;
        let ratio = (&chances - &self.chances[at])?.exp()?.broadcast_mul(&self.advantages[at])?;
        let apart = (&chances - &self.of_reference[at])?.sqr()?;
        ratio.neg()?.mean_all()? + (apart.mean_all()? + (value - &self.advantages[at])?.sqr()?.mean_all()?)?
    }
}

/// Adam, which begins with zeros.
struct Learner {
    vars: [Var; 4],
    moments: HashMap<TensorId, (Tensor, Tensor)>,
}

impl Learner {
    fn learn(&mut self, truth: &Truth, gradients: &HashMap<TensorId, Tensor>) -> Result<()> {
        for var in &self.vars {
            let (id, Some(gradient)) = (var.id(), gradients.get(&var.id())) else { continue };
            let (first, second) = match self.moments.remove(&id) {
                Some(moments) => moments,
                None => (gradient.zeros_like()?, gradient.zeros_like()?),
            };
            let first = ((first * 0.9)? + (gradient * 0.1)?)?;
            let second = ((second * 0.99)? + (gradient.sqr()? * 0.01)?)?;
            var.set(&(var.as_tensor() - (&first / (second.sqrt()? + 1e-8)?)?.affine(1e-3, 0.)?)?)?;
            truth.is(&first, OptimizerState);
            truth.is(&second, OptimizerState);
            self.moments.insert(id, (first, second));
        }
        Ok(())
    }
}

/// Adds the gradients of one batch to the sums.
fn add(truth: &Truth, vars: &[Var], sums: &mut HashMap<TensorId, Tensor>, gradients: &GradStore) -> Result<()> {
    for var in vars {
        let Some(gradient) = gradients.get(var).map(Tensor::detach) else { continue };
        let sum = match sums.remove(&var.id()) {
            Some(sum) => (sum + gradient)?,
            None => gradient,
        };
        truth.is(&sum, Gradient);
        sums.insert(var.id(), sum);
    }
    Ok(())
}

/// So that they are not longer than 1 together.
fn clip(truth: &Truth, sums: &mut HashMap<TensorId, Tensor>) -> Result<()> {
    let mut square = 0f32;
    for sum in sums.values() {
        square += sum.sqr()?.sum_all()?.to_scalar::<f32>()?;
    }
    let scale = 1. / f64::from(square.sqrt().max(1.));
    for sum in sums.values_mut() {
        *sum = (&*sum * scale)?;
        truth.is(sum, Gradient);
    }
    Ok(())
}

pub(crate) fn learn(truth: &Truth, device: &Device) -> Result<()> {
    let new = |shape: (usize, usize)| Var::randn(0f32, 0.1, shape, device);
    let [first, second, third, fourth] = SHAPES;
    let vars =
        truth.while_loading(|| Ok::<_, candle_core::Error>([new(first)?, new(second)?, new(third)?, new(fourth)?]))?;
    let policy = Policy(vars.clone().map(Var::into_inner));
    let reference = truth.while_loading(|| policy.frozen())?;
    truth.are_parameters(policy.0.iter().chain(&reference.0));
    let mut learner = Learner { vars: vars.clone(), moments: HashMap::new() };
    for _ in 0..4 {
        let game = play(truth, &policy, &reference, device)?;
        let mut sums = HashMap::new();
        for at in 0..LENGTH {
            let loss = truth.on_the_way_there(|| game.loss(&policy, at))?;
            let gradients = truth.on_the_way_back(|| loss.backward())?;
            truth.are_gradients(&gradients, &vars);
            truth.while_updating(|| add(truth, &vars, &mut sums, &gradients))?;
        }
        truth.while_updating(|| clip(truth, &mut sums))?;
        truth.while_updating(|| learner.learn(truth, &sums))?;
    }
    Ok(())
}
