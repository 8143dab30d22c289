//! Gradient accumulation: sums the gradients of four small batches in the program's own tensors before each step.

use std::collections::HashMap;

use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Module, Result, Tensor, TensorId, Var};
use candle_nn::{AdamW, Embedding, Linear, Optimizer, VarBuilder, VarMap, embedding, linear, loss};
use memtrace::Category::Gradient;

use crate::truth::Truth;

const WIDTH: usize = 384;
const WORDS: usize = 1000;
const SMALL: usize = 32;
const SMALL_BATCHES: u32 = 4;

struct Model {
    words: Embedding,
    hidden: Vec<Linear>,
    out: Linear,
}

impl Model {
    fn new(build: &VarBuilder<'_>) -> Result<Self> {
        Ok(Self {
            words: embedding(WORDS, WIDTH, build.pp("words"))?,
            hidden: (0..3).map(|n| linear(WIDTH, WIDTH, build.pp(n))).collect::<Result<_>>()?,
            out: linear(WIDTH, WORDS, build.pp("out"))?,
        })
    }

    /// A part of the whole batch's loss.
    fn loss(&self, tokens: &Tensor, next: &Tensor) -> Result<Tensor> {
        let mut x = self.words.forward(tokens)?;
        for layer in &self.hidden {
            x = layer.forward(&x)?.relu()?;
        }
        loss::cross_entropy(&self.out.forward(&x)?, next)? / f64::from(SMALL_BATCHES)
    }
}

/// The accumulated gradient of each variable.
#[derive(Default)]
struct Sums(HashMap<TensorId, Tensor>);

impl Sums {
    fn add(&mut self, truth: &Truth, vars: &[Var], gradients: &GradStore) -> Result<()> {
        for var in vars {
            let Some(gradient) = gradients.get(var) else { continue };
            let sum = match self.0.get(&var.id()) {
                Some(sum) => (sum + gradient)?,
                None => gradient.clone(),
            };
            truth.is(&sum, Gradient);
            self.0.insert(var.id(), sum);
        }
        Ok(())
    }

    /// Replaces the gradients of one small batch.
    fn put_into(self, gradients: &mut GradStore) {
        for (id, sum) in self.0 {
            gradients.insert_id(id, sum);
        }
    }
}

pub(crate) fn train(truth: &Truth, device: &Device) -> Result<()> {
    let weights = VarMap::new();
    let model = truth.while_loading(|| Model::new(&VarBuilder::from_varmap(&weights, DType::F32, device)))?;
    let vars = crate::variables(&weights);
    let mut optimizer = truth.while_updating(|| AdamW::new_lr(vars.clone(), 1e-3))?;
    for _ in 0..4 {
        let mut sums = Sums::default();
        let mut last = None;
        for small in 0..SMALL_BATCHES {
            let tokens = truth.while_reading(|| Tensor::from_vec(vec![small; SMALL], SMALL, device))?;
            let next = truth.while_reading(|| Tensor::from_vec(vec![small + 1; SMALL], SMALL, device))?;
            let loss = truth.on_the_way_there(|| model.loss(&tokens, &next))?;
            let gradients = truth.on_the_way_back(|| loss.backward())?;
            truth.are_gradients(&gradients, &vars);
            sums.add(truth, &vars, &gradients)?;
            last = Some(gradients);
        }
        let mut gradients = last.expect("there were some");
        sums.put_into(&mut gradients);
        truth.while_updating(|| optimizer.step(&gradients))?;
    }
    Ok(())
}
