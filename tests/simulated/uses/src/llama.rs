//! Llama: prompts, and tokens after one.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::llama::{Cache, Config, Llama};

const PROMPT: usize = 256;
const LONG_PROMPT: usize = 2048;
const TOKENS: usize = 16;

/// Four layers.
fn small() -> Config {
    Config {
        hidden_size: 512,
        intermediate_size: 1376,
        vocab_size: 4096,
        num_hidden_layers: 4,
        num_attention_heads: 8,
        num_key_value_heads: 4,
        max_position_embeddings: 512,
        ..Config::config_7b_v2(false)
    }
}

/// The sizes of Llama 3.2 with a billion parameters.
fn billion() -> Config {
    Config {
        hidden_size: 2048,
        intermediate_size: 8192,
        vocab_size: 128_256,
        num_hidden_layers: 16,
        num_attention_heads: 32,
        num_key_value_heads: 8,
        tie_word_embeddings: true,
        ..Config::config_7b_v2(false)
    }
}

struct Generation {
    model: Llama,
    cache: Cache,
    device: Device,
}

impl Generation {
    fn new(config: &Config, device: &Device) -> Result<Self> {
        let model = Llama::load(VarBuilder::zeros(DType::F16, device), config)?;
        Ok(Self { model, cache: Cache::new(true, DType::F16, config, device)?, device: device.clone() })
    }

    fn forward(&mut self, tokens: usize, position: usize) -> Result<()> {
        let tokens = Tensor::zeros((1, tokens), DType::U32, &self.device)?;
        self.model.forward(&tokens, position, &mut self.cache)?.to_vec2::<f32>()?;
        Ok(())
    }
}

/// Two prompts.
fn prompts(config: &Config, tokens: usize, device: &Device, last: &mut dyn FnMut()) -> Result<()> {
    let mut generation = Generation::new(config, device)?;
    let empty = generation.cache.clone();
    generation.forward(tokens, 0)?;
    generation.cache = empty;
    last();
    generation.forward(tokens, 0)
}

pub(crate) fn prefill(device: &Device, last: &mut dyn FnMut()) -> Result<()> {
    prompts(&small(), PROMPT, device, last)
}

pub(crate) fn long_prompts(device: &Device, last: &mut dyn FnMut()) -> Result<()> {
    prompts(&billion(), LONG_PROMPT, device, last)
}

pub(crate) fn decode(device: &Device, last: &mut dyn FnMut()) -> Result<()> {
    let mut generation = Generation::new(&small(), device)?;
    generation.forward(PROMPT, 0)?;
    (0..TOKENS).try_for_each(|token| generation.forward(1, PROMPT + token))?;
    last();
    generation.forward(1, PROMPT + TOKENS)
}
