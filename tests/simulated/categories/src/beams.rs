//! An encoder and a decoder that searches with beams: after each token its caches are put in the order of the best beams.

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{Embedding, Linear, VarBuilder, embedding, linear_no_bias, ops};
use memtrace::Category::KvCache;

use crate::truth::Truth;

const WIDTH: usize = 64;
const WORDS: usize = 500;
const BEAMS: usize = 4;

struct Attention([Linear; 4]);

impl Attention {
    fn new(build: &VarBuilder<'_>) -> Result<Self> {
        let new = |name| linear_no_bias(WIDTH, WIDTH, build.pp(name));
        Ok(Self([new("q")?, new("k")?, new("v")?, new("o")?]))
    }

    fn keys_and_values(&self, x: &Tensor) -> Result<(Tensor, Tensor)> {
        Ok((self.0[1].forward(x)?, self.0[2].forward(x)?))
    }

    fn attend(&self, x: &Tensor, keys: &Tensor, values: &Tensor) -> Result<Tensor> {
        let scores = (self.0[0].forward(x)?.matmul(&keys.t()?)? / (WIDTH as f64).sqrt())?;
        x + self.0[3].forward(&ops::softmax_last_dim(&scores)?.matmul(values)?)?
    }
}

struct Layer {
    own: Attention,
    other: Attention,
    grown: Option<(Tensor, Tensor)>,
    source: Option<(Tensor, Tensor)>,
}

impl Layer {
    fn decode(&mut self, truth: &Truth, x: &Tensor) -> Result<Tensor> {
        let (keys, values) = self.own.keys_and_values(x)?;
        let (keys, values) = match self.grown.take() {
            Some((k, v)) => (Tensor::cat(&[k, keys], 1)?, Tensor::cat(&[v, values], 1)?),
            None => (keys, values),
        };
        [&keys, &values].into_iter().for_each(|cache| truth.is(cache, KvCache));
        let x = self.own.attend(x, &keys, &values)?;
        self.grown = Some((keys, values));
        let (keys, values) = self.source.as_ref().expect("the source was encoded");
        self.other.attend(&x, keys, values)
    }

    /// The caches of these beams.
    fn choose(&mut self, truth: &Truth, beams: &Tensor) -> Result<()> {
        if let Some((keys, values)) = self.grown.take() {
            let (keys, values) = (keys.index_select(beams, 0)?, values.index_select(beams, 0)?);
            [&keys, &values].into_iter().for_each(|cache| truth.is(cache, KvCache));
            self.grown = Some((keys, values));
        }
        Ok(())
    }
}

struct Model {
    words: Embedding,
    encoder: Attention,
    decoder: Vec<Layer>,
    head: Linear,
}

impl Model {
    fn new(build: &VarBuilder<'_>) -> Result<Self> {
        let layer = |n: usize| {
            let build = build.pp(n);
            let (own, other) = (Attention::new(&build.pp("own"))?, Attention::new(&build.pp("other"))?);
            Ok(Layer { own, other, grown: None, source: None })
        };
        Ok(Self {
            words: embedding(WORDS, WIDTH, build.pp("words"))?,
            encoder: Attention::new(&build.pp("encoder"))?,
            decoder: (0..2).map(layer).collect::<Result<_>>()?,
            head: linear_no_bias(WIDTH, WORDS, build.pp("head"))?,
        })
    }

    fn weights(&self) -> impl Iterator<Item = &Tensor> {
        let of_layers = self.decoder.iter().flat_map(|layer| layer.own.0.iter().chain(&layer.other.0));
        let linear = self.encoder.0.iter().chain(of_layers).chain([&self.head]);
        linear.map(Linear::weight).chain([self.words.embeddings()])
    }

    fn encode(&mut self, truth: &Truth, source: &Tensor) -> Result<()> {
        let x = self.words.forward(source)?;
        let (keys, values) = self.encoder.keys_and_values(&x)?;
        let x = self.encoder.attend(&x, &keys, &values)?;
        for layer in &mut self.decoder {
            let (keys, values) = layer.other.keys_and_values(&x)?;
            [&keys, &values].into_iter().for_each(|cache| truth.is(cache, KvCache));
            (layer.grown, layer.source) = (None, Some((keys, values)));
        }
        Ok(())
    }

    fn decode(&mut self, truth: &Truth, last: &Tensor) -> Result<Tensor> {
        let mut x = self.words.forward(last)?;
        for layer in &mut self.decoder {
            x = layer.decode(truth, &x)?;
        }
        ops::log_softmax(&self.head.forward(&x)?.squeeze(1)?, D::Minus1)
    }
}

fn answer(truth: &Truth, model: &mut Model, length: usize, tokens: usize, device: &Device) -> Result<()> {
    let source = vec![7u32; BEAMS * length];
    let source = truth.while_reading(|| Tensor::from_vec(source, (BEAMS, length), device))?;
    truth.on_the_way_there(|| model.encode(truth, &source))?;
    let mut last = truth.while_reading(|| Tensor::from_vec(vec![1u32; BEAMS], (BEAMS, 1), device))?;
    let mut scores = truth.on_the_way_there(|| Tensor::zeros((BEAMS, 1), DType::F32, device))?;
    truth.is_none_of_them(&scores);
    for _ in 0..tokens {
        let best = truth.on_the_way_there(|| {
            let all = model.decode(truth, &last)?.broadcast_add(&scores)?;
            let best = all.argmax(D::Minus1)?;
            scores = all.gather(&best.unsqueeze(1)?, 1)?;
            Ok::<_, candle_core::Error>(best.to_vec1::<u32>()?)
        })?;
        truth.is_none_of_them(&scores);
        let beams: Vec<u32> = (0..BEAMS as u32).map(|beam| beam ^ 1).collect();
        let beams = truth.while_reading(|| Tensor::from_vec(beams, BEAMS, device))?;
        truth.on_the_way_there(|| model.decoder.iter_mut().try_for_each(|layer| layer.choose(truth, &beams)))?;
        last = truth.while_reading(|| Tensor::from_vec(best, (BEAMS, 1), device))?;
    }
    Ok(())
}

pub(crate) fn search(truth: &Truth, device: &Device) -> Result<()> {
    let mut model = truth.while_loading(|| Model::new(&VarBuilder::zeros(DType::F32, device)))?;
    truth.are_parameters(model.weights());
    for (length, tokens) in [(40, 24), (20, 12), (60, 30)] {
        answer(truth, &mut model, length, tokens, device)?;
    }
    Ok(())
}
