//! Peaks of ResNet-50 and Llama on a real or simulated GPU; `cargo xtask peaks` runs them.
#![cfg(feature = "cuda")]

use candle_core::{D, DType, Result, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};
use candle_transformers::models::llama::{Cache, Config, Llama};
use memtrace::{Device, assert_no_growth, assert_no_leak, assert_peak, measure, scope};

#[path = "../model.rs"]
#[expect(dead_code, reason = "the example also makes weights")]
mod llama;
#[path = "../../resnet/model.rs"]
mod resnet;
#[path = "../../resnet/sgd.rs"]
mod sgd;

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

const GPU: Device = Device::Cuda(0);

fn gpu() -> Result<candle_core::Device> {
    memtrace::candle::cuda(0)
}

/// The variables by name: the order of `VarMap` differs between runs, and with it the first step's peak.
fn sorted_vars(varmap: &VarMap) -> Vec<Var> {
    let named = varmap.data().lock().unwrap();
    let mut names: Vec<&String> = named.keys().collect();
    names.sort();
    names.into_iter().map(|name| named[name].clone()).collect()
}

#[test]
fn a_training_step_of_resnet_50() -> Result<()> {
    let device = gpu()?;
    let varmap = VarMap::new();
    let network = measure(|| resnet::ResNet50::new(VarBuilder::from_varmap(&varmap, DType::F32, &device)));
    // 25,557,032 parameters and 53,120 running statistics of four bytes.
    assert_eq!(network.device(GPU).leaked, 102_440_608);
    let network = network.value?;
    let mut optimizer = sgd::SgdMomentum::new(sorted_vars(&varmap), 0.01, 0.9);
    let images = Tensor::zeros((1, 3, 224, 224), DType::F32, &device)?;
    let labels = Tensor::new(&[7u32], &device)?;
    let mut step = || {
        let logits = scope("forward", || network.forward(&images))?;
        let loss = candle_nn::loss::cross_entropy(&logits, &labels)?;
        let gradients = scope("backward", || loss.backward())?;
        scope("optimizer", || optimizer.step(&gradients))
    };
    // The first step allocates the momentum.
    assert_peak!(baseline = "resnet-50: first training step", device = GPU, step()?);
    assert_peak!(baseline = "resnet-50: training step", device = GPU, step()?);
    assert_no_leak!(step()?);
    Ok(())
}

#[test]
fn inference_of_resnet_50() -> Result<()> {
    let device = gpu()?;
    let network = resnet::ResNet50::new(VarBuilder::zeros(DType::F32, &device))?;
    let images = Tensor::zeros((1, 3, 224, 224), DType::F32, &device)?;
    assert_peak!("36 MiB", device = GPU, name = "resnet-50: inference", network.forward(&images)?);
    Ok(())
}

/// The token after `tokens`, the first of which is at `position`.
fn next(model: &Llama, cache: &mut Cache, tokens: &[u32], position: usize) -> Result<u32> {
    let input = Tensor::new(tokens, &gpu()?)?.unsqueeze(0)?;
    model.forward(&input, position, cache)?.argmax(D::Minus1)?.squeeze(0)?.to_scalar()
}

#[test]
fn each_token_of_llama_adds_its_keys_and_values() -> Result<()> {
    let (device, config) = (gpu()?, llama::small(4, 512));
    let theory = llama::Theory::of(&config, DType::F32);
    let model = Llama::load(VarBuilder::zeros(DType::F32, &device), &config)?;
    let mut cache = Cache::new(true, DType::F32, &config, &device)?;
    let prompt: Vec<u32> = (1..=16).collect();
    assert_peak!(baseline = "llama: prefill of 16 tokens", device = GPU, next(&model, &mut cache, &prompt, 0)?);
    for position in 16..32 {
        let token = measure(|| next(&model, &mut cache, &[7], position)).transpose()?;
        assert_eq!(token.device(GPU).net, theory.per_token as i64, "token {position}");
    }
    Ok(())
}

#[test]
fn requests_to_llama_leak_nothing() -> Result<()> {
    let (device, config) = (gpu()?, llama::small(2, 256));
    let model = Llama::load(VarBuilder::zeros(DType::F32, &device), &config)?;
    let tables = Cache::new(true, DType::F32, &config, &device)?;
    assert_no_growth!(iterations = 20, {
        let mut cache = tables.clone();
        next(&model, &mut cache, &[1, 2, 3, 4], 0)?;
        next(&model, &mut cache, &[5], 4)?
    });
    Ok(())
}

#[test]
fn llama_7b_fits_on_a_card_of_24_gb() -> Result<()> {
    let (device, config) = (gpu()?, Config { max_position_embeddings: 4096, ..Config::config_7b_v2(false) });
    let loaded_and_asked = || -> Result<()> {
        let model = Llama::load(VarBuilder::zeros(DType::F16, &device), &config)?;
        let mut cache = Cache::new(true, DType::F16, &config, &device)?;
        let prompt: Vec<u32> = (1..=512).collect();
        next(&model, &mut cache, &prompt, 0).map(drop)
    };
    assert_peak!("24 GB", device = GPU, baseline = "llama 7b: prompt of 512 tokens", loaded_and_asked()?);
    Ok(())
}
