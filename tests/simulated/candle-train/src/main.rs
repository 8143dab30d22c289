//! Trains a small convolutional net and a multi-layer perceptron with AdamW on `cuda:0`, and calls argmax, embedding
//! and sort. The program does not know that the GPU may be simulated; `cargo xtask simulated` checks the output.

use candle_core::{DType, Device, IndexOp, Module, Result, Tensor};
use candle_nn::{AdamW, Conv2d, Conv2dConfig, Embedding, Linear, Optimizer, VarBuilder, VarMap};

const STEPS: usize = 5;
const CLASSES: usize = 10;
const BATCH: usize = 8;

fn main() -> Result<()> {
    let devices: usize = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1);
    for ordinal in 0..devices {
        train_on(&Device::new_cuda(ordinal)?)?;
    }
    println!("done on {devices}");
    Ok(())
}

fn train_on(device: &Device) -> Result<()> {
    let images = Tensor::randn(0f32, 1., (BATCH, 1, 16, 16), device)?;
    let labels = Tensor::zeros(BATCH, DType::U32, device)?;
    let conv_net = |vars: VarBuilder| ConvNet::new(&vars);
    train("convolutions", conv_net, |net: &ConvNet| net.forward(&images), &labels)?;
    let rows = images.flatten_from(1)?;
    let perceptron = |vars: VarBuilder| Perceptron::new(&vars);
    train("perceptron", perceptron, |net: &Perceptron| net.forward(&rows), &labels)?;
    other_operations(device)?;
    device.synchronize()
}

/// Runs five steps of AdamW; the loss must be a number.
fn train<M>(
    name: &str,
    new: impl Fn(VarBuilder) -> Result<M>,
    forward: impl Fn(&M) -> Result<Tensor>,
    labels: &Tensor,
) -> Result<()> {
    let vars = VarMap::new();
    let model = new(VarBuilder::from_varmap(&vars, DType::F32, labels.device()))?;
    let mut optimizer = AdamW::new_lr(vars.all_vars(), 1e-3)?;
    for step in 0..STEPS {
        let loss = candle_nn::loss::cross_entropy(&forward(&model)?, labels)?;
        optimizer.backward_step(&loss)?;
        println!("{name}: step {step}, loss {}", loss.to_scalar::<f32>()?);
    }
    let predicted = forward(&model)?.argmax(1)?.to_vec1::<u32>()?;
    println!("{name}: {} predictions", predicted.len());
    Ok(())
}

fn other_operations(device: &Device) -> Result<()> {
    let table = Embedding::new(Tensor::rand(0f32, 1., (100, 32), device)?, 32);
    let ids = Tensor::from_vec(vec![1u32, 5, 7], 3, device)?;
    println!("embedding: {:?}", table.forward(&ids)?.shape());
    let (sorted, order) = Tensor::rand(0f32, 1., (4, 8), device)?.sort_last_dim(true)?;
    println!("sort: {:?} {:?}", sorted.shape(), order.shape());
    let copied = Tensor::from_vec((0..6u32).collect(), (2, 3), device)?.copy()?;
    assert_eq!(copied.i(1)?.to_vec1::<u32>()?, [3, 4, 5], "copies keep what they copy");
    Ok(())
}

struct ConvNet {
    first: Conv2d,
    second: Conv2d,
    head: Linear,
}

impl ConvNet {
    fn new(vars: &VarBuilder) -> Result<Self> {
        let config = Conv2dConfig { padding: 1, ..Conv2dConfig::default() };
        Ok(Self {
            first: candle_nn::conv2d(1, 8, 3, config, vars.pp("first"))?,
            second: candle_nn::conv2d(8, 16, 3, config, vars.pp("second"))?,
            head: candle_nn::linear(16 * 4 * 4, CLASSES, vars.pp("head"))?,
        })
    }
}

impl Module for ConvNet {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let halved = self.first.forward(images)?.relu()?.max_pool2d(2)?;
        let quartered = self.second.forward(&halved)?.relu()?.max_pool2d(2)?;
        self.head.forward(&quartered.flatten_from(1)?)
    }
}

struct Perceptron {
    hidden: Linear,
    head: Linear,
}

impl Perceptron {
    fn new(vars: &VarBuilder) -> Result<Self> {
        Ok(Self {
            hidden: candle_nn::linear(256, 64, vars.pp("hidden"))?,
            head: candle_nn::linear(64, CLASSES, vars.pp("head"))?,
        })
    }
}

impl Module for Perceptron {
    fn forward(&self, rows: &Tensor) -> Result<Tensor> {
        self.head.forward(&self.hidden.forward(rows)?.gelu()?)
    }
}
