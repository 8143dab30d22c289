//! The recipes of docs/testing.md, which quotes this file.

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{AdamW, Module, Optimizer, VarBuilder, VarMap};
use memtrace::{Scaling, assert_no_growth, assert_no_leak, assert_peak, assert_scaling, measure, measure_in_pool};

#[global_allocator]
static ALLOC: memtrace::Alloc = memtrace::Alloc::system();

struct Mlp {
    first: candle_nn::Linear,
    second: candle_nn::Linear,
}

impl Mlp {
    fn load(vb: VarBuilder<'_>) -> Result<Self> {
        let first = candle_nn::linear(64, 256, vb.pp("first"))?;
        Ok(Self { first, second: candle_nn::linear(256, 10, vb.pp("second"))? })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.second.forward(&self.first.forward(x)?.relu()?)
    }
}

fn plain_model() -> Result<Mlp> {
    Mlp::load(VarBuilder::zeros(DType::F32, &Device::Cpu))
}

fn batch(n: usize) -> Result<Tensor> {
    Tensor::ones((n, 64), DType::F32, &Device::Cpu)
}

#[test]
fn inference_peak() -> Result<()> {
    let (model, x) = (plain_model()?, batch(32)?);
    let y = assert_peak!("160 KiB", model.forward(&x)?);
    assert_eq!(y.dims(), [32, 10]);
    Ok(())
}

#[test]
fn inference_scales_with_the_batch() -> Result<()> {
    let model = plain_model()?;
    assert_scaling!(Scaling::Linear, sizes = [8, 16, 32, 64], |n| model.forward(&batch(n)?)?);
    Ok(())
}

#[test]
fn training_step() -> Result<()> {
    let varmap = VarMap::new();
    let model = Mlp::load(VarBuilder::from_varmap(&varmap, DType::F32, &Device::Cpu))?;
    let mut optimizer = AdamW::new_lr(varmap.all_vars(), 1e-3)?;
    // Allocates gemm's buffer for this thread, whose size depends on the processor.
    memtrace::candle::warm();
    let x = batch(32)?;
    let mut step = || optimizer.backward_step(&model.forward(&x)?.sqr()?.mean_all()?);
    assert_peak!(baseline = "training step", tolerance = "5%", step()?);
    // Losses that are kept as tensors keep their graphs; this finds them.
    assert_no_leak!(step()?);
    Ok(())
}

/// Keys and values of all tokens so far.
#[derive(Default)]
struct KvCache(Option<Tensor>);

impl KvCache {
    fn append(&mut self, token: &Tensor) -> Result<()> {
        let all = match self.0.take() {
            Some(before) => Tensor::cat(&[&before, token], 0)?,
            None => token.copy()?,
        };
        self.0 = Some(all);
        Ok(())
    }
}

#[test]
fn kv_cache_per_token() -> Result<()> {
    let (mut cache, token) = (KvCache::default(), batch(1)?);
    (0..2).try_for_each(|_| cache.append(&token))?;
    for position in 2..100 {
        let m = measure(|| cache.append(&token)).transpose()?;
        assert_eq!(m.net, 64 * 4, "token {position}");
    }
    Ok(())
}

#[test]
fn no_growth_per_request() -> Result<()> {
    let model = plain_model()?;
    let mut masks = std::collections::HashMap::new();
    let mut request = 0;
    assert_no_growth!(iterations = 40, {
        request += 1;
        let n = 1 + request % 8;
        // Eight lengths, eight masks: a cache that fills up, not growth.
        let mask = masks.entry(n).or_insert(batch(n)?).clone();
        model.forward(&(batch(n)? * mask)?)?
    });
    Ok(())
}

#[test]
fn all_of_an_operators_threads() -> Result<()> {
    let images = Tensor::zeros((1, 16, 64, 64), DType::F32, &Device::Cpu)?;
    let kernel = Tensor::zeros((16, 16, 3, 3), DType::F32, &Device::Cpu)?;
    let m = measure_in_pool(|| images.conv2d(&kernel, 1, 1, 1, 1)).transpose()?;
    assert_eq!(m.value.dims(), [1, 16, 64, 64]);
    assert!(m.peak < 4 << 20, "{}", memtrace::Bytes(m.peak));
    assert!(m.allocations > 0);
    Ok(())
}

#[tokio::test]
async fn a_handler() -> Result<()> {
    let model = plain_model()?;
    let handler = async |n| model.forward(&batch(n)?);
    let m = memtrace::measure_async(handler(8)).await;
    assert!(m.peak < 80 << 10, "{}", memtrace::Bytes(m.peak));
    Ok(())
}

/// Lines without their indentation.
fn dedented(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_page_quotes_what_runs() {
    let sources = [include_str!("recipes.rs"), include_str!("../examples/llama/tests/peaks.rs")].map(dedented);
    let page = include_str!("../docs/testing.md");
    let blocks: Vec<String> =
        page.split("```rust\n").skip(1).map(|rest| dedented(rest.split("```").next().unwrap())).collect();
    assert!(blocks.len() >= 8, "{}", blocks.len());
    for block in blocks {
        assert!(sources.iter().any(|source| source.contains(&block)), "no test has\n{block}");
    }
}
