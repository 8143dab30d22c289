//! A decoder like Llama: prefill, then token by token with growing caches.

use candle_core::{D, DType, Device, IndexOp, Result, Tensor};

use crate::op;

const HIDDEN: usize = 128;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD: usize = HIDDEN / HEADS;
const VOCABULARY: usize = 512;

struct Layer {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    norms: [Tensor; 2],
    cache: Option<(Tensor, Tensor)>,
}

fn random(rows: usize, columns: usize) -> Result<Tensor> {
    let weight = op!("randn", Tensor::randn(0f32, 0.1, (rows, columns), &Device::Cpu))?;
    op!("contiguous", weight.t()?.contiguous())
}

impl Layer {
    fn new() -> Result<Self> {
        let norm = || op!("ones", Tensor::ones(HIDDEN, DType::F32, &Device::Cpu));
        Ok(Self {
            q: random(HIDDEN, HIDDEN)?,
            k: random(KV_HEADS * HEAD, HIDDEN)?,
            v: random(KV_HEADS * HEAD, HIDDEN)?,
            o: random(HIDDEN, HIDDEN)?,
            gate: random(2 * HIDDEN, HIDDEN)?,
            up: random(2 * HIDDEN, HIDDEN)?,
            down: random(HIDDEN, 2 * HIDDEN)?,
            norms: [norm()?, norm()?],
            cache: None,
        })
    }

    fn forward(&mut self, x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
        let normed = op!("rms_norm", candle_nn::ops::rms_norm(x, &self.norms[0], 1e-5))?;
        let attended = self.attention(&normed, cos, sin)?;
        let x = op!("add", attended + x)?;
        let normed = op!("rms_norm", candle_nn::ops::rms_norm(&x, &self.norms[1], 1e-5))?;
        let gate = op!("matmul", normed.matmul(&self.gate))?;
        let gate = op!("silu", gate.silu())?;
        let up = op!("matmul", normed.matmul(&self.up))?;
        let both = op!("mul", gate * up)?;
        let down = op!("matmul", both.matmul(&self.down))?;
        op!("add", down + x)
    }

    fn attention(&mut self, x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
        let tokens = x.dim(0)?;
        let heads = |x: Tensor, heads: usize| x.reshape((1, tokens, heads, HEAD))?.transpose(1, 2);
        let q = heads(op!("matmul", x.matmul(&self.q))?, HEADS)?;
        let k = heads(op!("matmul", x.matmul(&self.k))?, KV_HEADS)?;
        let v = heads(op!("matmul", x.matmul(&self.v))?, KV_HEADS)?;
        let q = op!("contiguous", q.contiguous())?;
        let k = op!("contiguous", k.contiguous())?;
        let q = op!("rope", candle_nn::rotary_emb::rope(&q, cos, sin))?;
        let mut k = op!("rope", candle_nn::rotary_emb::rope(&k, cos, sin))?;
        let mut v = op!("contiguous", v.contiguous())?;
        if let Some((keys, values)) = &self.cache {
            k = op!("cat", Tensor::cat(&[keys, &k], 2))?;
            v = op!("cat", Tensor::cat(&[values, &v], 2))?;
        }
        self.cache = Some((k.clone(), v.clone()));
        let (k, v) = (repeated(&k)?, repeated(&v)?);
        let scores = op!("matmul", q.matmul(&k.t()?))?;
        let scores = op!("div|affine", scores / (HEAD as f64).sqrt())?;
        let scores = if tokens > 1 { masked(&scores)? } else { scores };
        let weights = op!("softmax_last_dim", candle_nn::ops::softmax_last_dim(&scores))?;
        let y = op!("matmul", weights.matmul(&v))?;
        let y = op!("reshape", y.transpose(1, 2)?.reshape((tokens, HIDDEN)))?;
        op!("matmul", y.matmul(&self.o))
    }
}

fn repeated(x: &Tensor) -> Result<Tensor> {
    let (batch, heads, tokens, size) = x.dims4()?;
    let both = op!("cat", Tensor::cat(&[x, x], 2))?;
    both.reshape((batch, heads * HEADS / KV_HEADS, tokens, size))
}

fn masked(scores: &Tensor) -> Result<Tensor> {
    let tokens = scores.dim(D::Minus1)?;
    let mask: Vec<u8> = (0..tokens).flat_map(|i| (0..tokens).map(move |j| u8::from(j > i))).collect();
    let mask = op!("from_slice", Tensor::from_slice(&mask, (tokens, tokens), &Device::Cpu))?;
    let never = Tensor::new(f32::NEG_INFINITY, &Device::Cpu)?.broadcast_as(scores.shape())?;
    op!("where_cond", mask.broadcast_as(scores.shape())?.where_cond(&never, scores))
}

fn tables(positions: usize) -> Result<(Tensor, Tensor)> {
    let theta: Vec<f32> = (0..HEAD).step_by(2).map(|i| 1. / 10000f32.powf(i as f32 / HEAD as f32)).collect();
    let theta = op!("new|from_vec", Tensor::from_vec(theta, (1, HEAD / 2), &Device::Cpu))?;
    let position = op!("arange/arange_step", Tensor::arange(0, positions as u32, &Device::Cpu))?;
    let position = op!("to_dtype", position.to_dtype(DType::F32))?.reshape((positions, 1))?;
    let angles = op!("matmul", position.matmul(&theta))?;
    Ok((op!("cos", angles.cos())?, op!("sin", angles.sin())?))
}

pub(crate) fn generate() -> Result<()> {
    let embedding = op!("randn", Tensor::randn(0f32, 1., (VOCABULARY, HIDDEN), &Device::Cpu))?;
    let mut layers = (0..3).map(|_| Layer::new()).collect::<Result<Vec<_>>>()?;
    let (cos, sin) = tables(64)?;
    let mut next: Vec<u32> = (0..16).collect();
    let mut position = 0;
    for _ in 0..12 {
        let tokens = op!("new", Tensor::new(next.as_slice(), &Device::Cpu))?;
        let mut x = op!("index_select", embedding.index_select(&tokens, 0))?;
        let (cos, sin) = (cos.narrow(0, position, next.len())?, sin.narrow(0, position, next.len())?);
        for layer in &mut layers {
            x = layer.forward(&x, &cos, &sin)?;
        }
        position += next.len();
        let last = op!("contiguous", x.i(next.len() - 1..)?.contiguous())?;
        let logits = op!("matmul", last.matmul(&embedding.t()?))?;
        let best = op!("argmax", logits.argmax(D::Minus1))?;
        next = vec![best.i(0)?.to_scalar::<u32>()?];
    }
    Ok(())
}
