//! Requests of several lengths alternate on one decoder: each has its own keys and values, which grow by `cat`.

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{Embedding, Linear, RmsNorm, VarBuilder, embedding, linear_no_bias, ops, rms_norm};
use memtrace::Category::KvCache;

use crate::truth::Truth;

const WIDTH: usize = 256;
const WORDS: usize = 2000;
const LAYERS: usize = 2;

/// Keys and values of one layer.
type Cache = Option<(Tensor, Tensor)>;

struct Layer {
    norm: RmsNorm,
    queries: Linear,
    keys: Linear,
    values: Linear,
    out: Linear,
}

impl Layer {
    fn new(build: &VarBuilder<'_>) -> Result<Self> {
        let linear = |name| linear_no_bias(WIDTH, WIDTH, build.pp(name));
        let norm = rms_norm(WIDTH, 1e-5, build.pp("norm"))?;
        Ok(Self { norm, queries: linear("q")?, keys: linear("k")?, values: linear("v")?, out: linear("o")? })
    }

    fn forward(&self, truth: &Truth, cache: &mut Cache, x: &Tensor) -> Result<Tensor> {
        let normed = self.norm.forward(x)?;
        let queries = self.queries.forward(&normed)?;
        let (keys, values) = (self.keys.forward(&normed)?, self.values.forward(&normed)?);
        let (keys, values) = match cache.take() {
            Some((k, v)) => (Tensor::cat(&[k, keys], 0)?, Tensor::cat(&[v, values], 0)?),
            None => (keys, values),
        };
        *cache = Some((keys.clone(), values.clone()));
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
    fn new(build: &VarBuilder<'_>) -> Result<Self> {
        Ok(Self {
            words: embedding(WORDS, WIDTH, build.pp("words"))?,
            layers: (0..LAYERS).map(|n| Layer::new(&build.pp(n))).collect::<Result<_>>()?,
            head: linear_no_bias(WIDTH, WORDS, build.pp("head"))?,
        })
    }

    /// The most probable next token.
    fn forward(&self, truth: &Truth, caches: &mut [Cache], tokens: &Tensor) -> Result<u32> {
        let mut x = self.words.forward(tokens)?;
        for (layer, cache) in self.layers.iter().zip(caches) {
            x = layer.forward(truth, cache, &x)?;
        }
        let last = x.narrow(0, x.dim(0)? - 1, 1)?.contiguous()?;
        self.head.forward(&last)?.argmax(D::Minus1)?.squeeze(0)?.to_scalar()
    }
}

/// A request and its cache.
struct Request {
    prompt: Vec<u32>,
    caches: Vec<Cache>,
}

impl Request {
    fn of_length(length: u32) -> Self {
        Self { prompt: (0..length).collect(), caches: vec![None; LAYERS] }
    }

    fn advance(&mut self, truth: &Truth, model: &Decoder, tokens: Vec<u32>, device: &Device) -> Result<u32> {
        let tokens = truth.while_reading(|| Tensor::new(tokens, device))?;
        truth.on_the_way_there(|| model.forward(truth, &mut self.caches, &tokens))
    }
}

pub(crate) fn generate(truth: &Truth, device: &Device) -> Result<()> {
    let model = truth.while_loading(|| Decoder::new(&VarBuilder::zeros(DType::F32, device)))?;
    let mut requests = [5, 9, 40].map(Request::of_length);
    for request in &mut requests {
        let prompt = request.prompt.clone();
        request.advance(truth, &model, prompt, device)?;
    }
    for turn in 0..50 {
        for request in &mut requests {
            // Not the model's output: the simulator computes nothing.
            request.advance(truth, &model, vec![turn], device)?;
        }
    }
    Ok(())
}
