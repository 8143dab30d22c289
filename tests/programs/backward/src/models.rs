//! The networks. Some compute their operands in another order than a backward pass goes through them, and many results have
//! the same size, so that sizes and times alone would mislead.

use candle_core::{D, DType, IndexOp, Result, Tensor, Var};
use candle_nn::{Optimizer, SGD};

use crate::{Backward, device};

const STEPS: usize = 2;

/// Variables that train together.
#[derive(Default)]
pub(crate) struct Variables(Vec<Var>);

impl Variables {
    pub(crate) fn add(&mut self, shape: &[usize]) -> Result<Tensor> {
        let var = Var::randn(0f32, 0.1, shape, &device())?;
        self.0.push(var.clone());
        Ok(var.as_tensor().clone())
    }

    pub(crate) fn train(self, backward: Backward<'_>, loss: impl Fn() -> Result<Tensor>) -> Result<()> {
        let mut optimizer = SGD::new(self.0, 0.01)?;
        for _ in 0..STEPS {
            let gradients = backward(&loss()?)?;
            optimizer.step(&gradients)?;
        }
        Ok(())
    }
}

pub(crate) fn data(shape: &[usize]) -> Result<Tensor> {
    Tensor::randn(0f32, 1., shape, &device())
}

pub(crate) fn linear(x: &Tensor, weight: &Tensor, bias: &Tensor) -> Result<Tensor> {
    x.broadcast_matmul(&weight.t()?)?.broadcast_add(bias)
}

/// Four layers of equal size with different activations.
pub(crate) fn plain(backward: Backward<'_>) -> Result<()> {
    let mut vars = Variables::default();
    let layers =
        (0..4).map(|_| Ok((vars.add(&[64, 64])?, vars.add(&[64])?))).collect::<Result<Vec<(Tensor, Tensor)>>>()?;
    let (input, target) = (data(&[32, 64])?, data(&[32, 64])?);
    vars.train(backward, || {
        let mut x = input.clone();
        for (at, (weight, bias)) in layers.iter().enumerate() {
            x = linear(&x, weight, bias)?;
            x = match at {
                0 => x.relu()?,
                1 => x.gelu()?,
                2 => x.silu()?,
                _ => x,
            };
        }
        candle_nn::loss::mse(&x, &target)
    })
}

/// Convolutions with normalization by hand and two residual joins, pooled, with a classifier.
pub(crate) fn residual(backward: Backward<'_>) -> Result<()> {
    let mut vars = Variables::default();
    let kernels = (0..5).map(|at| vars.add(&[8, if at == 0 { 3 } else { 8 }, 3, 3])).collect::<Result<Vec<_>>>()?;
    let scales = (0..5).map(|_| vars.add(&[1, 8, 1, 1])).collect::<Result<Vec<_>>>()?;
    let head = vars.add(&[10, 512])?;
    let (images, classes) = (data(&[4, 3, 16, 16])?, Tensor::new(&[1u32, 3, 5, 9], &device())?);
    vars.train(backward, || {
        let conv = |x: &Tensor, at: usize| -> Result<Tensor> {
            let x = x.conv2d(&kernels[at], 1, 1, 1, 1)?;
            let x = x.broadcast_sub(&x.mean_keepdim((0, 2, 3))?)?;
            let deviation = (x.sqr()?.mean_keepdim((0, 2, 3))? + 1e-5)?.sqrt()?;
            x.broadcast_div(&deviation)?.broadcast_mul(&scales[at])
        };
        let mut x = conv(&images, 0)?.relu()?;
        for at in [1, 3] {
            x = (&x + conv(&conv(&x, at)?.relu()?, at + 1)?)?.relu()?;
        }
        let logits = x.avg_pool2d(2)?.flatten_from(1)?.matmul(&head.t()?)?;
        candle_nn::loss::cross_entropy(&logits, &classes)
    })
}

/// Branches of one, two and three layers of equal sizes, which are added and joined; the longest is computed first.
pub(crate) fn branches(backward: Backward<'_>) -> Result<()> {
    let mut vars = Variables::default();
    let weights = (0..6).map(|_| vars.add(&[64, 64])).collect::<Result<Vec<_>>>()?;
    let last = vars.add(&[128, 32])?;
    let (input, target) = (data(&[32, 64])?, data(&[32, 32])?);
    vars.train(backward, || {
        let layer = |x: &Tensor, at: usize| -> Result<Tensor> { x.matmul(&weights[at])?.tanh() };
        let long = layer(&layer(&layer(&input, 3)?, 4)?, 5)?;
        let middle = layer(&layer(&input, 1)?, 2)?;
        let short = layer(&input, 0)?;
        let added = ((&short + &long)? * &middle)?;
        let joined = Tensor::cat(&[&added, &middle], 1)?;
        candle_nn::loss::mse(&joined.matmul(&last)?, &target)
    })
}

/// One weight in three layers, and an embedding that is the classifier, too.
pub(crate) fn shared(backward: Backward<'_>) -> Result<()> {
    let mut vars = Variables::default();
    let (words, weight) = (vars.add(&[100, 64])?, vars.add(&[64, 64])?);
    let text = Tensor::arange(0u32, 32, &device())?;
    let next = Tensor::arange(1u32, 33, &device())?;
    let turned = weight.t()?;
    vars.train(backward, || {
        let mut x = words.index_select(&text, 0)?;
        for _ in 0..3 {
            x = x.matmul(&weight)?.sin()?;
        }
        x = (x.matmul(&turned)? + x.matmul(&turned)?.exp()?)?;
        candle_nn::loss::cross_entropy(&x.matmul(&words.t()?)?, &next)
    })
}

/// Two blocks of self-attention with a normalization; keys and values are computed before the queries.
pub(crate) fn attention(backward: Backward<'_>) -> Result<()> {
    const HEADS: usize = 4;
    let mut vars = Variables::default();
    let blocks =
        (0..2).map(|_| (0..4).map(|_| vars.add(&[64, 64])).collect::<Result<Vec<_>>>()).collect::<Result<Vec<_>>>()?;
    let gains = (0..2).map(|_| vars.add(&[64])).collect::<Result<Vec<_>>>()?;
    let (input, target) = (data(&[2, 16, 64])?, data(&[2, 16, 64])?);
    vars.train(backward, || {
        let mut x = input.clone();
        for (weights, gain) in blocks.iter().zip(&gains) {
            let [wq, wk, wv, wo] = &weights[..] else { continue };
            let size = (x.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
            let normal = x.broadcast_div(&size)?.broadcast_mul(gain)?;
            let heads = |weight: &Tensor| -> Result<Tensor> {
                let all = normal.broadcast_matmul(&weight.t()?)?;
                all.reshape((2, 16, HEADS, 64 / HEADS))?.transpose(1, 2)?.contiguous()
            };
            let (v, k, q) = (heads(wv)?, heads(wk)?, heads(wq)?);
            let scores = (q.matmul(&k.t()?)? * 0.25)?;
            let mixed = candle_nn::ops::softmax(&scores, D::Minus1)?.matmul(&v)?;
            let mixed = mixed.transpose(1, 2)?.contiguous()?.reshape((2, 16, 64))?;
            x = (x + mixed.broadcast_matmul(&wo.t()?)?)?;
        }
        candle_nn::loss::mse(&x, &target)
    })
}

/// Two networks, each with its loss; the passes follow each other, with nothing in between.
pub(crate) fn gan(backward: Backward<'_>) -> Result<()> {
    let (mut of_maker, mut of_judge) = (Variables::default(), Variables::default());
    let maker = (of_maker.add(&[16, 64])?, of_maker.add(&[64, 64])?);
    let judge = (of_judge.add(&[64, 64])?, of_judge.add(&[64, 1])?);
    let (mut make, mut tell) = (SGD::new(of_maker.0, 0.01)?, SGD::new(of_judge.0, 0.01)?);
    let real = data(&[32, 64])?;
    for _ in 0..STEPS {
        let fake = data(&[32, 16])?.matmul(&maker.0)?.relu()?.matmul(&maker.1)?.tanh()?;
        let told = |x: &Tensor| x.matmul(&judge.0)?.relu()?.matmul(&judge.1);
        let loss_of_judge = (told(&fake.detach())?.sqr()?.mean_all()? + (told(&real)? - 1.)?.sqr()?.mean_all()?)?;
        let loss_of_maker = (told(&fake)? - 1.)?.sqr()?.mean_all()?;
        let (of_judge, of_maker) = (backward(&loss_of_judge)?, backward(&loss_of_maker)?);
        tell.step(&of_judge)?;
        make.step(&of_maker)?;
    }
    Ok(())
}

/// An LSTM over six words; its gates are parts of one product.
pub(crate) fn lstm(backward: Backward<'_>) -> Result<()> {
    let mut vars = Variables::default();
    let (of_input, of_state) = (vars.add(&[32, 256])?, vars.add(&[64, 256])?);
    let (input, target) = (data(&[6, 16, 32])?, data(&[16, 64])?);
    vars.train(backward, || {
        let sigmoid = |x: &Tensor| -> Result<Tensor> { (x.neg()?.exp()? + 1.)?.recip() };
        let zeros = Tensor::zeros((16, 64), DType::F32, &device())?;
        let (mut state, mut cell) = (zeros.clone(), zeros);
        for at in 0..6 {
            let gates = (input.i(at)?.matmul(&of_input)? + state.matmul(&of_state)?)?;
            let gate = |at: usize| gates.narrow(1, at * 64, 64);
            let kept = (sigmoid(&gate(0)?)? * &cell)?;
            cell = (kept + (sigmoid(&gate(1)?)? * gate(2)?.tanh()?)?)?;
            state = (sigmoid(&gate(3)?)? * cell.tanh()?)?;
        }
        candle_nn::loss::mse(&state, &target)
    })
}

/// Adapters of low rank beside frozen weights.
pub(crate) fn lora(backward: Backward<'_>) -> Result<()> {
    let mut vars = Variables::default();
    let layers = (0..3)
        .map(|_| Ok((data(&[64, 64])?, vars.add(&[64, 8])?, vars.add(&[8, 64])?)))
        .collect::<Result<Vec<(Tensor, Tensor, Tensor)>>>()?;
    let (input, target) = (data(&[32, 64])?, data(&[32, 64])?);
    vars.train(backward, || {
        let mut x = input.clone();
        for (frozen, down, up) in &layers {
            let adapted = (x.matmul(down)?.matmul(up)? * 2.)?;
            x = (x.matmul(frozen)? + adapted)?.relu()?;
        }
        candle_nn::loss::mse(&x, &target)
    })
}
