//! Inference with published encoders, and with Whisper's encoder and decoder.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::{bert, vit, whisper};

pub fn bert(device: &Device) -> Result<()> {
    let model = bert::BertModel::load(VarBuilder::zeros(DType::F32, device), &bert::Config::default())?;
    for length in [128, 512, 256] {
        let ids = Tensor::zeros((16, length), DType::U32, device)?;
        let output = model.forward(&ids, &ids.zeros_like()?, None)?;
        println!("{:?}", (output.sum(1)? / length as f64)?.dims());
    }
    Ok(())
}

pub fn vit(device: &Device) -> Result<()> {
    let model = vit::Model::new(&vit::Config::vit_base_patch16_224(), 1000, VarBuilder::zeros(DType::F32, device))?;
    let logits = model.forward(&Tensor::zeros((32, 3, 224, 224), DType::F32, device)?)?;
    println!("{:?}", logits.argmax(D::Minus1)?.to_vec1::<u32>()?.len());
    Ok(())
}

/// Half a minute of sound with the size "small", then twenty tokens.
pub fn whisper(device: &Device) -> Result<()> {
    let config = whisper::Config {
        num_mel_bins: 80,
        max_source_positions: 1500,
        d_model: 768,
        encoder_attention_heads: 12,
        encoder_layers: 12,
        vocab_size: 51_865,
        max_target_positions: 448,
        decoder_attention_heads: 12,
        decoder_layers: 12,
        suppress_tokens: Vec::new(),
    };
    let mut model = whisper::model::Whisper::load(&VarBuilder::zeros(DType::F32, device), config)?;
    let sound = model.encoder.forward(&Tensor::zeros((1, 80, 3000), DType::F32, device)?, true)?;
    let mut tokens = vec![0u32];
    for at in 0..20 {
        let so_far = Tensor::new(tokens.as_slice(), device)?.unsqueeze(0)?;
        let ys = model.decoder.forward(&so_far, &sound, at == 0)?;
        let logits = model.decoder.final_linear(&ys.narrow(1, at, 1)?)?;
        tokens.extend(logits.flatten_all()?.argmax(0)?.reshape(1)?.to_vec1::<u32>()?);
    }
    println!("{} tokens", tokens.len());
    Ok(())
}
