//! A small version of candle's Llama, sources of weights, and its memory in theory.

use std::collections::HashMap;
use std::path::PathBuf;

use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};
use candle_transformers::models::llama::Config;

/// A Llama with this number of layers and this width, a multiple of 128: two heads of 64 values for each head of the KV
/// cache.
pub(crate) fn small(layers: usize, hidden: usize) -> Config {
    Config {
        hidden_size: hidden,
        // Two thirds of four times the width, rounded up to a multiple of 32.
        intermediate_size: (8 * hidden).div_ceil(3).next_multiple_of(32),
        vocab_size: 32_000,
        num_hidden_layers: layers,
        num_attention_heads: hidden / 64,
        num_key_value_heads: hidden / 128,
        max_position_embeddings: 1024,
        ..Config::config_7b_v2(false)
    }
}

/// Bytes in theory for a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Theory {
    /// All weights.
    pub(crate) parameters: u64,
    /// Tables of sines and cosines.
    pub(crate) rope_tables: u64,
    /// Growth of the KV cache per token: a key and a value in each layer.
    pub(crate) per_token: u64,
}

impl Theory {
    pub(crate) fn of(config: &Config, dtype: DType) -> Self {
        let size = dtype.size_in_bytes();
        let (hidden, layers) = (config.hidden_size, config.num_hidden_layers);
        let head = hidden / config.num_attention_heads;
        let kv = config.num_key_value_heads * head;
        let attention = 2 * hidden * hidden + 2 * hidden * kv;
        let layer = attention + 3 * hidden * config.intermediate_size + 2 * hidden;
        let tables = if config.tie_word_embeddings { 1 } else { 2 };
        let parameters = layers * layer + tables * config.vocab_size * hidden + hidden;
        Self {
            parameters: (parameters * size) as u64,
            rope_tables: (config.max_position_embeddings * head * size) as u64,
            per_token: (2 * layers * kv * size) as u64,
        }
    }
}

/// Random weights as plain tensors. A `VarMap` would create the same ones as variables.
pub(crate) struct RandomTensors;

impl SimpleBackend for RandomTensors {
    fn get(&self, shape: Shape, _: &str, init: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        Ok(init.var(shape, dtype, device)?.as_detached_tensor())
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        candle_core::bail!("{name} has no shape, so there are no random values for it")
    }

    fn contains_tensor(&self, _: &str) -> bool {
        true
    }
}

/// Random weights that are not variables.
pub(crate) fn random(dtype: DType, device: &Device) -> VarBuilder<'static> {
    VarBuilder::from_backend(Box::new(RandomTensors), dtype, device.clone())
}

/// Weights from safetensors files, as plain tensors.
pub(crate) fn from_files(files: &[PathBuf], dtype: DType, device: &Device) -> Result<VarBuilder<'static>> {
    let mut tensors = HashMap::new();
    for file in files {
        tensors.extend(candle_core::safetensors::load(file, device)?);
    }
    Ok(VarBuilder::from_tensors(tensors, dtype, device))
}
