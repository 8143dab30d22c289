//! The UNet of Stable Diffusion: two steps of denoising.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::stable_diffusion::unet_2d::{
    BlockConfig, UNet2DConditionModel, UNet2DConditionModelConfig,
};

pub(crate) fn denoise(device: &Device, last: &mut dyn FnMut()) -> Result<()> {
    let block = |out_channels, use_cross_attn| BlockConfig { out_channels, use_cross_attn, attention_head_dim: 4 };
    let config = UNet2DConditionModelConfig {
        blocks: vec![block(64, Some(1)), block(128, None)],
        cross_attention_dim: 256,
        ..UNet2DConditionModelConfig::default()
    };
    denoise_latents(32, config, device, last)
}

/// An image of 512 × 512 pixels, with the sizes of Stable Diffusion 1.5.
pub(crate) fn denoise_image(device: &Device, last: &mut dyn FnMut()) -> Result<()> {
    let config = UNet2DConditionModelConfig { cross_attention_dim: 768, ..UNet2DConditionModelConfig::default() };
    denoise_latents(64, config, device, last)
}

fn denoise_latents(
    size: usize,
    config: UNet2DConditionModelConfig,
    device: &Device,
    last: &mut dyn FnMut(),
) -> Result<()> {
    let width = config.cross_attention_dim;
    let model = UNet2DConditionModel::new(VarBuilder::zeros(DType::F32, device), 4, 4, false, config)?;
    let text = Tensor::randn(0f32, 1., (2, 77, width), device)?;
    let mut latents = Tensor::randn(0f32, 1., (2, 4, size, size), device)?;
    for timestep in [999., 499.] {
        if timestep < 500. {
            last();
        }
        let noise = model.forward(&latents, timestep, &text)?;
        latents = (latents - (noise * 0.1)?)?;
    }
    latents.flatten_all()?.to_vec1::<f32>()?;
    Ok(())
}
