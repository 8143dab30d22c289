//! BERT: embeddings of sentences, twice.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::bert::{BertModel, Config};

pub(crate) fn embed(device: &Device, last: &mut dyn FnMut()) -> Result<()> {
    let config = Config { hidden_size: 384, num_hidden_layers: 4, intermediate_size: 1536, ..Config::default() };
    embed_sentences((8, 128), &config, device, last)
}

/// 32 texts of 512 tokens, by a model with the sizes of BERT-base.
pub(crate) fn embed_texts(device: &Device, last: &mut dyn FnMut()) -> Result<()> {
    embed_sentences((32, 512), &Config::default(), device, last)
}

fn embed_sentences(shape: (usize, usize), config: &Config, device: &Device, last: &mut dyn FnMut()) -> Result<()> {
    let model = BertModel::load(VarBuilder::zeros(DType::F32, device), config)?;
    let tokens = Tensor::zeros(shape, DType::U32, device)?;
    let embed = || model.forward(&tokens, &tokens.zeros_like()?, None)?.mean(1)?.to_vec2::<f32>();
    embed()?;
    last();
    embed().map(drop)
}
