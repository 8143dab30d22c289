//! Inference that collects its outputs, without an attention cache: concatenated by `cat`, or pushed onto a vector.

use candle_core::{D, DType, Device, IndexOp, Module, Result, Tensor};
use candle_nn::rnn::{GRU, GRUConfig, GRUState, gru};
use candle_nn::{Embedding, LayerNorm, Linear, RNN, VarBuilder, embedding, layer_norm, linear, linear_no_bias, ops};

use crate::truth::Truth;

const WIDTH: usize = 256;
const WORDS: usize = 2000;
const BATCH: usize = 64;

struct Block {
    norm: LayerNorm,
    up: Linear,
    down: Linear,
}

struct Encoder {
    words: Embedding,
    blocks: Vec<Block>,
    head: Linear,
}

impl Encoder {
    fn new(build: &VarBuilder<'_>) -> Result<Self> {
        let block = |build: VarBuilder<'_>| {
            let norm = layer_norm(WIDTH, 1e-5, build.pp("norm"))?;
            let (up, down) = (linear(WIDTH, 4 * WIDTH, build.pp("up"))?, linear(4 * WIDTH, WIDTH, build.pp("down"))?);
            Ok(Block { norm, up, down })
        };
        Ok(Self {
            words: embedding(WORDS, WIDTH, build.pp("words"))?,
            blocks: (0..3).map(|n| block(build.pp(n))).collect::<Result<_>>()?,
            head: linear_no_bias(WIDTH, WORDS, build.pp("head"))?,
        })
    }
}

impl Module for Encoder {
    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let mut x = self.words.forward(tokens)?;
        for Block { norm, up, down } in &self.blocks {
            x = (&x + down.forward(&up.forward(&norm.forward(&x)?)?.gelu()?)?)?;
        }
        ops::log_softmax(&self.head.forward(&x)?, D::Minus1)
    }
}

/// Appends each batch's logits to the previous ones.
pub(crate) fn join(truth: &Truth, device: &Device) -> Result<()> {
    let encoder = truth.while_loading(|| Encoder::new(&VarBuilder::zeros(DType::F32, device)))?;
    let mut all: Option<Tensor> = None;
    for batch in 0..16u32 {
        let tokens = truth.while_reading(|| Tensor::from_vec(vec![batch; BATCH], BATCH, device))?;
        let joined = truth.on_the_way_there(|| {
            let logits = encoder.forward(&tokens)?;
            match &all {
                None => Ok(logits),
                Some(all) => Tensor::cat(&[all, &logits], 0),
            }
        })?;
        truth.is_none_of_them(&joined);
        all = Some(joined);
    }
    Ok(())
}

/// A recurrent network with an output layer.
struct Recurrent {
    cell: GRU,
    head: Linear,
}

impl Recurrent {
    fn new(build: &VarBuilder<'_>) -> Result<Self> {
        let cell = gru(WIDTH, WIDTH, GRUConfig::default(), build.pp("cell"))?;
        Ok(Self { cell, head: linear(WIDTH, WORDS, build.pp("head"))? })
    }

    fn last(&self, sequence: &Tensor, start: &GRUState) -> Result<Tensor> {
        let states = self.cell.seq_init(sequence, start)?;
        let GRUState { h } = states.last().expect("a sequence is not empty");
        self.head.forward(h)
    }
}

/// Pushes each batch's output onto a vector, and concatenates all at the end.
pub(crate) fn push(truth: &Truth, device: &Device) -> Result<()> {
    let model = truth.while_loading(|| Recurrent::new(&VarBuilder::zeros(DType::F32, device)))?;
    let values = vec![1f32; 16 * BATCH * 10 * WIDTH];
    let sequences = truth.while_reading(|| Tensor::from_vec(values, (16, BATCH, 10, WIDTH), device))?;
    let start = truth.while_reading(|| model.cell.zero_state(BATCH))?;
    let mut outputs = Vec::new();
    for batch in 0..16 {
        let sequence = sequences.i(batch)?;
        let output = truth.on_the_way_there(|| model.last(&sequence, &start))?;
        truth.is_none_of_them(&output);
        outputs.push(output);
    }
    truth.is_none_of_them(&Tensor::cat(&outputs, 0)?);
    Ok(())
}
