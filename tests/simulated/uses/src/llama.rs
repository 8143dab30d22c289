//! Llama with four layers: a prompt, and tokens after it.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama};

const PROMPT: usize = 256;
const TOKENS: usize = 16;

struct Generation {
    model: Llama,
    cache: Cache,
    device: Device,
}

impl Generation {
    fn new(device: &Device) -> Result<Self> {
        let config = Config {
            hidden_size: 512,
            intermediate_size: 1376,
            vocab_size: 4096,
            num_hidden_layers: 4,
            num_attention_heads: 8,
            num_key_value_heads: 4,
            max_position_embeddings: 512,
            ..Config::config_7b_v2(false)
        };
        let model = Llama::load(VarBuilder::zeros(DType::F16, device), &config)?;
        Ok(Self { model, cache: Cache::new(true, DType::F16, &config, device)?, device: device.clone() })
    }

    fn forward(&mut self, tokens: usize, position: usize) -> Result<()> {
        let tokens = Tensor::zeros((1, tokens), DType::U32, &self.device)?;
        self.model.forward(&tokens, position, &mut self.cache)?.to_vec2::<f32>()?;
        Ok(())
    }
}

/// Two prompts.
pub(crate) fn prefill(device: &Device, last: &mut dyn FnMut()) -> Result<()> {
    let mut generation = Generation::new(device)?;
    let empty = generation.cache.clone();
    generation.forward(PROMPT, 0)?;
    generation.cache = empty;
    last();
    generation.forward(PROMPT, 0)
}

pub(crate) fn decode(device: &Device, last: &mut dyn FnMut()) -> Result<()> {
    let mut generation = Generation::new(device)?;
    generation.forward(PROMPT, 0)?;
    (0..TOKENS).try_for_each(|token| generation.forward(1, PROMPT + token))?;
    last();
    generation.forward(1, PROMPT + TOKENS)
}
