//! Training with AdamW for 24 steps; only the numbers of the losses are kept.

use super::Result;
use candle_core::{DType, Device, Tensor};
use candle_nn::{AdamW, Linear, Module, Optimizer, ParamsAdamW, VarBuilder, VarMap, linear, loss};

struct Autoencoder {
    encode: Linear,
    decode: Linear,
}

impl Autoencoder {
    fn new(vb: VarBuilder) -> Result<Self> {
        let encode = linear(384, 512, vb.pp("encode"))?;
        let decode = linear(512, 384, vb.pp("decode"))?;
        Ok(Autoencoder { encode, decode })
    }
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let code = self.encode.forward(x)?.gelu()?;
        Ok(self.decode.forward(&code)?)
    }
}

pub(super) fn run() -> Result<()> {
    let vars = VarMap::new();
    let vb = VarBuilder::from_varmap(&vars, DType::F32, &Device::Cpu);
    let net = Autoencoder::new(vb)?;
    let config = ParamsAdamW { lr: 2e-3, ..Default::default() };
    let mut adamw = AdamW::new(vars.all_vars(), config)?;
    let mut losses: Vec<f32> = Vec::new();
    for _step in 0..24 {
        let x = Tensor::randn(0f32, 1., (64, 384), &Device::Cpu)?;
        let loss = loss::mse(&net.forward(&x)?, &x)?;
        adamw.backward_step(&loss)?;
        losses.push(loss.to_scalar::<f32>()?);
    }
    println!("loss {:.3} -> {:.3}", losses[0], losses[23]);
    Ok(())
}
