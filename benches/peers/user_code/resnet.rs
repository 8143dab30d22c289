//! Training steps of ResNet-50, as in `examples/resnet`.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};

use crate::{Args, Iteration};
use model::ResNet50;
use sgd::SgdMomentum;

#[path = "../../../examples/resnet/model.rs"]
mod model;
#[path = "../../../examples/resnet/sgd.rs"]
mod sgd;

/// A network with its optimizer and a batch.
pub(crate) struct Training {
    model: ResNet50,
    optimizer: SgdMomentum,
    images: Tensor,
    labels: Tensor,
}

impl Training {
    pub(crate) fn new(args: &Args) -> Result<Self> {
        let (batch, image, device) = (args.batch, args.image, Device::Cpu);
        let varmap = VarMap::new();
        let model = ResNet50::new(VarBuilder::from_varmap(&varmap, DType::F32, &device))?;
        let labels: Vec<u32> = (0..batch as u32).map(|image| image % 1000).collect();
        Ok(Self {
            model,
            optimizer: SgdMomentum::new(sorted_vars(&varmap), args.learning_rate, 0.9),
            images: Tensor::randn(0f32, 1f32, (batch, 3, image, image), &device)?,
            labels: Tensor::new(labels, &device)?,
        })
    }
}

impl Iteration for Training {
    fn iteration(&mut self) -> Result<()> {
        let logits = self.model.forward(&self.images)?;
        let loss = candle_nn::loss::cross_entropy(&logits, &self.labels)?;
        let gradients = loss.backward()?;
        self.optimizer.step(&gradients)
    }
}

/// The variables by name: the order of `VarMap` differs between runs.
fn sorted_vars(varmap: &VarMap) -> Vec<Var> {
    let named = varmap.data().lock().expect("no other thread has them");
    let mut vars: Vec<(&String, &Var)> = named.iter().collect();
    vars.sort_by_key(|(name, _)| *name);
    vars.into_iter().map(|(_, var)| var.clone()).collect()
}
