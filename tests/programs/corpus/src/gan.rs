//! A generative adversarial network (GAN): transposed convolutions, group norm, dropout, an embedding, candle's SGD.

use candle_core::{DType, Device, IndexOp, Module, Result, Tensor, Var};
use candle_nn::{Optimizer, SGD, VarBuilder, VarMap};

use crate::op;

const NOISE: usize = 32;

trait Network {
    fn apply(&self, x: &Tensor) -> Result<Tensor>;
}

struct Generator {
    classes: candle_nn::Embedding,
    project: Tensor,
    up: Vec<Tensor>,
    norm: candle_nn::GroupNorm,
}

struct Discriminator {
    down: Vec<Tensor>,
    head: candle_nn::Linear,
    dropout: candle_nn::Dropout,
}

impl Generator {
    fn new(build: &VarBuilder<'_>) -> Result<Self> {
        let normal = candle_nn::Init::Randn { mean: 0., stdev: 0.05 };
        let up = |n: usize| op!("get", build.get_with_hints((16, 16, 4, 4), &format!("up{n}"), normal));
        Ok(Self {
            classes: op!("get", candle_nn::embedding(10, NOISE, build.pp("classes")))?,
            project: op!("get", build.get_with_hints((NOISE, 16 * 49), "project", normal))?,
            up: vec![up(0)?, up(1)?],
            norm: op!("get", candle_nn::group_norm(4, 16, 1e-5, build.pp("norm")))?,
        })
    }

    fn labelled(&self, noise: &Tensor, classes: &Tensor) -> Result<Tensor> {
        let embedded = op!("index_select", self.classes.forward(classes))?;
        op!("mul", noise * embedded)
    }
}

impl Network for Generator {
    fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let x = op!("matmul", x.matmul(&self.project))?;
        let mut x = x.reshape(((), 16, 7, 7))?;
        for kernel in &self.up {
            x = op!("conv_transpose2d", x.conv_transpose2d(kernel, 1, 0, 2, 1))?;
            x = op!("elu", x.elu(1.))?;
        }
        let x = op!("GROUP_NORM", self.norm.forward(&x))?;
        let x = op!("mean", x.mean(1))?;
        op!("tanh", x.tanh())
    }
}

impl Discriminator {
    fn new(build: &VarBuilder<'_>) -> Result<Self> {
        let uniform = candle_nn::Init::Uniform { lo: -0.1, up: 0.1 };
        let kernel = |name: &str, inputs: usize| op!("get", build.get_with_hints((16, inputs, 3, 3), name, uniform));
        Ok(Self {
            down: vec![kernel("down0", 1)?, kernel("down1", 16)?],
            head: op!("get", candle_nn::linear(16 * 49, 1, build.pp("head")))?,
            dropout: candle_nn::Dropout::new(0.3),
        })
    }
}

impl Network for Discriminator {
    fn apply(&self, x: &Tensor) -> Result<Tensor> {
        let mut x = op!("interpolate2d|upsample_nearest2d", x.unsqueeze(1)?.upsample_nearest2d(28, 28))?;
        for kernel in &self.down {
            x = op!("conv2d", x.conv2d(kernel, 1, 1, 1, 1))?;
            x = op!("avg_pool2d|avg_pool2d_with_stride", x.avg_pool2d(2))?;
            x = op!("leaky_relu", candle_nn::ops::leaky_relu(&x, 0.2))?;
        }
        let x = op!("dropout", self.dropout.forward(&x.flatten_from(1)?, true))?;
        let logits = op!("matmul|broadcast_add", self.head.forward(&x))?;
        op!("sigmoid", candle_nn::ops::sigmoid(&logits))
    }
}

fn through(networks: &[&dyn Network], x: &Tensor) -> Result<Tensor> {
    networks.iter().try_fold(x.clone(), |x, network| network.apply(&x))
}

fn loss(scores: &Tensor, target: f64) -> Result<Tensor> {
    let away = op!("affine", scores.affine(1., -target))?;
    let squares = op!("powf", away.powf(2.))?;
    op!("mean_all", squares.mean_all())
}

fn step(optimizer: &mut SGD, loss: &Tensor) -> Result<()> {
    let gradients = op!("backward", loss.backward())?;
    op!("step", optimizer.step(&gradients))
}

pub(crate) fn train() -> Result<()> {
    let device = Device::Cpu;
    let (maps, f32) = ([VarMap::new(), VarMap::new()], DType::F32);
    let generator = Generator::new(&VarBuilder::from_varmap(&maps[0], f32, &device))?;
    let discriminator = Discriminator::new(&VarBuilder::from_varmap(&maps[1], f32, &device))?;
    let mut optimizers = [SGD::new(maps[0].all_vars(), 0.01)?, SGD::new(maps[1].all_vars(), 0.01)?];
    let average: Var = op!("zeros", Var::zeros((8, 28, 28), f32, &device))?;
    for round in 0..3u32 {
        let noise = op!("randn", Tensor::randn(0f32, 1., (8, NOISE), &device))?;
        let classes = op!("arange/arange_step", Tensor::arange(round, round + 8, &device))?;
        let noise = generator.labelled(&noise, &classes)?;
        let fake = generator.apply(&noise)?;
        let judged = through(&[&discriminator], &fake.detach())?;
        step(&mut optimizers[1], &loss(&judged, 0.)?)?;
        let judged = through(&[&generator, &discriminator], &noise)?;
        step(&mut optimizers[0], &loss(&judged, 1.)?)?;
        let small = fake.i((.., ..28, ..28))?;
        let mixed = op!("add", small.contiguous()? + average.as_tensor())?;
        op!("set", average.set(&mixed))?;
        let order = op!("arg_sort_last_dim", fake.flatten_from(1)?.contiguous()?.arg_sort_last_dim(false))?;
        drop(op!("gather", fake.flatten_from(1)?.contiguous()?.gather(&order, 1))?);
    }
    Ok(())
}
