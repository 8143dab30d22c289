//! An encoder and a decoder with cross-attention (sequence to sequence): greedy answers to several requests, with
//! caches of a fixed length.

use std::collections::HashMap;

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{Embedding, LayerNorm, Linear, VarBuilder, embedding, layer_norm, linear_no_bias, ops};
use memtrace::Category::KvCache;

use crate::truth::Truth;

const WIDTH: usize = 128;
const HEADS: usize = 4;
const WORDS: usize = 1000;
const LONGEST: usize = 128;
const BATCH: usize = 4;

/// Weights as from a file.
fn read_weights() -> Result<HashMap<String, Tensor>> {
    let mut shapes = vec![
        ("words.weight".to_owned(), vec![WORDS, WIDTH]),
        ("positions.weight".to_owned(), vec![LONGEST, WIDTH]),
        ("head.weight".to_owned(), vec![WORDS, WIDTH]),
    ];
    for layer in ["encoder.0", "encoder.1", "decoder.0", "decoder.1"] {
        for name in ["own.q", "own.k", "own.v", "own.o", "other.q", "other.k", "other.v", "other.o"] {
            shapes.push((format!("{layer}.{name}.weight"), vec![WIDTH, WIDTH]));
        }
        shapes.push((format!("{layer}.up.weight"), vec![4 * WIDTH, WIDTH]));
        shapes.push((format!("{layer}.down.weight"), vec![WIDTH, 4 * WIDTH]));
        shapes.push((format!("{layer}.norm.weight"), vec![WIDTH]));
        shapes.push((format!("{layer}.norm.bias"), vec![WIDTH]));
    }
    shapes.into_iter().map(|(name, shape)| Ok((name, Tensor::full(0.02f32, shape, &Device::Cpu)?))).collect()
}

struct Attention {
    queries: Linear,
    keys: Linear,
    values: Linear,
    out: Linear,
}

impl Attention {
    fn new(build: &VarBuilder<'_>) -> Result<Self> {
        let linear = |name| linear_no_bias(WIDTH, WIDTH, build.pp(name));
        Ok(Self { queries: linear("q")?, keys: linear("k")?, values: linear("v")?, out: linear("o")? })
    }

    fn project(linear: &Linear, x: &Tensor) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        linear.forward(x)?.reshape((batch, length, HEADS, WIDTH / HEADS))?.transpose(1, 2)?.contiguous()
    }

    fn keys_and_values(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        Ok((Self::project(&self.keys, x)?, Self::project(&self.values, x)?))
    }

    fn attend(&self, x: &Tensor, keys: &Tensor, values: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let queries = Self::project(&self.queries, x)?;
        let mut scores = (queries.matmul(&keys.t()?)? / ((WIDTH / HEADS) as f64).sqrt())?;
        if let Some(mask) = mask {
            scores = scores.broadcast_add(mask)?;
        }
        let seen = ops::softmax_last_dim(&scores)?.matmul(values)?;
        self.out.forward(&seen.transpose(1, 2)?.reshape(x.shape())?)
    }
}

/// Keys and values that a decoder layer attends to.
struct Cache {
    keys: Tensor,
    values: Tensor,
    source: (Tensor, Tensor),
}

struct Layer {
    own: Attention,
    other: Option<Attention>,
    norm: LayerNorm,
    up: Linear,
    down: Linear,
}

impl Layer {
    fn new(build: &VarBuilder<'_>, decodes: bool) -> Result<Self> {
        Ok(Self {
            own: Attention::new(&build.pp("own"))?,
            other: decodes.then(|| Attention::new(&build.pp("other"))).transpose()?,
            norm: layer_norm(WIDTH, 1e-5, build.pp("norm"))?,
            up: linear_no_bias(WIDTH, 4 * WIDTH, build.pp("up"))?,
            down: linear_no_bias(4 * WIDTH, WIDTH, build.pp("down"))?,
        })
    }

    fn finish(&self, x: &Tensor) -> Result<Tensor> {
        x + self.down.forward(&self.up.forward(&self.norm.forward(x)?)?.gelu()?)?
    }

    fn encode(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let (keys, values) = self.own.keys_and_values(x)?;
        self.finish(&(x + self.own.attend(x, &keys, &values, Some(mask))?)?)
    }

    fn decode(&self, x: &Tensor, at: usize, cache: &Cache, mask: &Tensor) -> Result<Tensor> {
        let (keys, values) = self.own.keys_and_values(x)?;
        cache.keys.slice_set(&keys, 2, at)?;
        cache.values.slice_set(&values, 2, at)?;
        let (keys, values) = (cache.keys.narrow(2, 0, at + 1)?, cache.values.narrow(2, 0, at + 1)?);
        let mut x = (x + self.own.attend(x, &keys, &values, None)?)?;
        if let Some(other) = &self.other {
            x = (&x + other.attend(&x, &cache.source.0, &cache.source.1, Some(mask))?)?;
        }
        self.finish(&x)
    }
}

struct Model {
    words: Embedding,
    positions: Tensor,
    encoder: Vec<Layer>,
    decoder: Vec<Layer>,
    head: Linear,
}

impl Model {
    fn new(build: &VarBuilder<'_>) -> Result<Self> {
        let layers =
            |name: &str, decodes| (0..2).map(|n| Layer::new(&build.pp(name).pp(n), decodes)).collect::<Result<_>>();
        Ok(Self {
            words: embedding(WORDS, WIDTH, build.pp("words"))?,
            positions: build.get((LONGEST, WIDTH), "positions.weight")?,
            encoder: layers("encoder", false)?,
            decoder: layers("decoder", true)?,
            head: linear_no_bias(WIDTH, WORDS, build.pp("head"))?,
        })
    }

    fn embed(&self, tokens: &Tensor, at: usize) -> Result<Tensor> {
        self.words.forward(tokens)?.broadcast_add(&self.positions.narrow(0, at, tokens.dim(1)?)?)
    }

    /// Encodes the source. Only the keys and values for the decoder remain.
    fn start(&self, truth: &Truth, source: &Tensor, mask: &Tensor, tokens: usize) -> Result<Vec<Cache>> {
        let mut x = self.embed(source, 0)?;
        for layer in &self.encoder {
            x = layer.encode(&x, mask)?;
        }
        let mut caches = Vec::new();
        for attention in self.decoder.iter().filter_map(|layer| layer.other.as_ref()) {
            let source = attention.keys_and_values(&x)?;
            let empty = || Tensor::zeros((BATCH, HEADS, tokens, WIDTH / HEADS), DType::F32, x.device());
            let cache = Cache { keys: empty()?, values: empty()?, source };
            let kept = [&cache.keys, &cache.values, &cache.source.0, &cache.source.1];
            kept.into_iter().for_each(|kept| truth.is(kept, KvCache));
            caches.push(cache);
        }
        Ok(caches)
    }

    fn next(&self, tokens: &Tensor, at: usize, caches: &[Cache], mask: &Tensor) -> Result<(Tensor, Vec<u32>)> {
        let mut x = self.embed(tokens, at)?;
        for (layer, cache) in self.decoder.iter().zip(caches) {
            x = layer.decode(&x, at, cache, mask)?;
        }
        let logits = self.head.forward(&x)?.squeeze(1)?;
        let best = logits.argmax(D::Minus1)?.to_vec1()?;
        Ok((logits, best))
    }
}

/// The logits of all tokens of the answer.
fn answer(truth: &Truth, model: &Model, length: usize, tokens: usize, device: &Device) -> Result<Tensor> {
    let source = truth.while_reading(|| Tensor::from_vec(vec![7u32; BATCH * length], (BATCH, length), device))?;
    let mask = truth.while_reading(|| Tensor::from_vec(vec![0f32; BATCH * length], (BATCH, 1, 1, length), device))?;
    let caches = memtrace::scope("encode", || truth.on_the_way_there(|| model.start(truth, &source, &mask, tokens)))?;
    let mut last = vec![1u32; BATCH];
    let mut collected = Vec::new();
    for at in 0..tokens {
        let newest = truth.while_reading(|| Tensor::from_slice(&last, (BATCH, 1), device))?;
        let logits;
        (logits, last) =
            memtrace::scope("decode", || truth.on_the_way_there(|| model.next(&newest, at, &caches, &mask)))?;
        truth.is_none_of_them(&logits);
        collected.push(logits);
    }
    let collected = truth.on_the_way_there(|| Tensor::stack(&collected, 1))?;
    truth.is_none_of_them(&collected);
    Ok(collected)
}

pub(crate) fn translate(truth: &Truth, device: &Device) -> Result<()> {
    let weights = read_weights()?;
    let model = truth.while_loading(|| Model::new(&VarBuilder::from_tensors(weights, DType::F32, device)))?;
    let mut answers = Vec::new();
    for (length, tokens) in [(96, 40), (33, 16), (128, 28)] {
        answers.push(answer(truth, &model, length, tokens, device)?);
    }
    assert_eq!(answers.len(), 3);
    Ok(())
}
