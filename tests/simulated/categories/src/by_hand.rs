//! A model with weights that the program creates by hand, from loaded or random values, and many inferences.

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{Embedding, LayerNorm, Linear};

use crate::truth::Truth;

const WIDTH: usize = 512;
const WORDS: usize = 4000;

/// Stands for a file of weights.
struct File {
    next: f32,
}

impl File {
    fn read(&mut self, shape: (usize, usize), device: &Device) -> Result<Tensor> {
        self.next += 1.;
        Tensor::from_vec(vec![self.next; shape.0 * shape.1], shape, device)
    }
}

struct Block {
    norm: LayerNorm,
    up: Linear,
    down: Linear,
}

impl Block {
    fn read(file: &mut File, device: &Device) -> Result<Self> {
        let scale = Tensor::from_vec(vec![1f32; WIDTH], WIDTH, device)?;
        let norm = LayerNorm::new_no_bias(scale, 1e-5);
        let up = Linear::new(file.read((2 * WIDTH, WIDTH), device)?, None);
        Ok(Self { norm, up, down: Linear::new(file.read((WIDTH, 2 * WIDTH), device)?, None) })
    }
}

struct Model {
    words: Embedding,
    blocks: Vec<Block>,
    head: Linear,
}

impl Model {
    fn new(device: &Device) -> Result<Self> {
        let mut file = File { next: 0. };
        let words = Embedding::new(file.read((WORDS, WIDTH), device)?, WIDTH);
        let blocks = (0..3).map(|_| Block::read(&mut file, device)).collect::<Result<_>>()?;
        // The file has no weights for this task.
        let weight = (Tensor::randn(0f32, 1., (100, WIDTH), device)? * 0.02)?;
        let bias = Tensor::zeros(100, DType::F32, device)?;
        Ok(Self { words, blocks, head: Linear::new(weight, Some(bias)) })
    }

    fn classify(&self, tokens: &Tensor) -> Result<Vec<u32>> {
        let mut x = self.words.forward(tokens)?;
        for Block { norm, up, down } in &self.blocks {
            x = (&x + down.forward(&up.forward(&norm.forward(&x)?)?.silu()?)?)?;
        }
        self.head.forward(&x.mean(1)?)?.argmax(D::Minus1)?.to_vec1()
    }
}

/// A perceptron with random weights, as for an experiment.
fn random(device: &Device) -> Result<Vec<Linear>> {
    let layer = |_| {
        let weight = (Tensor::randn(0f32, 1., (WIDTH, WIDTH), device)? * 0.02)?;
        Ok(Linear::new(weight, None))
    };
    (0..4).map(layer).collect()
}

pub(crate) fn infer(truth: &Truth, device: &Device) -> Result<()> {
    let model = truth.while_loading(|| Model::new(device))?;
    for batch in 0..6u32 {
        let tokens = truth.while_reading(|| Tensor::from_vec(vec![batch; 16 * 32], (16, 32), device))?;
        truth.on_the_way_there(|| model.classify(&tokens))?;
    }
    let layers = truth.while_loading(|| random(device))?;
    for batch in 0..6u32 {
        let x = truth.while_reading(|| Tensor::from_vec(vec![batch as f32; 128 * WIDTH], (128, WIDTH), device))?;
        truth.on_the_way_there(|| {
            let out = layers.iter().try_fold(x.clone(), |x, layer| layer.forward(&x)?.tanh())?;
            out.sum_all()?.to_scalar::<f32>()
        })?;
    }
    Ok(())
}
