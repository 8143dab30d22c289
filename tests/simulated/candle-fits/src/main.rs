//! `candle-fits NAME` runs a published architecture, a training step, or a program that holds too much, on `cuda:0` and up.

mod decoder;
mod diffusion;
mod encoders;
mod plans;
mod serving;
mod training;

use candle_core::{Device, Result, bail};

fn main() -> Result<()> {
    let name = std::env::args().nth(1).unwrap_or_default();
    let planned = std::env::args().nth(2).is_some_and(|word| word == "planned");
    let cuda = Device::new_cuda;
    match name.as_str() {
        "llama-1b" => decoder::run(&decoder::LLAMA_1B, &[cuda(0)?]),
        "llama-8b" => decoder::run(&decoder::LLAMA_8B, &[cuda(0)?]),
        "llama-70b" => decoder::run(&decoder::LLAMA_70B, &[cuda(0)?, cuda(1)?, cuda(2)?, cuda(3)?]),
        "quantized" => decoder::run_quantized(&decoder::LLAMA_8B, &cuda(0)?),
        "bert" => encoders::bert(&cuda(0)?),
        "vit" => encoders::vit(&cuda(0)?),
        "whisper" => encoders::whisper(&cuda(0)?),
        "unet" => diffusion::unet(&cuda(0)?),
        "vae" => diffusion::vae(&cuda(0)?),
        "server" => serving::growing_caches(&cuda(0)?),
        "mlp" => training::perceptron(&cuda(0)?),
        "lora" => training::lora(&cuda(0)?),
        "accumulate" => training::accumulated_gradients(&cuda(0)?),
        "freed-earlier" => plans::freed_earlier(planned, &cuda(0)?),
        "allocated-later" => plans::allocated_later(planned, &cuda(0)?),
        "kept-graphs" => plans::kept_graphs(planned, &cuda(0)?),
        "moved-to-host" => plans::moved_to_host(planned, &cuda(0)?),
        "between-tokens" => plans::between_tokens(planned, &cuda(0)?),
        "several" => plans::several(planned, &cuda(0)?),
        _ => bail!("no program {name:?}"),
    }
}
