//! A decoder with quantized weights from a file in GGUF format.

use std::io::Cursor;

use candle_core::quantized::{GgmlDType, QMatMul, QTensor, gguf_file};
use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{Embedding, RmsNorm, ops};
use memtrace::Category::{KvCache, Workspace};

use crate::truth::Truth;

const WIDTH: usize = 512;
const WORDS: usize = 1024;
const LAYERS: usize = 2;
const PROMPT: u32 = 32;

/// candle's permanent statics: a block for sums, and the quantized inputs of products, of the prompt and of a token,
/// which are reallocated for wider inputs.
const WORKSPACES: [usize; 5] = [16 << 20, of_prompt(WIDTH), of_prompt(4 * WIDTH), of_token(WIDTH), of_token(4 * WIDTH)];

/// Blocks of 144 bytes for 128 values each, and 128 more.
const fn of_prompt(width: usize) -> usize {
    144 * (PROMPT as usize * width / 128 + 128)
}

/// Blocks of 36 bytes for 32 values each.
const fn of_token(width: usize) -> usize {
    36 * width / 32
}

/// A file in memory.
fn file() -> Result<Vec<u8>> {
    let quantized = |name: String, shape: (usize, usize), dtype| {
        Result::Ok((name, QTensor::quantize(&Tensor::ones(shape, DType::F32, &Device::Cpu)?, dtype)?))
    };
    let mut tensors = vec![quantized("words".into(), (WORDS, WIDTH), GgmlDType::Q8_0)?];
    tensors.push(quantized("head".into(), (WORDS, WIDTH), GgmlDType::Q8_0)?);
    for n in 0..LAYERS {
        for name in ["q", "k", "v", "o"] {
            tensors.push(quantized(format!("{n}.{name}"), (WIDTH, WIDTH), GgmlDType::Q4_0)?);
        }
        tensors.push(quantized(format!("{n}.up"), (4 * WIDTH, WIDTH), GgmlDType::Q4_0)?);
        tensors.push(quantized(format!("{n}.down"), (WIDTH, 4 * WIDTH), GgmlDType::Q4_0)?);
        let norm = Tensor::ones(WIDTH, DType::F32, &Device::Cpu)?;
        tensors.push((format!("{n}.norm"), QTensor::quantize(&norm, GgmlDType::F32)?));
    }
    let named: Vec<_> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut file = Cursor::new(Vec::new());
    gguf_file::write(&mut file, &[], &named)?;
    Ok(file.into_inner())
}

struct Reader<'a> {
    content: gguf_file::Content,
    file: Cursor<Vec<u8>>,
    device: &'a Device,
}

impl Reader<'_> {
    fn tensor(&mut self, name: &str) -> Result<QTensor> {
        self.content.tensor(&mut self.file, name, self.device)
    }

    fn matmul(&mut self, name: &str) -> Result<QMatMul> {
        QMatMul::from_qtensor(self.tensor(name)?)
    }
}

struct Layer {
    norm: RmsNorm,
    /// Queries, keys, values, out, up, down.
    products: [QMatMul; 6],
    cache: Option<(Tensor, Tensor)>,
}

impl Layer {
    fn read(reader: &mut Reader<'_>, n: usize) -> Result<Self> {
        let norm = RmsNorm::new(reader.tensor(&format!("{n}.norm"))?.dequantize(reader.device)?, 1e-5);
        let mut product = |name| reader.matmul(&format!("{n}.{name}"));
        let products = [product("q")?, product("k")?, product("v")?, product("o")?, product("up")?, product("down")?];
        Ok(Self { norm, products, cache: None })
    }

    fn forward(&mut self, truth: &Truth, x: &Tensor) -> Result<Tensor> {
        let [queries, keys, values, out, up, down] = &self.products;
        let normed = self.norm.forward(x)?;
        let (queries, keys, values) = (queries.forward(&normed)?, keys.forward(&normed)?, values.forward(&normed)?);
        let (keys, values) = match &self.cache {
            Some((k, v)) => (Tensor::cat(&[k, &keys], 0)?, Tensor::cat(&[v, &values], 0)?),
            None => (keys, values),
        };
        self.cache = Some((keys.clone(), values.clone()));
        [&keys, &values].into_iter().for_each(|cache| truth.is(cache, KvCache));
        let scores = (queries.matmul(&keys.t()?)? / (WIDTH as f64).sqrt())?;
        let x = (x + out.forward(&ops::softmax(&scores, D::Minus1)?.matmul(&values)?)?)?;
        &x + down.forward(&up.forward(&x)?.silu()?)?
    }
}

struct Decoder {
    words: Embedding,
    layers: Vec<Layer>,
    head: QMatMul,
}

impl Decoder {
    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            words: Embedding::new(reader.tensor("words")?.dequantize(reader.device)?, WIDTH),
            layers: (0..LAYERS).map(|n| Layer::read(reader, n)).collect::<Result<_>>()?,
            head: reader.matmul("head")?,
        })
    }

    /// The most probable next token.
    fn forward(&mut self, truth: &Truth, tokens: &Tensor) -> Result<u32> {
        let mut x = self.words.forward(tokens)?;
        for layer in &mut self.layers {
            x = layer.forward(truth, &x)?;
        }
        let last = x.narrow(0, x.dim(0)? - 1, 1)?.contiguous()?;
        self.head.forward(&last)?.argmax(D::Minus1)?.squeeze(0)?.to_scalar()
    }
}

pub(crate) fn generate(truth: &Truth, device: &Device) -> Result<()> {
    let mut file = Cursor::new(file()?);
    let mut reader = Reader { content: gguf_file::Content::read(&mut file)?, file, device };
    let mut model = truth.while_loading(|| Decoder::read(&mut reader))?;
    let prompt = truth.while_reading(|| Tensor::from_vec((0..PROMPT).collect(), PROMPT as usize, device))?;
    truth.on_the_way_there(|| model.forward(truth, &prompt))?;
    for token in 0u32..40 {
        let next = truth.while_reading(|| Tensor::new(&[token], device))?;
        truth.on_the_way_there(|| model.forward(truth, &next))?;
    }
    WORKSPACES.into_iter().for_each(|bytes| truth.are_of_size(bytes as u64, Workspace));
    Ok(())
}
