//! A decoder as Llama's: its layers on one GPU, or in groups on several, with a cache of keys and values that grows by concatenation.

use candle_core::quantized::{GgmlDType, QMatMul, QTensor};
use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{Embedding, Linear, RmsNorm, VarBuilder, embedding, linear_no_bias, ops, rms_norm};

pub struct Size {
    hidden: usize,
    inner: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    vocabulary: usize,
}

pub const LLAMA_1B: Size = Size { hidden: 2048, inner: 8192, layers: 16, heads: 32, kv_heads: 8, vocabulary: 128_256 };
pub const LLAMA_8B: Size =
    Size { hidden: 4096, inner: 14_336, layers: 32, heads: 32, kv_heads: 8, vocabulary: 128_256 };
pub const LLAMA_70B: Size =
    Size { hidden: 8192, inner: 28_672, layers: 80, heads: 64, kv_heads: 8, vocabulary: 128_256 };

const PROMPT: usize = 512;
const TOKENS: usize = 16;

/// A matrix that a layer multiplies by.
enum Matrix {
    Whole(Linear),
    Quantized(QMatMul),
}

impl Module for Matrix {
    fn forward(&self, xs: &Tensor) -> Result<Tensor> {
        match self {
            Self::Whole(matrix) => matrix.forward(xs),
            Self::Quantized(matrix) => matrix.forward(xs),
        }
    }
}

struct Layer {
    before_attention: RmsNorm,
    before_inner: RmsNorm,
    query: Matrix,
    key: Matrix,
    value: Matrix,
    out: Matrix,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
    cache: Option<(Tensor, Tensor)>,
}

impl Layer {
    fn new(size: &Size, vb: VarBuilder, matrix: impl Fn(usize, usize, VarBuilder) -> Result<Matrix>) -> Result<Self> {
        let (hidden, kv) = (size.hidden, size.hidden / size.heads * size.kv_heads);
        Ok(Self {
            before_attention: rms_norm(hidden, 1e-5, vb.pp("input_layernorm"))?,
            before_inner: rms_norm(hidden, 1e-5, vb.pp("post_attention_layernorm"))?,
            query: matrix(hidden, hidden, vb.pp("q_proj"))?,
            key: matrix(hidden, kv, vb.pp("k_proj"))?,
            value: matrix(hidden, kv, vb.pp("v_proj"))?,
            out: matrix(hidden, hidden, vb.pp("o_proj"))?,
            gate: matrix(hidden, size.inner, vb.pp("gate_proj"))?,
            up: matrix(hidden, size.inner, vb.pp("up_proj"))?,
            down: matrix(size.inner, hidden, vb.pp("down_proj"))?,
            cache: None,
        })
    }

    fn forward(&mut self, size: &Size, xs: &Tensor) -> Result<Tensor> {
        let xs = (xs + self.attend(size, &self.before_attention.forward(xs)?)?)?;
        let normed = self.before_inner.forward(&xs)?;
        let inner = (ops::silu(&self.gate.forward(&normed)?)? * self.up.forward(&normed)?)?;
        &xs + self.down.forward(&inner)?
    }

    fn attend(&mut self, size: &Size, xs: &Tensor) -> Result<Tensor> {
        let (batch, length, hidden) = xs.dims3()?;
        let split = |xs: Tensor, heads: usize| xs.reshape((batch, length, heads, ()))?.transpose(1, 2)?.contiguous();
        let query = split(self.query.forward(xs)?, size.heads)?;
        let key = split(self.key.forward(xs)?, size.kv_heads)?;
        let value = split(self.value.forward(xs)?, size.kv_heads)?;
        let (key, value) = match self.cache.take() {
            Some((keys, values)) => (Tensor::cat(&[&keys, &key], 2)?, Tensor::cat(&[&values, &value], 2)?),
            None => (key, value),
        };
        self.cache = Some((key.clone(), value.clone()));
        let repeat = size.heads / size.kv_heads;
        let spread = |xs: &Tensor| candle_transformers::utils::repeat_kv(xs.clone(), repeat);
        let scale = 1. / ((hidden / size.heads) as f64).sqrt();
        let scores = (query.matmul(&spread(&key)?.t()?.contiguous()?)? * scale)?;
        let weights = ops::softmax_last_dim(&scores.to_dtype(DType::F32)?)?.to_dtype(xs.dtype())?;
        let attended = weights.matmul(&spread(&value)?.contiguous()?)?;
        self.out.forward(&attended.transpose(1, 2)?.reshape((batch, length, hidden))?)
    }
}

struct Decoder {
    embedding: Embedding,
    layers: Vec<(Device, Layer)>,
    norm: RmsNorm,
    head: Linear,
}

impl Decoder {
    fn forward(&mut self, size: &Size, tokens: &Tensor) -> Result<Tensor> {
        let mut xs = self.embedding.forward(tokens)?;
        for (device, layer) in &mut self.layers {
            xs = layer.forward(size, &xs.to_device(device)?)?;
        }
        let last = xs.narrow(1, xs.dim(1)? - 1, 1)?;
        self.head.forward(&self.norm.forward(&last)?)?.to_dtype(DType::F32)
    }

    /// Reads a prompt, then writes tokens.
    fn generate(&mut self, size: &Size, first: &Device) -> Result<()> {
        let mut tokens = Tensor::zeros((1, PROMPT), DType::U32, first)?;
        for _ in 0..TOKENS {
            let chosen = self.forward(size, &tokens)?.argmax(D::Minus1)?;
            tokens = chosen.to_device(first)?;
        }
        println!("{:?}", tokens.to_vec2::<u32>()?);
        Ok(())
    }
}

/// Half precision; the layers in groups of the same number on the devices.
pub fn run(size: &Size, devices: &[Device]) -> Result<()> {
    let (first, last) = (&devices[0], &devices[devices.len() - 1]);
    let on = |device: &Device| VarBuilder::zeros(DType::F16, device);
    let whole = |rows, columns, vb: VarBuilder| linear_no_bias(rows, columns, vb).map(Matrix::Whole);
    let layers = (0..size.layers).map(|at| {
        let device = &devices[at * devices.len() / size.layers];
        Ok((device.clone(), Layer::new(size, on(device).pp(at), whole)?))
    });
    let mut decoder = Decoder {
        embedding: embedding(size.vocabulary, size.hidden, on(first))?,
        layers: layers.collect::<Result<_>>()?,
        norm: rms_norm(size.hidden, 1e-5, on(last))?,
        head: linear_no_bias(size.hidden, size.vocabulary, on(last))?,
    };
    decoder.generate(size, first)
}

/// Layers' matrices of four bits.
pub fn run_quantized(size: &Size, device: &Device) -> Result<()> {
    let vb = VarBuilder::zeros(DType::F32, device);
    let quantized = |rows, columns, _: VarBuilder| {
        let zeros = Tensor::zeros((columns, rows), DType::F32, &Device::Cpu)?;
        QMatMul::from_qtensor(QTensor::quantize_onto(&zeros, GgmlDType::Q4_0, device)?).map(Matrix::Quantized)
    };
    let size = Size { layers: 4, ..*size };
    let layers = (0..size.layers).map(|at| Ok((device.clone(), Layer::new(&size, vb.pp(at), quantized)?)));
    let mut decoder = Decoder {
        embedding: embedding(size.vocabulary, size.hidden, vb.clone())?,
        layers: layers.collect::<Result<_>>()?,
        norm: rms_norm(size.hidden, 1e-5, vb.clone())?,
        head: linear_no_bias(size.hidden, size.vocabulary, vb.clone())?,
    };
    decoder.generate(&size, device)
}
