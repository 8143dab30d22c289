//! Two layers that classify images, as in candle's guide.

use candle_core::{Device, Result, Tensor};

pub struct Model {
    first: Tensor,
    second: Tensor,
}

impl Model {
    pub fn new(device: &Device) -> Result<Self> {
        let first = Tensor::randn(0f32, 0.1, (784, 500), device)?;
        let second = Tensor::randn(0f32, 0.1, (500, 500), device)?;
        Ok(Self { first, second })
    }

    pub fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let hidden = images.matmul(&self.first)?.relu()?;
        hidden.matmul(&self.second)
    }
}

pub fn images(count: usize, device: &Device) -> Result<Tensor> {
    Tensor::randn(0f32, 1.0, (count, 784), device)
}
