//! The network of the example resnet on small images.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{VarBuilder, VarMap};

#[path = "../../examples/resnet/model.rs"]
mod model;
#[path = "../../examples/resnet/sgd.rs"]
mod sgd;

const IMAGE: usize = 32;

/// A network with its optimizer and one image.
pub(crate) struct Training {
    network: model::ResNet50,
    optimizer: sgd::SgdMomentum,
    image: Tensor,
    label: Tensor,
}

impl Training {
    pub(crate) fn load() -> Result<Self> {
        let varmap = VarMap::new();
        let network = model::ResNet50::new(VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu))?;
        let optimizer = sgd::SgdMomentum::new(varmap.all_vars(), 0.01, 0.9);
        let image = Tensor::randn(0f32, 1f32, (1, 3, IMAGE, IMAGE), &Device::Cpu)?;
        Ok(Self { network, optimizer, image, label: Tensor::new(&[7u32], &Device::Cpu)? })
    }

    pub(crate) fn forward(&self) -> Result<Tensor> {
        let logits = self.network.forward(&self.image)?;
        candle_nn::loss::cross_entropy(&logits, &self.label)
    }

    /// Forward, backward and optimizer.
    pub(crate) fn step(&mut self) -> Result<()> {
        let gradients = self.forward()?.backward()?;
        self.optimizer.step(&gradients)
    }
}
