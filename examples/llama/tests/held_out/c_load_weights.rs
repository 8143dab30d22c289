//! Loads 24 layers one by one from bytes, then runs many forward passes.

use super::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::{Linear, Module};

const WIDTH: usize = 256;

struct Model {
    layers: Vec<Linear>,
}

fn read_layer(index: usize) -> Vec<u8> {
    let values = (0..WIDTH * WIDTH).map(|i| (((i * 7919 + index * 104_729) % 2001) as f32 - 1000.) / 9000.);
    values.flat_map(|x| x.to_le_bytes()).collect()
}

impl Model {
    fn load() -> Result<Self> {
        let mut layers = Vec::new();
        for index in 0..24 {
            let bytes = read_layer(index);
            let weight = Tensor::from_raw_buffer(&bytes, DType::F32, &[WIDTH, WIDTH], &Device::Cpu)?;
            layers.push(Linear::new(weight, None));
        }
        Ok(Model { layers })
    }
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let mut x = input.clone();
        for layer in &self.layers {
            x = layer.forward(&x)?.tanh()?;
        }
        Ok(x)
    }
}

pub(super) fn run() -> Result<()> {
    let model = Model::load()?;
    let mut sum = 0f32;
    for _pass in 0..20 {
        let input = Tensor::randn(0f32, 1., (64, WIDTH), &Device::Cpu)?;
        sum += model.forward(&input)?.sqr()?.mean_all()?.to_scalar::<f32>()?;
    }
    println!("sum {sum:.4}");
    Ok(())
}
