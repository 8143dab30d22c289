//! A generating decoder: keys and values of two layers grow by `cat`.

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{Embedding, Linear, VarBuilder, embedding, linear_no_bias, ops};
use memtrace::Category::KvCache;

use crate::truth::Truth;

const WIDTH: usize = 128;

struct Layer {
    queries: Linear,
    keys: Linear,
    values: Linear,
    out: Linear,
    cache: Option<(Tensor, Tensor)>,
}

impl Layer {
    fn new(build: &VarBuilder<'_>) -> Result<Self> {
        let linear = |name| linear_no_bias(WIDTH, WIDTH, build.pp(name));
        Ok(Self { queries: linear("q")?, keys: linear("k")?, values: linear("v")?, out: linear("o")?, cache: None })
    }

    fn forward(&mut self, truth: &Truth, x: &Tensor) -> Result<Tensor> {
        let (queries, keys, values) = (self.queries.forward(x)?, self.keys.forward(x)?, self.values.forward(x)?);
        let (keys, values) = match self.cache.take() {
            Some((k, v)) => (Tensor::cat(&[k, keys], 0)?, Tensor::cat(&[v, values], 0)?),
            None => (keys, values),
        };
        self.cache = Some((keys.clone(), values.clone()));
        [&keys, &values].into_iter().for_each(|cache| truth.is(cache, KvCache));
        let scores = (queries.matmul(&keys.t()?)? / (WIDTH as f64).sqrt())?;
        let weights = ops::softmax(&scores, D::Minus1)?;
        x + self.out.forward(&weights.matmul(&values)?)?
    }
}

struct Decoder {
    words: Embedding,
    layers: Vec<Layer>,
    head: Linear,
}

impl Decoder {
    fn forward(&mut self, truth: &Truth, tokens: &Tensor) -> Result<Tensor> {
        let mut x = self.words.forward(tokens)?;
        for layer in &mut self.layers {
            x = layer.forward(truth, &x)?;
        }
        self.head.forward(&x)
    }
}

pub(crate) fn generate(truth: &Truth, device: &Device) -> Result<()> {
    let build = VarBuilder::zeros(DType::F32, device);
    let mut model = truth.while_loading(|| {
        Ok::<_, candle_core::Error>(Decoder {
            words: embedding(1000, WIDTH, build.pp("words"))?,
            layers: (0..2).map(|n| Layer::new(&build.pp(n))).collect::<Result<_>>()?,
            head: linear_no_bias(WIDTH, 1000, build.pp("head"))?,
        })
    })?;
    let prompt = truth.while_reading(|| Tensor::from_vec((0u32..20).collect(), 20, device))?;
    let mut logits = truth.on_the_way_there(|| model.forward(truth, &prompt))?;
    for token in 0u32..60 {
        let next = truth.while_reading(|| Tensor::new(&[token], device))?;
        logits = truth.on_the_way_there(|| model.forward(truth, &next))?;
    }
    drop(logits);
    Ok(())
}
