//! The cure for `optimizer_transient`: an optimizer that needs less memory for a moment.

use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, Var};

/// AdamW with candle's defaults, on tensors that are not variables.
pub(super) struct Frugal {
    slots: Vec<[Var; 3]>,
    steps: i32,
}

impl Frugal {
    pub(super) fn new(vars: Vec<Var>) -> Result<Self> {
        let slot =
            |var: Var| Ok([var.clone(), Var::from_tensor(&var.zeros_like()?)?, Var::from_tensor(&var.zeros_like()?)?]);
        Ok(Self { slots: vars.into_iter().map(slot).collect::<Result<_>>()?, steps: 0 })
    }

    pub(super) fn step(&mut self, gradients: &GradStore) -> Result<()> {
        self.steps += 1;
        let corrections = [0.9f64, 0.999].map(|beta| 1. / (1. - beta.powi(self.steps)));
        for [var, first, second] in &self.slots {
            let Some(gradient) = gradients.get(var) else { continue };
            update(first, 0.9, &gradient.detach())?;
            update(second, 0.999, &gradient.detach().sqr()?)?;
            let scale = ((second.as_detached_tensor() * corrections[1])?.sqrt()? + 1e-8)?;
            let change = ((first.as_detached_tensor() * (corrections[0] * 1e-3))? / scale)?;
            let decayed = (var.as_detached_tensor() * (1. - 1e-3 * 0.01))?;
            var.set(&(decayed - change)?)?;
        }
        Ok(())
    }
}

/// Adds a value to a moving average.
fn update(average: &Var, beta: f64, value: &Tensor) -> Result<()> {
    let old = (average.as_detached_tensor() * beta)?;
    average.set(&(old + (value * (1. - beta))?)?)
}
