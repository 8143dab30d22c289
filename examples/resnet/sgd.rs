//! Stochastic gradient descent with momentum, which candle's `SGD` lacks.

use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, Var};

/// The rule of `torch.optim.SGD(lr, momentum)`: velocity = momentum * velocity + gradient (the gradient alone in the
/// first step), then parameter -= lr * velocity.
///
/// Updates velocities and parameters in place: their addresses stay the same, and none keeps an autograd graph alive. A
/// step needs at most two temporaries per parameter.
pub(crate) struct SgdMomentum {
    slots: Vec<Slot>,
    lr: f64,
    momentum: f64,
}

impl SgdMomentum {
    /// An optimizer of `vars`; the first step allocates the velocities.
    pub(crate) fn new(vars: Vec<Var>, lr: f64, momentum: f64) -> Self {
        Self { slots: vars.into_iter().map(Slot::new).collect(), lr, momentum }
    }

    /// Updates every variable that has a gradient; others (running statistics) stay.
    pub(crate) fn step(&mut self, grads: &GradStore) -> Result<()> {
        for slot in &mut self.slots {
            if let Some(grad) = grads.get(&slot.var) {
                let velocity = slot.accumulate(&grad.detach(), self.momentum)?;
                slot.descend(&velocity, self.lr)?;
            }
        }
        Ok(())
    }
}

/// A variable and its velocity, if it has one yet.
struct Slot {
    var: Var,
    velocity: Option<Var>,
}

impl Slot {
    /// A slot without a velocity.
    fn new(var: Var) -> Self {
        Self { var, velocity: None }
    }

    /// Adds `grad`, which has no graph, to the velocity, and returns a view of the result.
    fn accumulate(&mut self, grad: &Tensor, momentum: f64) -> Result<Tensor> {
        if let Some(velocity) = &self.velocity {
            let decayed = (velocity.as_detached_tensor() * momentum)?;
            let next = (decayed + grad)?;
            velocity.set(&next)?;
            return Ok(velocity.as_detached_tensor());
        }
        let velocity = self.velocity.insert(Var::from_tensor(grad)?);
        let name = memtrace::candle::name_of(&self.var).map(|name| format!("velocity of {name}"));
        memtrace::candle::tag_optimizer([(name.as_deref().unwrap_or("velocity"), velocity.as_tensor())]);
        Ok(velocity.as_detached_tensor())
    }

    /// Moves the variable against the velocity.
    fn descend(&self, velocity: &Tensor, lr: f64) -> Result<()> {
        let update = (velocity * lr)?;
        let next = (self.var.as_detached_tensor() - update)?;
        self.var.set(&next)
    }
}
