//! Text generation with a tiny Llama, the model of `examples/llama`.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_transformers::models::llama::{Cache, Config, Llama};

use crate::Iteration;

#[path = "../../../examples/llama/model.rs"]
#[expect(dead_code, reason = "the example needs more of it")]
mod model;

const LAYERS: usize = 4;
const HIDDEN: usize = 128;

/// A model; each text starts with an empty cache.
pub(crate) struct Decode {
    model: Llama,
    config: Config,
    tokens: usize,
}

impl Decode {
    pub(crate) fn new(tokens: usize) -> Result<Self> {
        let config = model::small(LAYERS, HIDDEN);
        let model = Llama::load(model::random(DType::F32, &Device::Cpu), &config)?;
        Ok(Self { model, config, tokens })
    }
}

impl Iteration for Decode {
    fn iteration(&mut self) -> Result<()> {
        let mut cache = Cache::new(true, DType::F32, &self.config, &Device::Cpu)?;
        let mut next = 1;
        for position in 0..self.tokens {
            let input = Tensor::new(&[next], &Device::Cpu)?.unsqueeze(0)?;
            let logits = self.model.forward(&input, position, &mut cache)?;
            next = logits.argmax(D::Minus1)?.squeeze(0)?.to_scalar::<u32>()?;
        }
        Ok(())
    }
}
