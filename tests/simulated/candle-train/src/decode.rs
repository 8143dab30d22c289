//! Decodes with a small transformer on `cuda:0`: its keys and values grow by `cat`. The program does not know that the GPU may be
//! simulated.

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{Embedding, Linear, RmsNorm, VarBuilder, embedding, linear_no_bias, ops, rms_norm};

const WIDTH: usize = 64;
const WORDS: usize = 100;
const LAYERS: usize = 2;
const TOKENS: usize = 24;

fn main() -> Result<()> {
    let device = Device::new_cuda(0)?;
    let mut model = Decoder::new(&VarBuilder::zeros(DType::F32, &device))?;
    // A prompt of five tokens, then one after another.
    let mut tokens: Vec<u32> = (1..=5).collect();
    let mut next = tokens.clone();
    for number in 0..TOKENS {
        let logits = model.forward(&Tensor::new(&*next, &device)?)?;
        let token = logits.argmax(D::Minus1)?.to_scalar::<u32>()?;
        println!("token {number}: {token}, {} positions", model.positions());
        tokens.push(token);
        next = vec![token];
    }
    println!("{} tokens", tokens.len());
    device.synchronize()
}

struct Layer {
    norm: RmsNorm,
    queries: Linear,
    keys: Linear,
    values: Linear,
    out: Linear,
    cache: Option<(Tensor, Tensor)>,
}

impl Layer {
    fn new(vars: &VarBuilder) -> Result<Self> {
        let linear = |name| linear_no_bias(WIDTH, WIDTH, vars.pp(name));
        Ok(Self {
            norm: rms_norm(WIDTH, 1e-5, vars.pp("norm"))?,
            queries: linear("queries")?,
            keys: linear("keys")?,
            values: linear("values")?,
            out: linear("out")?,
            cache: None,
        })
    }

    fn forward(&mut self, x: &Tensor) -> Result<Tensor> {
        let normed = self.norm.forward(x)?;
        let (keys, values) = (self.keys.forward(&normed)?, self.values.forward(&normed)?);
        let (keys, values) = match &self.cache {
            Some((k, v)) => (Tensor::cat(&[k, &keys], 0)?, Tensor::cat(&[v, &values], 0)?),
            None => (keys, values),
        };
        self.cache = Some((keys.clone(), values.clone()));
        let scores = (self.queries.forward(&normed)?.matmul(&keys.t()?)? / (WIDTH as f64).sqrt())?;
        x + self.out.forward(&ops::softmax(&scores, D::Minus1)?.matmul(&values)?)?
    }
}

struct Decoder {
    words: Embedding,
    layers: Vec<Layer>,
    head: Linear,
}

impl Decoder {
    fn new(vars: &VarBuilder) -> Result<Self> {
        let layer = |number: usize| Layer::new(&vars.pp(format!("layers.{number}")));
        Ok(Self {
            words: embedding(WORDS, WIDTH, vars.pp("words"))?,
            layers: (0..LAYERS).map(layer).collect::<Result<_>>()?,
            head: linear_no_bias(WIDTH, WORDS, vars.pp("head"))?,
        })
    }

    /// The logits behind the last token.
    fn forward(&mut self, tokens: &Tensor) -> Result<Tensor> {
        let mut x = self.words.forward(tokens)?;
        for layer in &mut self.layers {
            x = layer.forward(&x)?;
        }
        let last = x.dim(0)? - 1;
        self.head.forward(&x.narrow(0, last, 1)?)?.squeeze(0)
    }

    fn positions(&self) -> usize {
        let cache = self.layers[0].cache.as_ref();
        cache.map_or(0, |(keys, _)| keys.dims()[0])
    }
}
