//! Parts of Stable Diffusion 1.5: three steps of its U-Net, and its decoder of images.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::stable_diffusion::unet_2d::{
    BlockConfig, UNet2DConditionModel, UNet2DConditionModelConfig,
};
use candle_transformers::models::stable_diffusion::vae::{AutoEncoderKL, AutoEncoderKLConfig};

pub fn unet(device: &Device) -> Result<()> {
    let block = |out_channels, use_cross_attn| BlockConfig { out_channels, use_cross_attn, attention_head_dim: 8 };
    let config = UNet2DConditionModelConfig {
        blocks: vec![block(320, Some(1)), block(640, Some(1)), block(1280, Some(1)), block(1280, None)],
        cross_attention_dim: 768,
        ..UNet2DConditionModelConfig::default()
    };
    let unet = UNet2DConditionModel::new(VarBuilder::zeros(DType::F16, device), 4, 4, false, config)?;
    let text = Tensor::zeros((2, 77, 768), DType::F16, device)?;
    let mut latents = Tensor::zeros((1, 4, 64, 64), DType::F16, device)?;
    for step in 0..3 {
        let both = Tensor::cat(&[&latents, &latents], 0)?;
        let noise = unet.forward(&both, f64::from(step) * 100., &text)?.chunk(2, 0)?;
        let guided = (&noise[0] + ((&noise[1] - &noise[0])? * 7.5)?)?;
        latents = (&latents - (guided * 0.1)?)?;
    }
    println!("{:?}", latents.dims());
    Ok(())
}

pub fn vae(device: &Device) -> Result<()> {
    let config = AutoEncoderKLConfig {
        block_out_channels: vec![128, 256, 512, 512],
        layers_per_block: 2,
        ..AutoEncoderKLConfig::default()
    };
    let vae = AutoEncoderKL::new(VarBuilder::zeros(DType::F32, device), 3, 3, config)?;
    let images = vae.decode(&Tensor::zeros((1, 4, 64, 64), DType::F32, device)?)?;
    println!("{:?}", images.clamp(0f32, 1f32)?.dims());
    Ok(())
}
