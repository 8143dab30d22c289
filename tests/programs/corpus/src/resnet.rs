//! A small residual network in train mode, with batch norm and the program's own optimizer.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::{VarBuilder, VarMap};

use crate::op;

struct Block {
    convs: [Tensor; 2],
    norms: [[Tensor; 2]; 2],
}

impl Block {
    fn new(build: &VarBuilder<'_>, channels: usize) -> Result<Self> {
        let kernel = |name: &str| {
            let init = candle_nn::init::DEFAULT_KAIMING_NORMAL;
            op!("get", build.get_with_hints((channels, channels, 3, 3), name, init))
        };
        let norm = |name: &str| -> Result<[Tensor; 2]> {
            let shape = (1, channels, 1, 1);
            let scale = op!("get", build.get_with_hints(shape, &format!("{name}.scale"), candle_nn::init::ONE))?;
            let shift = op!("get", build.get_with_hints(shape, &format!("{name}.shift"), candle_nn::init::ZERO))?;
            Ok([scale, shift])
        };
        Ok(Self { convs: [kernel("conv1")?, kernel("conv2")?], norms: [norm("norm1")?, norm("norm2")?] })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut y = x.clone();
        for (kernel, norm) in self.convs.iter().zip(&self.norms) {
            y = op!("conv2d", y.conv2d(kernel, 1, 1, 1, 1))?;
            y = normalised(&y, norm)?;
            y = op!("relu", y.relu())?;
        }
        op!("add", &y + x)
    }
}

fn normalised(x: &Tensor, [scale, shift]: &[Tensor; 2]) -> Result<Tensor> {
    let mean = op!("mean_keepdim", x.mean_keepdim((0, 2, 3)))?;
    let centred = op!("broadcast_sub", x.broadcast_sub(&mean))?;
    let squares = op!("sqr", centred.sqr())?;
    let variance = op!("mean_keepdim", squares.mean_keepdim((0, 2, 3)))?;
    let deviation = op!("affine|add", &variance + 1e-5)?;
    let deviation = op!("sqrt", deviation.sqrt())?;
    let x = op!("broadcast_div", centred.broadcast_div(&deviation))?;
    let x = op!("broadcast_mul", x.broadcast_mul(scale))?;
    op!("broadcast_add", x.broadcast_add(shift))
}

/// Momentum, with the velocities as variables.
struct Sgd {
    slots: Vec<(Var, Option<Var>)>,
}

impl Sgd {
    fn step(&mut self, gradients: &candle_core::backprop::GradStore) -> Result<()> {
        for (var, velocity) in &mut self.slots {
            let Some(gradient) = gradients.get(var) else { continue };
            let next = match velocity.as_ref() {
                Some(velocity) => {
                    let decayed = op!("mul|affine", velocity.as_detached_tensor() * 0.9)?;
                    op!("add", decayed + gradient.detach())?
                }
                None => gradient.detach(),
            };
            match velocity.as_ref() {
                Some(velocity) => op!("set", velocity.set(&next))?,
                None => *velocity = Some(op!("from_tensor", Var::from_tensor(&next))?),
            }
            let change = op!("mul|affine", next * 0.01)?;
            let value = op!("sub", var.as_detached_tensor() - change)?;
            op!("set", var.set(&value))?;
        }
        Ok(())
    }
}

pub(crate) fn train() -> Result<()> {
    let device = Device::Cpu;
    let weights = VarMap::new();
    let build = VarBuilder::from_varmap(&weights, DType::F32, &device);
    let stem = op!("get", build.get_with_hints((16, 3, 3, 3), "stem", candle_nn::init::DEFAULT_KAIMING_NORMAL))?;
    let blocks = (0..3).map(|n| Block::new(&build.pp(n), 16)).collect::<Result<Vec<_>>>()?;
    let head = op!("get", build.get_with_hints((10, 16), "head", candle_nn::init::DEFAULT_KAIMING_NORMAL))?;
    let mut optimizer = Sgd { slots: weights.all_vars().into_iter().map(|var| (var, None)).collect() };
    let images = op!("randn", Tensor::randn(0f32, 1., (2, 3, 48, 48), &device))?;
    let targets = op!("zeros", Tensor::zeros(2, DType::U32, &device))?;
    for _ in 0..3 {
        let mut x = op!("conv2d", images.conv2d(&stem, 1, 1, 1, 1))?;
        for block in &blocks {
            x = block.forward(&x)?;
        }
        let x = op!("max_pool2d/max_pool2d_with_stride", x.max_pool2d(2))?;
        let x = op!("mean", x.mean((2, 3)))?;
        let logits = op!("matmul", x.matmul(&head.t()?))?;
        let loss = op!("cross_entropy", candle_nn::loss::cross_entropy(&logits, &targets))?;
        let gradients = op!("backward", loss.backward())?;
        optimizer.step(&gradients)?;
    }
    Ok(())
}
